"""`kafka-consumer-perf-test`: measures the throughput of a consumer.

Flags and texts follow Kafka 3.9's `ConsumerPerformance`. The measured client is Odradek's.
"""

import asyncio
import random
from collections.abc import Collection, Sequence
from typing import Final

from odradek.cli.connect import properties_of
from odradek.cli.failures import IllegalArgumentError, message_of, show_log
from odradek.cli.kafka.clients.client_flags import logged, merge, usage_for_bad_flags
from odradek.cli.kafka.support.dates import check_pattern, java_date
from odradek.cli.kafka.support.flags import Flags, Parser
from odradek.client.consumer.consumer import Consumer
from odradek.client.consumer.settings import ConsumerSettings
from odradek.model.clock import WallMs
from odradek.model.errors import OdradekError
from odradek.model.partition import TopicPartition
from odradek.net.clock import real_wall_ms

_DATE_FORMAT: Final = "yyyy-MM-dd HH:mm:ss:SSS"
_MEGABYTE: Final = 1024.0 * 1024.0
_POLL_MS: Final = 100
_FETCH_HEADER: Final = ", rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"


def main(arguments: Sequence[str]) -> int:
    show_log()
    parser = command_line()
    with usage_for_bad_flags(parser):
        flags = parser.begin(arguments, empty="")
    if not flags.has("bootstrap-server") and not flags.has("broker-list"):
        parser.fail("Missing required option(s) [bootstrap-server]")
    parser.require(flags, "topic", "messages")
    try:
        return _run(flags)
    except (OdradekError, ConnectionError) as error:
        return logged(error, message_of(error))


def command_line() -> Parser:
    parser = Parser("This tool is used to verify the consumer performance.")
    parser.common()
    parser.value("bootstrap-server", metavar="host:port,...", help="Brokers to connect to.")
    parser.value("broker-list", metavar="host:port,...", help="As --bootstrap-server (deprecated).")
    parser.value("topic", metavar="topic", help="The topic to read. Required.")
    parser.value("messages", metavar="count", help="The number of records to read. Required.")
    parser.value("group", metavar="group", help="The consumer group (default: a generated one).")
    parser.value("fetch-size", metavar="bytes", help="Bytes of one partition in a fetch (1048576).")
    parser.flag("from-latest", help="Start at the end, not at the beginning.")
    parser.value("socket-buffer-size", metavar="bytes", help="Accepted, without effect.")
    parser.value("threads", metavar="count", help="Ignored (deprecated).")
    parser.value("num-fetch-threads", metavar="count", help="Ignored (deprecated).")
    parser.value(
        "consumer.config", "command-config", metavar="file", help="Properties of the consumer."
    )
    parser.flag("print-metrics", help="Show the consumer's counters at the end.")
    parser.flag("show-detailed-stats", help="Report in every interval, and not at the end.")
    parser.value("reporting-interval", metavar="ms", help="That interval (5000).")
    parser.flag("hide-header", help="Leave out the line of column names.")
    parser.value("date-format", metavar="format", help="A pattern of Java's SimpleDateFormat.")
    parser.optional(
        "timeout",
        metavar="ms",
        integer=True,
        help="End when no record arrives for this time (10000).",
    )
    return parser


def _run(flags: Flags) -> int:
    detailed = flags.has("show-detailed-stats")
    _print_header(flags, detailed=detailed)
    flags.integer("fetch-size")
    flags.integer("messages", bits=64)
    properties = properties_of(flags.value("consumer.config"))
    check_pattern(flags.text("date-format", _DATE_FORMAT))
    properties["bootstrap.servers"] = flags.text("bootstrap-server") or flags.text("broker-list")
    properties["group.id"] = flags.text("group", f"perf-consumer-{random.randrange(100_000)}")
    properties["max.partition.fetch.bytes"] = flags.text("fetch-size", "1048576")
    properties["auto.offset.reset"] = "latest" if flags.has("from-latest") else "earliest"
    properties["check.crcs"] = "false"
    merge(properties, flags, flag="socket-buffer-size", into="receive.buffer.bytes", default=None)
    interval_ms = flags.integer("reporting-interval", bits=64)
    if interval_ms is not None and interval_ms <= 0:
        raise IllegalArgumentError("Reporting interval must be greater than 0.")
    settings = ConsumerSettings.from_properties(properties, client_id="perf-consumer-client")
    timeout_ms = flags.integer("timeout", bits=64)
    reading = _Reading(
        topic=flags.text("topic"),
        messages=flags.integer("messages", bits=64) or 0,
        timeout_ms=10_000 if timeout_ms is None else timeout_ms,
        interval_ms=5_000 if interval_ms is None else interval_ms,
        date_format=flags.text("date-format", _DATE_FORMAT),
        detailed=detailed,
    )
    return asyncio.run(reading.run(settings, shows_metrics=flags.has("print-metrics")))


def _print_header(flags: Flags, *, detailed: bool) -> None:
    if flags.has("threads") or flags.has("num-fetch-threads"):
        print(
            "WARNING: option [threads] and [num-fetch-threads] have been deprecated and will be "
            "ignored by the test"
        )
    if not flags.has("hide-header"):
        start = "time, threadId" if detailed else "start.time, end.time"
        columns = "data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec"
        print(f"{start}, {columns}{_FETCH_HEADER}", flush=True)


class _Reading:
    """One measurement: reads records, and prints the statistics of Kafka's tool."""

    def __init__(
        self,
        *,
        topic: str,
        messages: int,
        timeout_ms: int,
        interval_ms: int,
        date_format: str,
        detailed: bool,
    ) -> None:
        self._topic = topic
        self._messages = messages
        self._timeout_ms = timeout_ms
        self._interval_ms = interval_ms
        self._date_format = date_format
        self._detailed = detailed
        self._count = self._bytes = 0
        self._join_ms = self._join_ms_now = 0
        self._joining_ms = 0

    async def revoked(self, partitions: Collection[TopicPartition]) -> None:
        del partitions
        self._joining_ms = real_wall_ms()

    async def lost(self, partitions: Collection[TopicPartition]) -> None:
        await self.revoked(partitions)

    async def assigned(self, partitions: Collection[TopicPartition]) -> None:
        del partitions
        took_ms = real_wall_ms() - self._joining_ms
        self._join_ms += took_ms
        self._join_ms_now += took_ms

    async def run(self, settings: ConsumerSettings, *, shows_metrics: bool) -> int:
        begun_ms = real_wall_ms()
        wait_ms = settings.client.api_timeout_ms
        async with await Consumer.open(settings, wait_ms=wait_ms) as consumer:
            if not self._topic.strip():
                raise IllegalArgumentError(
                    "Topic collection to subscribe to cannot contain null or empty topic"
                )
            self._joining_ms = real_wall_ms()
            consumer.subscribe([self._topic], self)
            await self._consume(consumer)
            ended_ms = real_wall_ms()
            if not self._detailed:
                self._print_total(begun_ms, ended_ms)
            if shows_metrics:
                from odradek.cli.kafka.clients.producer_perf_test import print_metrics  # noqa: PLC0415  for --print-metrics only

                counts = {
                    "records-consumed-total": float(self._count),
                    "bytes-consumed-total": float(self._bytes),
                }
                group = "consumer-fetch-manager-metrics"
                print_metrics(counts, settings.client.client_id, group)
        return 0

    async def _consume(self, consumer: Consumer) -> None:
        consumed_ms = reported_ms = wall_ms = real_wall_ms()
        count_before = bytes_before = 0
        while self._count < self._messages and wall_ms - consumed_ms <= self._timeout_ms:
            records = await consumer.poll(_POLL_MS)
            wall_ms = real_wall_ms()
            if records:
                consumed_ms = wall_ms
            for record in records:
                self._count += 1
                self._bytes += len(record.key or b"") + len(record.value or b"")
                if wall_ms - reported_ms >= self._interval_ms:
                    if self._detailed:
                        self._print_progress(count_before, bytes_before, reported_ms, wall_ms)
                    self._join_ms_now = 0
                    reported_ms = wall_ms
                    count_before, bytes_before = self._count, self._bytes
        if self._count < self._messages:
            print(
                "WARNING: Exiting before consuming the expected number of messages: timeout "
                f"({self._timeout_ms} ms) exceeded. You can use the --timeout option to increase "
                "the timeout."
            )

    def _print_progress(
        self, count_before: int, bytes_before: int, begun_ms: WallMs, wall_ms: WallMs
    ) -> None:
        elapsed_ms = wall_ms - begun_ms
        fetch_ms = elapsed_ms - self._join_ms_now
        megabytes = (self._bytes - bytes_before) / _MEGABYTE
        count = self._count - count_before
        print(
            f"{java_date(wall_ms, self._date_format)}, 0, {self._bytes / _MEGABYTE:.4f}, "
            f"{_per_second(megabytes, elapsed_ms)}, {self._count}, "
            f"{_per_second(count, elapsed_ms)}, {self._join_ms_now}, {fetch_ms}, "
            f"{_per_second(megabytes, fetch_ms)}, {_per_second(count, fetch_ms)}",
            flush=True,
        )

    def _print_total(self, begun_ms: WallMs, ended_ms: WallMs) -> None:
        elapsed_ms = ended_ms - begun_ms
        fetch_ms = elapsed_ms - self._join_ms
        megabytes = self._bytes / _MEGABYTE
        print(
            f"{java_date(begun_ms, self._date_format)}, {java_date(ended_ms, self._date_format)}, "
            f"{megabytes:.4f}, {_per_second(megabytes, elapsed_ms)}, {self._count}, "
            f"{_per_second(self._count, elapsed_ms)}, {self._join_ms}, {fetch_ms}, "
            f"{_per_second(megabytes, fetch_ms)}, {_per_second(self._count, fetch_ms)}"
        )


def _per_second(amount: float, elapsed_ms: int) -> str:
    if elapsed_ms:
        return f"{amount / (elapsed_ms / 1000):.4f}"
    return "Infinity" if amount else "NaN"
