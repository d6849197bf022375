"""`kafka-verifiable-producer`: writes increasing numbers to a topic, and logs each outcome as JSON.

Arguments and events follow Kafka 3.9's `VerifiableProducer`.
"""

import asyncio
import sys
import time
from collections.abc import Sequence
from functools import partial

from odradek.cli.connect import properties_of
from odradek.cli.failures import NoSuchFileError, show_log
from odradek.cli.kafka.clients.client_flags import in_java_words, uncaught
from odradek.cli.kafka.clients.throttle import Throttle
from odradek.cli.kafka.clients.verifiable import add_connection, emit
from odradek.cli.kafka.support.arguments import CommandLine, Namespace, integer, long
from odradek.cli.signals import Stopping
from odradek.client.producer.batches import Delivery
from odradek.client.producer.producer import Producer
from odradek.client.producer.settings import ProducerSettings
from odradek.model.errors import OdradekError


def main(arguments: Sequence[str]) -> int:
    show_log()
    parser = command_line()
    if not arguments:
        parser.print_help()
        return 0
    chosen = parser.read(arguments)
    try:
        properties = properties_of(chosen.producer_config)
        # The command line overrides the file; no retries, so that no number is written twice.
        properties |= {
            "bootstrap.servers": chosen.bootstrap_server or chosen.broker_list,
            "acks": str(chosen.acks),
            "retries": "0",
        }
        settings = ProducerSettings.from_properties(properties)
        return asyncio.run(_produce(settings, chosen))
    except NoSuchFileError as error:
        print(f"verifiable-producer: error: {error}", file=sys.stderr)
        return 1
    except (OdradekError, ConnectionError) as error:
        return uncaught(error, "producer")


def command_line() -> CommandLine:
    parser = CommandLine(
        "verifiable-producer",
        "Writes increasing numbers to a topic, and logs each outcome as JSON.",
    )
    add = parser.value
    add("topic", required=True, metavar="TOPIC", help="the topic to write to")
    add("max-messages", read=integer, default=-1, metavar="MAX-MESSAGES", help="-1: unlimited")
    add(
        "throughput",
        read=integer,
        default=-1,
        metavar="THROUGHPUT",
        help="records a second at most",
    )
    add(
        "acks",
        read=integer,
        default=-1,
        choices=(0, 1, -1),
        metavar="{0,1,-1}",
        help="acknowledging replicas",
    )
    add("producer.config", "command-config", metavar="CONFIG_FILE", help="properties")
    add(
        "message-create-time",
        read=long,
        default=-1,
        metavar="CREATETIME",
        help="the first record's timestamp; later ones have the elapsed time added",
    )
    add(
        "value-prefix",
        read=integer,
        metavar="VALUE-PREFIX",
        help="a prefix of each value, followed by a dot",
    )
    add(
        "repeating-keys",
        read=integer,
        metavar="REPEATING-KEYS",
        help="the number of different keys",
    )
    add_connection(parser)
    return parser


class _Run:
    """The counters of one run."""

    def __init__(self, chosen: Namespace) -> None:
        self.topic: str = chosen.topic
        self.sent = self.acked = 0
        self.stopped = False
        self._chosen = chosen
        self._begun_s = time.monotonic()

    def stop(self) -> None:
        self.stopped = True

    def key(self, number: int) -> str | None:
        keys = self._chosen.repeating_keys
        return None if keys is None else str(number % keys)

    def value(self, number: int) -> str:
        prefix = self._chosen.value_prefix
        return str(number) if prefix is None else f"{prefix}.{number}"

    def timestamp(self) -> int | None:
        first: int = self._chosen.message_create_time
        if first < 0:
            return None
        return first + int((time.monotonic() - self._begun_s) * 1000)

    def arrived(self, key: str | None, value: str, delivery: Delivery) -> None:
        if delivery.error is not None:
            self.failed(key, value, delivery.error)
            return
        self.acked += 1
        at = delivery.result()
        emit(
            "producer_send_success",
            key=key,
            value=value,
            offset=at.offset,
            topic=self.topic,
            partition=at.partition.partition,
        )

    def failed(self, key: str | None, value: str, error: BaseException) -> None:
        exception, _, message = in_java_words(error).partition(": ")
        emit(
            "producer_send_error",
            topic=self.topic,
            key=key,
            value=value,
            exception=f"class {exception}",
            message=message,
        )


async def _produce(settings: ProducerSettings, chosen: Namespace) -> int:
    run = _Run(chosen)
    producer = await Producer.open(settings, wait_ms=settings.block_ms_max)
    stopping = Stopping(run.stop)
    begun_s = time.monotonic()
    throttle = Throttle(chosen.throughput, begun_s)
    emit("startup_complete")
    try:
        while not run.stopped and run.sent != chosen.max_messages:
            number = run.sent
            run.sent += 1
            key, value = run.key(number), run.value(number)
            try:
                delivery = await producer.send(
                    run.topic,
                    value.encode(),
                    key=None if key is None else key.encode(),
                    timestamp=run.timestamp(),
                )
            except OdradekError as error:
                run.failed(key, value, error)
            else:
                delivery.when_done(partial(run.arrived, key, value))
            now_s = time.monotonic()
            if throttle.is_ahead(run.sent, now_s):
                await throttle.wait(run.sent, now_s)
            else:
                await asyncio.sleep(0)
    finally:
        await producer.close()
    emit("shutdown_complete")
    elapsed_s = max(time.monotonic() - begun_s, 1e-9)
    emit(
        "tool_data",
        sent=run.sent,
        acked=run.acked,
        target_throughput=chosen.throughput,
        avg_throughput=run.acked / elapsed_s,
    )
    return stopping.code
