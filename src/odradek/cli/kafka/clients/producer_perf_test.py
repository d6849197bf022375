"""`kafka-producer-perf-test`: measures throughput and latency of a producer.

Arguments and texts follow Kafka 3.9's `ProducerPerformance`. The measured client is Odradek's.
"""

import asyncio
import pathlib
import random
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final

from odradek.cli.connect import properties_of
from odradek.cli.failures import IllegalArgumentError, show_log
from odradek.cli.kafka.clients.client_flags import in_java_words, uncaught
from odradek.cli.kafka.clients.throttle import Throttle
from odradek.cli.kafka.support.arguments import CommandLine, Namespace, double, integer, long
from odradek.client.cluster import BootstrapError, InvalidAddressError, UnresolvableError
from odradek.client.errors import ClientTimeoutError
from odradek.client.producer.batches import Delivery
from odradek.client.producer.producer import Producer
from odradek.client.producer.settings import ProducerSettings
from odradek.model.errors import OdradekError

_INTERVAL_S: Final = 5.0
_SAMPLES_MAX: Final = 500_000
_TRANSACTIONAL_ID: Final = "performance-producer-default-transactional-id"
_MEGABYTE: Final = 1024.0 * 1024.0
# The sender runs on the same event loop: yield to it after so many records.
_RECORDS_A_TURN: Final = 64


def main(arguments: Sequence[str]) -> int:
    show_log()
    parser = command_line()
    if not arguments:
        parser.print_help()
        return 0
    chosen = parser.read(arguments)
    if chosen.producer_props is None and chosen.producer_config is None:
        parser.error("Either --producer-props or --producer.config must be specified.")
    try:
        settings = ProducerSettings.from_properties(
            _properties(chosen), client_id="perf-producer-client"
        )
        return asyncio.run(_measure(settings, chosen, _payloads(chosen)))
    except (OdradekError, ConnectionError) as error:
        return uncaught(error, "producer")


def command_line() -> CommandLine:
    parser = CommandLine("producer-performance", "Measures a producer against a topic.")
    add, flag = parser.value, parser.flag
    add("topic", required=True, metavar="TOPIC", help="the topic to write to")
    add("num-records", required=True, read=long, metavar="NUM-RECORDS", help="how many")
    add(
        "payload-delimiter",
        default="\\n",
        metavar="PAYLOAD-DELIMITER",
        help="the delimiter of the payloads in --payload-file (default: a line end)",
    )
    add(
        "throughput",
        required=True,
        read=double,
        metavar="THROUGHPUT",
        help="records a second at most; -1: unlimited",
    )
    parser.values(
        "producer-props",
        metavar="PROP-NAME=PROP-VALUE",
        help="properties of the producer, before those of --producer.config",
    )
    add("producer.config", "command-config", metavar="CONFIG-FILE", help="the same, a file")
    flag("print-metrics", help="show the producer's counters at the end")
    add("transactional-id", metavar="TRANSACTIONAL-ID", help="for transactions")
    add(
        "transaction-duration-ms",
        read=long,
        default=0,
        metavar="TRANSACTION-DURATION",
        help="commit a transaction after this time; 0: no transactions",
    )
    add("record-size", either=True, read=integer, metavar="RECORD-SIZE", help="bytes of each")
    add("payload-file", either=True, metavar="PAYLOAD-FILE", help="payloads to draw from")
    flag("payload-monotonic", either=True, help="0, 1, 2 ...")
    return parser


def _properties(chosen: Namespace) -> dict[str, str]:
    properties = properties_of(chosen.producer_config)
    for text in chosen.producer_props or ():
        pieces = text.split("=", 1)
        if len(pieces) != 2 or not pieces[1]:
            raise IllegalArgumentError(f"Invalid property: {text}")
        properties[pieces[0]] = pieces[1]
    if chosen.transaction_duration_ms > 0 or chosen.transactional_id:
        properties["transactional.id"] = chosen.transactional_id or _TRANSACTIONAL_ID
    return properties


def _payloads(chosen: Namespace) -> Callable[[int], bytes]:
    """A function from the number of a record to its value."""
    draw = random.Random(0)
    if chosen.payload_monotonic:
        return lambda number: b"%d" % number
    if chosen.payload_file is not None:
        path = pathlib.Path(chosen.payload_file).absolute()
        print(f"Reading payloads from: {path}", flush=True)
        if not path.exists() or not path.stat().st_size:
            raise IllegalArgumentError("File does not exist or empty file provided.")
        delimiter = "\n" if chosen.payload_delimiter == "\\n" else chosen.payload_delimiter
        text = path.read_text("utf-8")
        # As `String.split`: without a delimiter each character is a payload.
        texts = text.split(delimiter) if delimiter else list(text)
        while texts and not texts[-1]:
            texts.pop()  # `String.split` drops an empty end
        print(f"Number of messages read: {len(texts)}", flush=True)
        values = [text.encode() for text in texts]
        return lambda _: draw.choice(values)
    if chosen.record_size < 0:
        raise IllegalArgumentError("Record size should be greater than or equal to 0")
    payload = bytes(65 + draw.randrange(26) for _ in range(chosen.record_size))
    return lambda _: payload


class _Stats:
    """Counts, and latencies of a sample of the records."""

    def __init__(self, records: int) -> None:
        self.begun_s = self._window_s = time.perf_counter()
        self._every = max(1, records // _SAMPLES_MAX)
        self._latencies: list[int] = []
        self._count = self._bytes = self._latency_total = self._latency_max = 0
        self._sampled = 0
        self._window = [0, 0, 0, 0]  # records, bytes, total latency, largest

    def record(self, latency_ms: int, size_bytes: int) -> None:
        """Count an acknowledged record."""
        self._count += 1
        self._bytes += size_bytes
        self._latency_total += latency_ms
        self._latency_max = max(self._latency_max, latency_ms)
        window = self._window
        window[0] += 1
        window[1] += size_bytes
        window[2] += latency_ms
        window[3] = max(window[3], latency_ms)
        if self._count % self._every == 0:
            self._latencies.append(latency_ms)
        now_s = time.perf_counter()
        if now_s - self._window_s >= _INTERVAL_S:
            self._print_window(now_s)
            self._window = [0, 0, 0, 0]
            self._window_s = now_s

    def _print_window(self, now_s: float) -> None:
        elapsed_s = now_s - self._window_s
        count, size, total, most = self._window
        print(
            f"{count} records sent, {count / elapsed_s:.1f} records/sec "
            f"({size / elapsed_s / _MEGABYTE:.2f} MB/sec), {total / count:.1f} ms avg latency, "
            f"{float(most):.1f} ms max latency.",
            flush=True,
        )

    def print_total(self) -> None:
        elapsed_s = max(time.perf_counter() - self.begun_s, 1e-9)
        percentiles = _percentiles(self._latencies, (0.5, 0.95, 0.99, 0.999))
        average = self._latency_total / self._count if self._count else float("nan")
        shown = f"{average:.2f}" if self._count else "NaN"
        print(
            f"{self._count} records sent, {self._count / elapsed_s:f} records/sec "
            f"({self._bytes / elapsed_s / _MEGABYTE:.2f} MB/sec), {shown} ms avg latency, "
            f"{float(self._latency_max):.2f} ms max latency, {percentiles[0]} ms 50th, "
            f"{percentiles[1]} ms 95th, {percentiles[2]} ms 99th, {percentiles[3]} ms 99.9th.",
            flush=True,
        )


def _percentiles(latencies: Sequence[int], shares: Sequence[float]) -> list[int]:
    ordered = sorted(latencies) or [0]
    return [ordered[min(int(share * len(ordered)), len(ordered) - 1)] for share in shares]


async def _measure(
    settings: ProducerSettings, chosen: Namespace, payload: Callable[[int], bytes]
) -> int:
    try:
        producer = await Producer.open(settings, wait_ms=settings.block_ms_max)
    except (InvalidAddressError, UnresolvableError):
        raise
    except BootstrapError:
        # No broker has answered within max.block.ms: no record was sent.
        waited = f"Topic {chosen.topic} not present in metadata after {settings.block_ms_max} ms."
        _complain(ClientTimeoutError(waited))
        _Stats(chosen.num_records).print_total()
        return 0
    try:
        transactional = settings.transactional_id is not None
        if transactional:
            await producer.init_transactions()
        stats = _Stats(chosen.num_records)
        await _send_all(producer, chosen, payload, stats, transactional=transactional)
        await producer.flush()
        stats.print_total()
        if chosen.print_metrics:
            print_metrics(producer.metrics(), settings.client.client_id, "producer-metrics")
    finally:
        await producer.close()
    return 0


async def _send_all(
    producer: Producer,
    chosen: Namespace,
    payload: Callable[[int], bytes],
    stats: _Stats,
    *,
    transactional: bool,
) -> None:
    throttle = Throttle(chosen.throughput, stats.begun_s)
    clock = time.perf_counter
    transaction_s: float | None = None
    for number in range(chosen.num_records):
        value = payload(number)
        sent_s = clock()
        if transactional and transaction_s is None:
            producer.begin_transaction()
            transaction_s = sent_s
        delivery = producer.try_send(chosen.topic, value)
        if delivery is None:
            try:
                delivery = await producer.send(chosen.topic, value)
            except OdradekError as error:
                _complain(error)
                continue
        delivery.when_done(_Arrival(stats, sent_s, len(value)).arrived)
        if (
            transaction_s is not None
            and (sent_s - transaction_s) * 1000 >= chosen.transaction_duration_ms
        ):
            await producer.commit_transaction()
            transaction_s = None
        if throttle.is_ahead(number + 1, sent_s):
            await throttle.wait(number + 1, sent_s)
        elif number % _RECORDS_A_TURN == 0:
            await asyncio.sleep(0)
    if transaction_s is not None:
        await producer.commit_transaction()


class _Arrival:
    """The acknowledgement of one record, which is entered in the statistics."""

    __slots__ = ("_sent_s", "_size_bytes", "_stats")

    def __init__(self, stats: _Stats, sent_s: float, size_bytes: int) -> None:
        self._stats = stats
        self._sent_s = sent_s
        self._size_bytes = size_bytes

    def arrived(self, delivery: Delivery) -> None:
        if delivery.error is None:
            latency_ms = int((time.perf_counter() - self._sent_s) * 1000)
            self._stats.record(latency_ms, self._size_bytes)
        else:
            _complain(delivery.error)


def _complain(error: BaseException) -> None:
    print(in_java_words(error), file=sys.stderr)


def print_metrics(metrics: dict[str, float], client_id: str, group: str) -> None:
    """A client's counters, in the form of Kafka's `ToolsUtils.printMetrics`."""
    named = {f"{group}:{name}:{{client-id={client_id}}}": v for name, v in metrics.items()}
    width = max(map(len, named))
    print(f"\n{'Metric Name':<{width}}   Value")
    for name in sorted(named):
        print(f"{name:<{width}} : {named[name]:.3f}")
