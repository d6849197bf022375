"""`kafka-console-consumer`: prints the records of a topic.

Flags, texts and exit codes follow Kafka 3.9's `ConsoleConsumer`: a timeout, a topic that cannot be
read and an unreachable cluster end the tool with exit code 0 and a line on stderr; invalid
settings, a formatter's failure and refused credentials end it with exit code 1.
"""

import asyncio
import contextlib
import os
import random
import sys
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from odradek.cli.connect import ClientError, properties_of
from odradek.cli.failures import (
    IllegalArgumentError,
    NoSuchFileError,
    ToolError,
    java_text,
    log_line,
    show_log,
)
from odradek.cli.kafka.clients.client_flags import (
    in_java_words,
    pairs,
    properties_from,
    write_bytes,
)
from odradek.cli.kafka.clients.formatters import Default, Formatter, NoOp, is_deserializer
from odradek.cli.kafka.support.flags import FlagError, Flags, Parser
from odradek.cli.kafka.support.java import hash_order, string_hash
from odradek.cli.signals import Stopping
from odradek.client.cluster import BootstrapError, InvalidAddressError, UnresolvableError
from odradek.client.consumer.consumer import Consumer
from odradek.client.consumer.fetched import ConsumerRecord
from odradek.client.consumer.settings import ConsumerSettings
from odradek.client.errors import ClientTimeoutError, WakeUpError
from odradek.client.security.protocol import AuthenticationError
from odradek.client.settings import SettingsError
from odradek.config.option import InvalidConfigError
from odradek.model.errors import OdradekError
from odradek.model.java_pattern import JavaPatternError, compile_java_pattern
from odradek.model.partition import TopicPartition

_LOGGER: Final = "org.apache.kafka.tools.consumer.ConsoleConsumer"
_FORMATTER_LOGGER: Final = "org.apache.kafka.tools.consumer.DefaultMessageFormatter"
_NEW: Final = "org.apache.kafka.tools.consumer."
_RENAMED: Final[Mapping[str, str]] = {
    "kafka.tools.DefaultMessageFormatter": "DefaultMessageFormatter",
    "kafka.tools.LoggingMessageFormatter": "LoggingMessageFormatter",
    "kafka.tools.NoOpMessageFormatter": "NoOpMessageFormatter",
    "kafka.coordinator.group.GroupMetadataManager$OffsetsMessageFormatter": (
        "OffsetsMessageFormatter"
    ),
    "kafka.coordinator.group.GroupMetadataManager$GroupMetadataMessageFormatter": (
        "GroupMetadataMessageFormatter"
    ),
    "kafka.coordinator.transaction.TransactionLog$TransactionLogMessageFormatter": (
        "TransactionLogMessageFormatter"
    ),
}
_WHITELIST: Final = (
    "--whitelist is DEPRECATED use --include instead; ignored if --include specified."
)
_FOREVER_MS: Final = 30_000
_GROUP_NUMBERS: Final = 100_000


class PatternError(ToolError):
    """The text is not a regular expression (Java's `PatternSyntaxException`)."""

    exception = "java.util.regex.PatternSyntaxException"


class Plan(NamedTuple):
    """What to read, from where, and how to print it."""

    topic: str | None
    pattern: str | None
    partition: int | None
    offset: int  # or a timestamp constant of ListOffsets: -1, -2
    messages_max: int  # -1: unlimited
    timeout_ms: int | None
    skips_errors: bool
    tells_events: bool


def main(arguments: Sequence[str]) -> int:
    show_log()
    parser = command_line()
    flags = parser.begin(arguments)
    try:
        # In the order in which ConsoleConsumerOptions checks them.
        partition = _check_together(parser, flags)
        properties = _properties(parser, flags)
        plan = _plan(parser, flags, partition)
    except _BothError as error:
        print(error, file=sys.stderr)
        return 1
    except (FlagError, NoSuchFileError) as error:
        print(f'Exception in thread "main" {java_text(error)}', file=sys.stderr)
        return 1
    formatter = _formatter(parser, flags)
    try:
        plan = plan._replace(messages_max=_messages_max(flags))
        settings = ConsumerSettings.from_properties(properties, client_id="console-consumer")
        return asyncio.run(_consume(settings, plan, formatter))
    except (OdradekError, ConnectionError) as error:
        text = "Authentication failed: terminating consumer process"
        if not isinstance(error, AuthenticationError):
            text = "Unknown error when running consumer: "
        sys.stdout.flush()
        print(log_line("ERROR", text, _LOGGER), file=sys.stderr)
        print(java_text(error) if isinstance(error, FlagError) else in_java_words(error),
              file=sys.stderr)  # fmt: skip
        return 1


def _messages_max(flags: Flags) -> int:
    try:
        messages = flags.integer("max-messages")
    except FlagError:
        print("Processed a total of 0 messages", file=sys.stderr)
        raise
    return -1 if messages is None else messages


def _no_consumer(error: OdradekError) -> ClientError:
    why = in_java_words(error)
    return ClientError(f"Failed to construct kafka consumer\nCaused by: {why}")


def command_line() -> Parser:
    parser = Parser(
        "This tool helps to read data from Kafka topics and outputs it to standard output."
    )
    parser.common()
    parser.value("bootstrap-server", metavar="host:port,...", help="Brokers to connect to.")
    parser.value("topic", metavar="topic", help="The topic to read.")
    parser.value("include", metavar="regex", help="Read all topics whose names match.")
    parser.value("whitelist", metavar="regex", help="As --include (deprecated).")
    parser.value("partition", metavar="number", help="Read only this partition.")
    parser.value("offset", metavar="offset", help="Start there: a number, earliest or latest.")
    parser.flag("from-beginning", help="Start at the first record, not at the end.")
    parser.value("group", metavar="group", help="Read as a member of this group.")
    parser.value("max-messages", metavar="count", help="End after this number of records.")
    parser.value("timeout-ms", metavar="ms", help="End when no record arrives for this time.")
    parser.value("isolation-level", metavar="level", help="read_committed or read_uncommitted.")
    parser.value("formatter", metavar="class", help="One of Kafka's formatters, by its Java name.")
    parser.value(
        "property",
        metavar="key=value",
        help="What to print: print.timestamp, print.partition, print.offset, print.headers, "
        "print.key, print.value, key.separator, line.separator, headers.separator, null.literal, "
        "key.deserializer, value.deserializer, headers.deserializer.",
    )
    parser.value("formatter-config", metavar="file", help="The properties in a file.")
    parser.value("key-deserializer", metavar="class", help="The deserializer of keys.")
    parser.value("value-deserializer", metavar="class", help="The deserializer of values.")
    parser.value("consumer-property", metavar="key=value", help="A property of the consumer.")
    parser.value(
        "consumer.config", "command-config", metavar="file", help="The properties in a file."
    )
    parser.flag("skip-message-on-error", help="Continue after a record that cannot be formatted.")
    parser.flag("enable-systest-events", help="Print an event on stdout at the end.")
    return parser


def _check_together(parser: Parser, flags: Flags) -> int | None:
    """Check that options go together. Returns the partition, or None."""
    pattern = flags.has("include") or flags.has("whitelist")
    if flags.has("topic") == pattern:
        parser.fail(
            "Exactly one of --include/--topic is required. "
            + (_WHITELIST if flags.has("whitelist") else "")
        )
    partition = flags.integer("partition")
    if partition is not None:
        if pattern:
            parser.fail("The topic is required when partition is specified.")
        if flags.has("from-beginning") and flags.has("offset"):
            parser.fail("Options from-beginning and offset cannot be specified together.")
    elif flags.has("offset"):
        parser.fail("The partition is required when offset is specified.")
    parser.require(flags, "bootstrap-server")
    return partition


def _plan(parser: Parser, flags: Flags, partition: int | None) -> Plan:
    offset = _offset(parser, flags)
    timeout_ms = flags.integer("timeout-ms", bits=64)
    return Plan(
        topic=flags.value("topic"),
        pattern=flags.value("include") if flags.has("include") else flags.value("whitelist"),
        partition=partition,
        offset=offset,
        messages_max=-1,  # checked last
        timeout_ms=None if timeout_ms is None or timeout_ms < 0 else timeout_ms,
        skips_errors=flags.has("skip-message-on-error"),
        tells_events=flags.has("enable-systest-events"),
    )


_EARLIEST: Final = -2
_LATEST: Final = -1


def _offset(parser: Parser, flags: Flags) -> int:
    if not flags.has("offset"):
        return _EARLIEST if flags.has("from-beginning") else _LATEST
    text = flags.text("offset")
    special = {"earliest": _EARLIEST, "latest": _LATEST}.get(text.lower())
    if special is not None:
        return special
    if not (text.isascii() and text.isdecimal() and int(text) < 1 << 63):
        parser.fail(
            f"The provided offset value '{text}' is incorrect. Valid values are 'earliest', "
            "'latest', or a non-negative long."
        )
    return int(text)


def _formatter(parser: Parser, flags: Flags) -> Formatter:
    name = flags.text("formatter", f"{_NEW}DefaultMessageFormatter")
    properties = properties_of(flags.value("formatter-config"))
    properties |= pairs(flags.values("property"))
    for flag, into in (
        ("key-deserializer", "key.deserializer"),
        ("value-deserializer", "value.deserializer"),
    ):
        if flags.text(flag):
            properties[into] = flags.text(flag)
    if name in _RENAMED:
        print(
            f"WARNING: {name} is deprecated and will be removed in the next major release. "
            f"Please use {_NEW}{_RENAMED[name]} instead",
            file=sys.stderr,
        )
    match _RENAMED.get(name, name.removeprefix(_NEW)):
        case "DefaultMessageFormatter" | "LoggingMessageFormatter":
            _warn_of_deserializers(properties)
            return Default(properties)
        case "NoOpMessageFormatter":
            return NoOp()
    from odradek.cli.kafka.clients.formatters_internal import internal  # noqa: PLC0415  for internal topics only

    found = internal(name)
    if found is None:
        parser.fail(name)
    return found


def _warn_of_deserializers(properties: Mapping[str, str]) -> None:
    for option in ("key.deserializer", "value.deserializer", "headers.deserializer"):
        name = properties.get(option)
        if name is not None and not is_deserializer(name):
            what = f"Unable to instantiate a deserializer from {name}"
            print(log_line("ERROR", what, _FORMATTER_LOGGER), file=sys.stderr)
            print(f"java.lang.ClassNotFoundException: {name}", file=sys.stderr)


class _BothError(OdradekError):
    """--from-beginning and auto.offset.reset contradict each other."""


def _properties(parser: Parser, flags: Flags) -> dict[str, str]:
    from_file = properties_of(flags.value("consumer.config"))
    words = pairs(flags.values("consumer-property"))
    properties = properties_from(flags, "consumer.config", "consumer-property")
    groups = {
        group
        for group in (flags.value("group"), words.get("group.id"), from_file.get("group.id"))
        if group is not None
    }
    if len(groups) > 1:
        parser.fail(
            "The group ids provided in different places (directly using '--group', via "
            "'--consumer-property', or via '--consumer.config') do not match. Detected group ids: "
            + ", ".join(f"'{group}'" for group in hash_order(sorted(groups), string_hash))
        )
    if groups and flags.has("partition"):
        parser.fail("Options group and partition cannot be specified together.")
    if groups:
        properties["group.id"] = groups.pop()
    else:
        properties["group.id"] = f"console-consumer-{random.randrange(_GROUP_NUMBERS)}"
        # The committed offsets of a generated group id are never read.
        properties.setdefault("enable.auto.commit", "false")
    reset = properties.get("auto.offset.reset")
    if reset is None:
        reset = "earliest" if flags.has("from-beginning") else "latest"
    elif flags.has("from-beginning") and reset != "earliest":
        raise _BothError(
            f"Can't simultaneously specify --from-beginning and 'auto.offset.reset={reset}', "
            "please remove one option"
        )
    properties["auto.offset.reset"] = reset
    properties["bootstrap.servers"] = flags.text("bootstrap-server")
    if flags.has("isolation-level") or "isolation.level" not in properties:
        properties["isolation.level"] = flags.text("isolation-level", "read_uncommitted")
    return properties


# ----------------------------------------------------------------------------------- reading


async def _consume(settings: ConsumerSettings, plan: Plan, formatter: Formatter) -> int:
    wait_ms = settings.client.api_timeout_ms if plan.timeout_ms is None else plan.timeout_ms
    try:
        consumer = await Consumer.open(settings, wait_ms=wait_ms)
    except (InvalidAddressError, UnresolvableError, SettingsError) as error:
        raise _no_consumer(error) from None
    except BootstrapError:
        if plan.timeout_ms is None:
            raise
        # The timeout has passed, because no broker has answered.
        _tell_end("org.apache.kafka.common.errors.TimeoutException")
        print("Processed a total of 0 messages", file=sys.stderr)
        return 0
    stopping = Stopping(consumer.wake_up)
    reading = _Reading(consumer, plan, formatter)
    try:
        _begin(consumer, plan)
    except OdradekError:
        await consumer.close()
        raise
    try:
        await reading.run()
    finally:
        _flush()
        await consumer.close()
        print(f"Processed a total of {reading.count} messages", file=sys.stderr)
    if plan.tells_events:
        print("shutdown_complete", flush=True)
    return stopping.code


def _begin(consumer: Consumer, plan: Plan) -> None:
    if plan.pattern is not None:
        if not plan.pattern:
            raise IllegalArgumentError("Topic pattern to subscribe to cannot be empty")

        try:
            consumer.subscribe_pattern(
                compile_java_pattern(plan.pattern.strip().replace(",", "|").replace(" ", ""))
            )
        except JavaPatternError as error:
            near = " " * (error.pos or 0)
            raise PatternError(
                f"{error.msg} near index {error.pos}\n{plan.pattern}\n{near}^"
            ) from None
        return
    assert plan.topic is not None
    if not plan.topic.strip():
        raise IllegalArgumentError(
            "Topic collection to subscribe to cannot contain null or empty topic"
            if plan.partition is None
            else "Topic partitions to assign to cannot have null or empty topic"
        )
    if plan.partition is None:
        consumer.subscribe([plan.topic])
        return
    partition = TopicPartition(plan.topic, plan.partition)
    consumer.assign([partition])
    if plan.offset >= 0:
        consumer.seek(partition, plan.offset)
    elif plan.offset == _EARLIEST:
        consumer.seek_to_beginning([partition])
    else:
        consumer.seek_to_end([partition])


def _tell_end(why: str) -> None:
    what = "Error processing message, terminating consumer process: "
    print(log_line("ERROR", what, _LOGGER), file=sys.stderr)
    print(why, file=sys.stderr)


class _Reading:
    """Prints records until --max-messages, --timeout-ms or a signal."""

    def __init__(self, consumer: Consumer, plan: Plan, formatter: Formatter) -> None:
        self.count = 0
        self._consumer = consumer
        self._plan = plan
        self._formatter = formatter

    async def run(self) -> None:
        """Read and print records until the end.

        Raises:
            ToolError: a record cannot be formatted.
        """
        while self.count != self._plan.messages_max:
            try:
                records = await self._receive()
            except WakeUpError:
                return
            except (SettingsError, InvalidConfigError, AuthenticationError):
                raise
            except (OdradekError, ConnectionError) as error:
                _flush()
                # Java's exception for a time-out has no message here.
                _tell_end(in_java_words(error).removesuffix(": "))
                return
            if not self._show(records) or not _flush():
                return

    def _show(self, records: Sequence[ConsumerRecord]) -> bool:
        """Print records. Returns False if the limit is reached or stdout is closed."""
        for at, record in enumerate(records):
            if self.count == self._plan.messages_max:
                self._give_back(records[at:])
                return False
            self.count += 1
            try:
                shown = self._formatter.show(record)
            except ToolError as error:
                if not self._plan.skips_errors:
                    self._give_back(records[at + 1 :])
                    raise
                what = "Error processing message, skipping this message: "
                print(log_line("ERROR", what, _LOGGER), file=sys.stderr)
                print(in_java_words(error), file=sys.stderr)
                continue
            if shown and not _write(shown):
                self._give_back(records[at + 1 :])
                return False
        return True

    async def _receive(self) -> list[ConsumerRecord]:
        timeout_ms = self._plan.timeout_ms
        while True:
            records = await self._consumer.poll(_FOREVER_MS if timeout_ms is None else timeout_ms)
            if records:
                return records
            if timeout_ms is not None:
                raise ClientTimeoutError

    def _give_back(self, records: Sequence[ConsumerRecord]) -> None:
        """Seek back to the first record not printed, so that it is not committed."""
        first: dict[TopicPartition, int] = {}
        for record in records:
            first.setdefault(TopicPartition(record.topic, record.partition), record.offset)
        for partition, offset in first.items():
            self._consumer.seek(partition, offset)


def _write(data: bytes) -> bool:
    """Write to stdout. Returns False if its reader has closed it."""
    try:
        write_bytes(data)
    except BrokenPipeError:
        return _closed()
    return True


def _flush() -> bool:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return _closed()
    return True


def _closed() -> bool:
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    print("Unable to write to standard out, closing consumer.", file=sys.stderr)
    return False
