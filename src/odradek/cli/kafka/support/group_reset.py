"""`kafka-consumer-groups --reset-offsets`: computes, limits and prints the new offsets.

The scenarios and messages are those of Kafka 3.9.
"""

import csv
import io
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import odradek.client.admin.topics as admin
from odradek.cli.failures import (
    DurationError,
    IllegalArgumentError,
    NumberFormatError,
    ParseError,
    ToolError,
    log_line,
    to_int,
)
from odradek.cli.kafka.support.flags import Flags, Parser, to_integer
from odradek.cli.kafka.support.java import hash_order, partition_hash, split, string_hash
from odradek.cli.kafka.support.json_files import read_text
from odradek.client.admin.groups import commit_offsets, committed_offsets, describe_group
from odradek.client.admin.offset_reset import (
    RESETTABLE,
    NoCommittedOffsetError,
    Offsets,
    Scenario,
    ShiftBy,
    ToCurrent,
    ToEarliest,
    ToLatest,
    ToOffsets,
    ToTime,
    duration_ms,
    new_offsets,
)
from odradek.client.cluster import Cluster
from odradek.model.clock import WallMs
from odradek.model.errors import ApiError, ErrorCode
from odradek.model.partition import TopicPartition
from odradek.model.printable import printable

SCENARIOS: Final = (
    "to-offset", "to-current", "to-datetime", "from-file", "by-duration", "to-earliest",
    "to-latest", "shift-by",
)  # fmt: skip
_LOGGER: Final = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"

# Java's admin client reports this without a request.
_NO_NAME: Final = "The given topic name '' cannot be represented in a request."


async def reset_offsets(
    cluster: Cluster, groups: Iterable[str], parser: Parser, flags: Flags
) -> dict[str, Offsets]:
    """The offsets of each group after the reset; without --execute nothing is changed.

    Raises:
        IllegalArgumentError, UsageError: the options are invalid.
        ApiError: a broker refuses a request.
    """
    reset: dict[str, Offsets] = {}
    for group_id in hash_order(groups, string_hash):
        state = (await describe_group(cluster, group_id)).state
        if state not in RESETTABLE:
            print(
                f"\nError: Assignments can only be reset if the group '{printable(group_id)}' is "
                f"inactive, but the current state is {state}."
            )
            reset[group_id] = {}
            continue
        partitions = await _partitions(cluster, group_id, parser, flags)
        offsets = await _prepare(cluster, group_id, partitions, parser, flags)
        if flags.has("execute") and not flags.has("dry-run"):
            await _commit(cluster, group_id, offsets)
        reset[group_id] = offsets
    return reset


async def _commit(cluster: Cluster, group_id: str, offsets: Offsets) -> None:
    outcomes = await commit_offsets(cluster, group_id, offsets)
    failed = {p: error for p, error in outcomes.items() if error is not None}
    if not failed:
        return
    done = sorted(outcomes.keys() - failed.keys())
    if done:
        print(f"Reset before the failure: {', '.join(map(str, done))}", file=sys.stderr)
    raise next(iter(failed.values()))


# ---------------------------------------------------------------------------------- which


async def _partitions(
    cluster: Cluster, group_id: str, parser: Parser, flags: Flags
) -> list[TopicPartition]:
    if flags.has("all-topics"):
        return list(await committed_offsets(cluster, group_id))
    if flags.has("topic"):
        return await parse_topics(cluster, flags.values("topic"))
    if not flags.has("from-file"):
        parser.fail("One of the reset scopes should be defined: --all-topics, --topic.")
    return []


async def parse_topics(cluster: Cluster, topics: Iterable[str]) -> list[TopicPartition]:
    """The partitions of `topic`, or of `topic:0,1`.

    Raises:
        ApiError: the topic does not exist.
        ToolError: a partition is not a number.
    """
    return [partition for text in topics for partition in await partitions_of(cluster, text)]


async def partitions_of(cluster: Cluster, text: str) -> list[TopicPartition]:
    """The partitions of one `topic` or `topic:0,1`.

    Raises:
        ApiError: the topic does not exist.
        ArgumentError: the words after the colon are not numbers.
    """
    topic, colon, numbers = text.partition(":")
    if colon:
        if not numbers or ":" in numbers:
            raise ArgumentError(f"Invalid topic arg '{text}', expected topic name and partitions")
        return [TopicPartition(topic, _number(number, text)) for number in split(numbers, ",")]
    if not topic:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, _NO_NAME)
    try:
        (described,) = await admin.describe_topics(cluster, [topic])
    except ApiError as error:
        raise ApiError(error.code) from None  # with the message of the code, as in Java
    return [TopicPartition(topic, p.partition_index) for p in described.partitions]


class ArgumentError(IllegalArgumentError):
    """A part of an argument is invalid."""


def _number(number: str, text: str) -> int:
    try:
        return to_int(number)
    except NumberFormatError:
        raise ArgumentError(
            f"Invalid partition '{number}' specified in topic arg '{text}''"
        ) from None


# ------------------------------------------------------------------------------ to where


async def _prepare(
    cluster: Cluster,
    group_id: str,
    partitions: Sequence[TopicPartition],
    parser: Parser,
    flags: Flags,
) -> Offsets:
    scenario = scenario_of(group_id, partitions, parser, flags)
    try:
        new = await new_offsets(cluster, group_id, partitions, scenario)
    except NoCommittedOffsetError as error:
        raise IllegalArgumentError(str(error)) from None
    for topic, index in hash_order(new.without_record, partition_hash):
        print(
            f"\nWarn: Partition {index} from topic {topic} is empty. "
            "Falling back to latest known offset."
        )
    for partition in hash_order(new.limited, partition_hash):
        _warn(partition, new.limited[partition], new.offsets[partition])
    return new.offsets


def scenario_of(
    group_id: str, partitions: Sequence[TopicPartition], parser: Parser, flags: Flags
) -> Scenario:
    """The reset that the flags ask for."""
    if flags.has("to-earliest"):
        return ToEarliest()
    if flags.has("to-latest"):
        return ToLatest()
    if flags.has("to-datetime"):
        return ToTime(WallMs(_datetime_ms(flags.text("to-datetime"))))
    if flags.has("by-duration"):
        return ToTime(WallMs(_ago_ms(flags.text("by-duration"))))
    if flags.has("to-current"):
        return ToCurrent()
    return _exact(group_id, partitions, parser, flags)


def _exact(
    group_id: str, partitions: Sequence[TopicPartition], parser: Parser, flags: Flags
) -> Scenario:
    """The scenarios whose offsets may be out of bounds."""
    if (offset := flags.integer("to-offset", bits=64)) is not None:
        return ToOffsets(dict.fromkeys(partitions, offset))
    if (by := flags.integer("shift-by", bits=64)) is not None:
        return ShiftBy(by)
    if not flags.has("from-file"):
        names = ", ".join(f"[{name}]" for name in SCENARIOS)
        parser.fail(f"Option '[reset-offsets]' requires one of the following scenarios: [{names}]")
    return ToOffsets(_planned(group_id, flags))


def _planned(group_id: str, flags: Flags) -> Offsets:
    path = flags.text("from-file")
    alone = len(flags.values("group")) == 1
    plan = read_csv(path, group=group_id if alone else None)
    if group_id not in plan:
        print(f"\nError: No reset plan for group {printable(group_id)} found")
    return plan.get(group_id, {})


def _warn(partition: TopicPartition, wanted: int, value: int) -> None:
    how = "higher than latest" if wanted > value else "lower than earliest"
    text = (
        f"New offset ({wanted}) is {how} offset for topic partition {partition}. "
        f"Value will be set to {value}"
    )
    print(log_line("WARN", text, _LOGGER), file=sys.stderr)


def _datetime_ms(text: str) -> int:
    from datetime import datetime  # noqa: PLC0415 - one scenario of eight

    _, letter, clock = text.partition("T")
    if not letter:
        raise ParseError(
            "Error parsing timestamp. It does not contain a 'T' according to ISO8601 format"
        )
    # A time without a zone is in UTC.
    full = text if any(sign in clock for sign in "+-Z") else f"{text}Z"
    wrong = ParseError(f'Unparseable date: "{full}"')
    if "." not in clock:
        raise wrong
    try:
        return int(datetime.fromisoformat(full).timestamp() * 1000)
    except ValueError:
        raise wrong from None


def _ago_ms(text: str) -> int:
    import time  # noqa: PLC0415

    try:
        ago_ms = duration_ms(text)
    except ValueError:
        raise DurationError("Text cannot be parsed to a Duration") from None
    return int(time.time() * 1000) - ago_ms


# ------------------------------------------------------------------------ CSV, and the table


def read_csv(path: str, *, group: str | None) -> dict[str, Offsets]:
    """The plan in a CSV file: topic, partition, offset; the group comes first if `group` is None.

    Raises:
        FileError: the file cannot be read.
        IllegalArgumentError: a line is invalid; names the line.
    """
    plan: dict[str, Offsets] = {}
    rows = list(csv.reader(io.StringIO(read_text(path))))
    if rows and len(rows[0]) == 4:
        group = None
    width = 4 if group is None else 3
    for number, row in enumerate(rows, 1):
        if not row:
            continue
        if len(row) != width:
            raise ToolError(
                f"{path}: line {number}: {len(row)} fields, must be {width}"
                f" ({'' if group else 'group,'}topic,partition,offset)"
            )
        name = row[0] if group is None else group
        topic, index, offset = row[-3:]
        partition = TopicPartition(topic, to_integer(index.strip(), f"{path} line {number}"))
        plan.setdefault(name, {})[partition] = to_integer(
            offset.strip(), f"{path} line {number}", bits=64
        )
    return plan


def to_csv(reset: Mapping[str, Offsets], *, with_group: bool) -> str:
    """The offsets as `read_csv` reads them, each line ended."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for group_id in hash_order(reset, string_hash):
        for partition in hash_order(reset[group_id], partition_hash):
            row = [partition.topic, partition.partition, reset[group_id][partition]]
            writer.writerow([group_id, *row] if with_group else row)
    return text.getvalue()


def print_reset(reset: Mapping[str, Offsets]) -> None:
    if reset:
        print(f"\n{'GROUP':<30} {'TOPIC':<30} {'PARTITION':<10} {'NEW-OFFSET':<15}")
    for group_id in hash_order(reset, string_hash):
        for partition in hash_order(reset[group_id], partition_hash):
            offset = reset[group_id][partition]
            where = f"{partition.topic:<30} {partition.partition:<10}"
            print(f"{printable(group_id):<30} {where} {offset:<15}")
