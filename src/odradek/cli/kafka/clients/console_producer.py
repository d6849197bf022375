"""`kafka-console-producer`: writes lines of standard input to a topic.

Flags, defaults and texts follow Kafka 3.9's `ConsoleProducer`. A refused record is reported on
stderr and does not end the tool, except with `--sync`, which awaits each record.
"""

import asyncio
import sys
from collections.abc import Sequence
from functools import partial
from typing import Final

from odradek.cli.connect import properties_of
from odradek.cli.failures import ToolError, log_line, show_log
from odradek.cli.kafka.clients.client_flags import (
    check_addresses,
    fail,
    in_java_words,
    merge,
    pairs,
    properties_from,
    usage_for_bad_flags,
)
from odradek.cli.kafka.clients.line_reader import LineReader, Parsed
from odradek.cli.kafka.support.flags import Flags, Parser
from odradek.client.cluster import BootstrapError, InvalidAddressError, UnresolvableError
from odradek.client.errors import ClientTimeoutError
from odradek.client.producer.batches import Delivery
from odradek.client.producer.producer import Producer
from odradek.client.producer.settings import ProducerSettings
from odradek.model.errors import OdradekError

_READERS: Final = (
    "kafka.tools.ConsoleProducer$LineMessageReader",
    "org.apache.kafka.tools.LineMessageReader",
)
_LOGGER: Final = "org.apache.kafka.clients.producer.internals.ErrorLoggingCallback"
_LINES_IN_A_ROW: Final = 200


class ClassNotFoundError(ToolError):
    """Java classes of the user cannot be loaded."""

    exception = "java.lang.ClassNotFoundException"


class ExecutionError(ToolError):
    """The failure of an awaited record (Java's `ExecutionException`)."""

    exception = "java.util.concurrent.ExecutionException"


def main(arguments: Sequence[str]) -> int:
    show_log()
    parser = command_line()
    with usage_for_bad_flags(parser):
        flags = parser.begin(arguments, empty="")
    if not flags.has("bootstrap-server") and not flags.has("broker-list"):
        parser.fail("Missing required option(s) [bootstrap-server]")
    if not flags.has("topic"):
        parser.fail('Missing required argument "[topic]"')
    servers = flags.text("bootstrap-server") or flags.text("broker-list")
    check_addresses(parser, servers)
    try:
        reader = _reader(flags)
        settings = ProducerSettings.from_properties(
            _properties(flags, servers), client_id="console-producer"
        )
        return asyncio.run(_produce(settings, flags, reader))
    except (OdradekError, ConnectionError) as error:
        return fail(error)


def command_line() -> Parser:
    parser = Parser("This tool helps to read data from standard input and publish it to Kafka.")
    parser.common()
    parser.value("topic", metavar="topic", help="The topic to write to. Required.")
    parser.value("bootstrap-server", metavar="host:port,...", help="Brokers to connect to.")
    parser.value("broker-list", metavar="host:port,...", help="As --bootstrap-server (deprecated).")
    parser.flag("sync", help="Send a record only after the previous one is acknowledged.")
    parser.optional(
        "compression-codec",
        metavar="codec",
        help="none, gzip, snappy, lz4 or zstd; without a value gzip.",
    )
    for name, what in (
        ("batch-size", "Bytes of a batch, unless max-partition-memory-bytes is given (16384)."),
        ("message-send-max-retries", "Retries of a record (3)."),
        ("retry-backoff-ms", "The wait before a retry, in ms (100)."),
        ("timeout", "How long a batch waits for more records, in ms (1000)."),
        ("request-required-acks", "Acknowledging replicas: 0, 1 or -1 for the ISR (-1)."),
        ("request-timeout-ms", "The timeout of a request, in ms (1500)."),
        ("metadata-expiry-ms", "The maximal age of metadata, in ms (300000)."),
        ("max-block-ms", "The longest wait for metadata or memory, in ms (60000)."),
        ("max-memory-bytes", "Memory for records that are not sent yet (33554432)."),
        ("max-partition-memory-bytes", "Bytes of a batch (16384)."),
        ("socket-buffer-size", "Accepted, without effect."),
    ):
        parser.value(name, metavar="number", help=what)
    parser.value(
        "line-reader", metavar="class", help="Only Kafka's LineMessageReader is supported."
    )
    parser.value(
        "property",
        metavar="key=value",
        help="How lines are parsed: parse.key, key.separator (tab), parse.headers, "
        "headers.delimiter (tab), headers.separator (,), headers.key.separator (:), "
        "null.marker, ignore.error.",
    )
    parser.value("reader-config", metavar="file", help="The properties in a file.")
    parser.value("producer-property", metavar="key=value", help="A property of the producer.")
    parser.value(
        "producer.config", "command-config", metavar="file", help="The properties in a file."
    )
    return parser


def _reader(flags: Flags) -> LineReader:
    name = flags.text("line-reader", _READERS[0])
    if name not in _READERS:
        raise ClassNotFoundError(name)
    properties = properties_of(flags.value("reader-config"))
    return LineReader({**properties, **pairs(flags.values("property"))})


def _properties(flags: Flags, servers: str) -> dict[str, str]:
    properties = properties_from(flags, "producer.config", "producer-property")
    properties["bootstrap.servers"] = servers
    codec = "none"
    if flags.has("compression-codec"):
        codec = flags.value("compression-codec") or "gzip"
    properties["compression.type"] = codec
    for flag, into, default, bits in (
        ("timeout", "linger.ms", "1000", 64),
        ("request-timeout-ms", "request.timeout.ms", "1500", 32),
        ("message-send-max-retries", "retries", "3", 32),
        ("retry-backoff-ms", "retry.backoff.ms", "100", 64),
        ("max-memory-bytes", "buffer.memory", "33554432", 64),
        ("batch-size", "batch.size", "16384", 32),
        ("max-partition-memory-bytes", "batch.size", None, 32),
        ("metadata-expiry-ms", "metadata.max.age.ms", "300000", 64),
        ("max-block-ms", "max.block.ms", "60000", 64),
        ("socket-buffer-size", "send.buffer.bytes", "102400", 32),
    ):
        flags.integer(flag, bits=bits)
        merge(properties, flags, flag=flag, into=into, default=default)
    merge(properties, flags, flag="request-required-acks", into="acks", default="-1")
    return properties


async def _produce(settings: ProducerSettings, flags: Flags, reader: LineReader) -> int:
    topic = flags.text("topic")
    try:
        producer = await Producer.open(settings, wait_ms=settings.block_ms_max)
    except (InvalidAddressError, UnresolvableError):
        raise
    except BootstrapError:
        _complain_of_all(topic, reader, settings.block_ms_max)
        return 0
    try:
        await _send_lines(producer, topic, reader, one_by_one=flags.has("sync"))
    finally:
        await producer.close()
    return 0


async def _send_lines(
    producer: Producer, topic: str, reader: LineReader, *, one_by_one: bool
) -> None:
    prompts = sys.stdin.isatty()
    loop = asyncio.get_running_loop()
    while True:
        if prompts:
            print(">", end="", flush=True)
        # In a thread, because a read from a terminal may block for long.
        lines = await loop.run_in_executor(None, _read_lines, 1 if prompts else _LINES_IN_A_ROW)
        if not lines:
            return
        for line in lines:
            parsed = reader.parse(line)
            try:
                delivery = await producer.send(
                    topic, parsed.value, key=parsed.key, headers=parsed.headers
                )
                if one_by_one:
                    await delivery
            except (OdradekError, ConnectionError) as error:
                if one_by_one:
                    words = in_java_words(error)
                    raise ExecutionError(f"{words}\nCaused by: {words}") from None
                _complain(topic, parsed, error)
            else:
                delivery.when_done(partial(_arrived, topic, parsed))


def _complain_of_all(topic: str, reader: LineReader, waited_ms: int) -> None:
    """Report each line as failed: no broker has answered within max.block.ms."""
    error = ClientTimeoutError(f"Topic {topic} not present in metadata after {waited_ms} ms.")
    while lines := _read_lines(_LINES_IN_A_ROW):
        for line in lines:
            _complain(topic, reader.parse(line), error)


def _read_lines(count: int) -> list[str]:
    lines = []
    # A text stream that replaces stdin may have no `buffer`.
    for raw in getattr(sys.stdin, "buffer", sys.stdin):
        text = raw if isinstance(raw, str) else raw.decode("utf-8", "surrogateescape")
        lines.append(text.removesuffix("\n").removesuffix("\r"))
        if len(lines) == count:
            break
    return lines


def _arrived(topic: str, parsed: Parsed, delivery: Delivery) -> None:
    if delivery.error is not None:
        _complain(topic, parsed, delivery.error)


def _complain(topic: str, parsed: Parsed, error: BaseException) -> None:
    key = "null" if parsed.key is None else f"{len(parsed.key)} bytes"
    value = "null" if parsed.value is None else f"{len(parsed.value)} bytes"
    what = (
        f"Error when sending message to topic {topic} with key: {key}, value: {value} with error:"
    )
    print(log_line("ERROR", what, _LOGGER), file=sys.stderr)
    print(in_java_words(error), file=sys.stderr)
