"""`kafka-get-offsets`: prints offsets of partitions, by time.

Behaviour, flags and texts follow Kafka 3.9's `GetOffsetShell`.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Final

from odradek.cli.connect import ClientError, NoBrokerError, properties_of, with_cluster
from odradek.cli.failures import ToolError, java_text, message_of
from odradek.cli.kafka.clients.client_flags import check_addresses
from odradek.cli.kafka.support.flags import FlagError, Flags, Parser, UsageError
from odradek.cli.kafka.support.java import split
from odradek.cli.kafka.topics import matching_topics
from odradek.client.cluster import Cluster
from odradek.client.fetch import offsets
from odradek.model.errors import ApiError, OdradekError
from odradek.model.names import INTERNAL_TOPICS
from odradek.model.partition import TopicPartition

_TIMES: Final = {
    "latest": offsets.LATEST,
    "earliest": offsets.EARLIEST,
    "max-timestamp": offsets.MAX_TIMESTAMP,
    "earliest-local": offsets.EARLIEST_LOCAL,
    "latest-tiered": offsets.LATEST_TIERED,
}
_Filter = Callable[[TopicPartition], bool]


def main(arguments: Sequence[str]) -> int:
    parser = command_line()
    try:
        flags = parser.begin(arguments)
        servers = _servers(flags)
        check_addresses(parser, servers)
        properties = properties_of(flags.value("command-config"))
        return with_cluster(
            servers,
            properties,
            lambda cluster: _run(cluster, flags),
            client=("AdminClient", "GetOffsetShell"),
            call="listTopics",
        )
    except UsageError:
        raise
    except ClientError as error:
        print(f"Error occurred: {error}", file=sys.stderr)
    except (NoBrokerError, _RuleError) as error:
        print(f"Error occurred: {java_text(error)}", file=sys.stderr)
    except (OdradekError, OSError) as error:
        sys.stdout.flush()
        print(f"Error occurred: {message_of(error)}", file=sys.stderr)
        if isinstance(error, FlagError) and error.hint:
            print(error.hint, file=sys.stderr)
    return 1


def command_line() -> Parser:
    parser = Parser("An interactive shell for getting topic-partition offsets.")
    parser.value("bootstrap-server", metavar="host:port,...", help="Brokers to connect to.")
    parser.value("broker-list", metavar="host:port,...", help="Deprecated: --bootstrap-server.")
    parser.value(
        "topic-partitions",
        metavar="a:0,b:1-3,...",
        help="Topics by pattern, and partitions (without the end).",
    )
    parser.value("topic", metavar="pattern", help="Topics by regular expression.")
    parser.value("partitions", metavar="0,2,...", help="Partitions by number.")
    parser.value(
        "time", metavar="when",
        help="Milliseconds since 1970; or -1 latest, -2 earliest, -3 max-timestamp, "
        "-4 earliest-local, -5 latest-tiered. Default: latest.",
    )  # fmt: skip
    parser.value("command-config", metavar="file", help="Client properties, one key=value a line.")
    parser.flag("exclude-internal-topics", help="Without Kafka's own topics.")
    parser.common()
    return parser


def _servers(flags: Flags) -> str:
    servers = flags.value("bootstrap-server") or flags.value("broker-list")
    if servers is None:
        raise FlagError("Missing required option(s) [bootstrap-server]")
    return servers


async def _run(cluster: Cluster, flags: Flags) -> int:
    if flags.has("topic-partitions") and (flags.has("topic") or flags.has("partitions")):
        raise ToolError("--topic-partitions cannot be used with --topic or --partitions")
    spec = _time(flags.text("time", "latest"))
    wanted = await _wanted(cluster, flags)
    if not wanted:
        raise ToolError("Could not match any topic-partitions with the specified filters")
    found = await offsets.try_to_list_offsets(cluster, dict.fromkeys(wanted, spec))
    # Sorted by the whole name: a-10 comes before a-2.
    for partition in sorted(found, key=str):
        listed = found[partition]
        if isinstance(listed, ApiError):
            print(
                f"Skip getting offsets for topic-partition {partition} due to error: "
                f"{java_text(listed)}",
                file=sys.stderr,
            )
        elif listed.offset >= 0:
            print(f"{partition.topic}:{partition.partition}:{listed.offset}")
    return 0


async def _wanted(cluster: Cluster, flags: Flags) -> list[TopicPartition]:
    metadata = await cluster.refresh(None)
    hidden = INTERNAL_TOPICS if flags.has("exclude-internal-topics") else frozenset()
    everything = [
        TopicPartition(topic.name or "", p.partition_index)
        for topic in metadata.topics
        if topic.name not in hidden
        for p in topic.partitions
    ]
    if flags.has("topic-partitions"):
        rules = [_rule(text) for text in flags.text("topic-partitions").split(",")]
        return [p for p in everything if any(rule(p) for rule in rules)]
    topics, ranges = flags.value("topic"), flags.value("partitions")
    numbers = _numbers(ranges) if ranges is not None else None
    names = {p.topic for p in everything}
    if topics is not None:
        names = set(matching_topics(sorted(names), topics))
    return [
        p for p in everything if p.topic in names and (numbers is None or p.partition in numbers)
    ]


class _RuleError(ToolError):
    """The rule of --topic-partitions is invalid."""

    exception = "org.apache.kafka.tools.TerseException"


def _numbers(text: str) -> set[int] | None:
    parts = [part.strip() for part in split(text, ",")]
    if parts == [""]:
        return None
    if not all(part.isascii() and part.isdecimal() for part in parts):
        raise ToolError(
            "--partitions expects a comma separated list of numeric partition ids, "
            f"but received: {text}"
        )
    return set(map(int, parts))


def _rule(text: str) -> _Filter:
    """`topic`, `topic:1`, `topic:1-3`, `topic:-3`, `topic:1-`, `:1`."""
    topic, colon, numbers = text.partition(":")
    accept: _Filter = _range(numbers, text) if colon and numbers else _any
    return lambda p: (not topic or bool(matching_topics([p.topic], topic))) and accept(p)


def _any(_partition: TopicPartition) -> bool:
    return True


def _range(text: str, rule: str | None = None) -> _Filter:
    first, dash, end = text.partition("-")
    if not all(part == "" or (part.isascii() and part.isdecimal()) for part in (first, end)):
        raise _RuleError(f"Invalid rule specification: {rule or text}")
    if not dash and not first:
        return _any
    if not dash:
        return lambda p: p.partition == int(first)
    low, high = int(first or 0), int(end) if end else None
    return lambda p: p.partition >= low and (high is None or p.partition < high)


def _time(text: str) -> int:
    if text in _TIMES:
        return _TIMES[text]
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdecimal():
        return int(text)
    raise ToolError(
        f"Malformed time argument {text}. Please use -1 or latest / -2 or earliest / "
        "-3 or max-timestamp / -4 or earliest-local / -5 or latest-tiered, or a specified long "
        "format timestamp"
    )
