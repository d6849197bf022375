"""The tables of `kafka-consumer-groups --describe`: offsets and lag, members, state.

Columns, widths and the messages about groups without members are those of Kafka 3.9.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from odradek.cli.kafka.support.flags import Flags
from odradek.cli.kafka.support.java import hash_order, partition_hash
from odradek.client.admin.groups import (
    DEAD,
    GroupDescription,
    MemberDescription,
    committed_offsets,
    describe_group,
)
from odradek.client.cluster import Cluster
from odradek.client.fetch.offsets import LATEST, ListedOffset, try_to_list_offsets
from odradek.client.group.offsets import OffsetAndMetadata
from odradek.model.partition import TopicPartition
from odradek.model.printable import printable

_NONE: Final = "-"
_REBALANCING: Final = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")


class _Row(NamedTuple):
    """One partition with a committed offset of the group, or assigned to a member."""

    partition: TopicPartition | None
    committed: int | None
    end: int | None
    consumer_id: str = _NONE
    host: str = _NONE
    client_id: str = _NONE

    @property
    def lag(self) -> int | None:
        """Records between the committed offset and the end; None if either is not known."""
        if self.committed is None or self.end is None or self.committed == -1:
            return None
        return self.end - self.committed


async def describe(cluster: Cluster, groups: Iterable[str], flags: Flags) -> None:
    """Print the table that the flags select for each group, sorted by name."""
    described = {group_id: await describe_group(cluster, group_id) for group_id in groups}
    has_rows = False
    for group_id in sorted(described):
        group = described[group_id]
        if flags.has("state"):
            _print_state(group)
        elif flags.has("members"):
            _print_members(group, verbose=flags.has("verbose"))
        else:
            has_rows |= await _print_offsets(cluster, group)
    if has_rows:
        print()


def _is_there(group: GroupDescription, rows: int) -> bool:
    """Print the message about a group's state. Returns whether there are rows to print."""
    name = printable(group.group_id)
    if group.state == DEAD:
        print(f"\nError: Consumer group '{name}' does not exist.")
        return False
    sys.stdout.flush()
    if group.state == "Empty":
        print(f"\nConsumer group '{name}' has no active members.", file=sys.stderr)
    elif group.state in _REBALANCING:
        print(f"\nWarning: Consumer group '{name}' is rebalancing.", file=sys.stderr)
    return rows > 0


# ------------------------------------------------------------------------------------- offsets


async def _print_offsets(cluster: Cluster, group: GroupDescription) -> bool:
    """Print a table without a final line end. Returns False if there are no rows."""
    rows = await _rows(cluster, group) if group.state != DEAD else []
    if not _is_there(group, len(rows)):
        return False
    topics = [row.partition.topic for row in rows if row.partition is not None]
    group_width = max(15, len(group.group_id))
    topic_width = max([15, *map(len, topics)])
    id_width = max([15, *(len(row.consumer_id) for row in rows)])
    host_width = max([15, *(len(row.host) for row in rows)])

    def line(*cells: object) -> str:
        texts = [_NONE if cell is None else printable(str(cell)) for cell in cells]
        widths = (group_width, topic_width, 10, 15, 15, 15, id_width, host_width)
        padded = [f"{text:<{width}}" for text, width in zip(texts, widths, strict=False)]
        return " ".join([*padded, texts[-1]])

    print("\n" + line("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG",
                      "CONSUMER-ID", "HOST", "CLIENT-ID"), end="")  # fmt: skip
    for row in rows:
        topic = None if row.partition is None else row.partition.topic
        index = None if row.partition is None else row.partition.partition
        print("\n" + line(group.group_id, topic, index, row.committed, row.end, row.lag,
                          row.consumer_id, row.host, row.client_id), end="")  # fmt: skip
    return True


async def _rows(cluster: Cluster, group: GroupDescription) -> list[_Row]:
    committed = await committed_offsets(cluster, group.group_id)
    readers = [member for member in group.members if member.partitions]
    readers.sort(key=lambda member: -len(member.partitions))
    read = {partition for member in readers for partition in member.partitions}
    wanted = list(read | committed.keys())
    ends = await try_to_list_offsets(cluster, dict.fromkeys(wanted, LATEST))
    rows: list[_Row] = []
    for member in readers:
        rows += _rows_of(member.partitions, member, committed, ends)
    rows += _rows_of([p for p in committed if p not in read], None, committed, ends)
    return rows


def _rows_of(
    partitions: Sequence[TopicPartition],
    member: MemberDescription | None,
    committed: dict[TopicPartition, OffsetAndMetadata],
    ends: Mapping[TopicPartition, object],
) -> Iterable[_Row]:
    ordered = sorted(partitions, key=lambda partition: partition.partition)
    for partition in hash_order(ordered, partition_hash):
        offset = committed.get(partition)
        end = ends[partition]
        yield _Row(
            partition,
            None if offset is None else offset.offset,
            end.offset if isinstance(end, ListedOffset) and end.offset >= 0 else None,
            *((member.member_id, member.host, member.client_id) if member else ()),
        )


# ---------------------------------------------------------------------------- members, state


def _print_members(group: GroupDescription, *, verbose: bool) -> None:
    members = group.members
    _is_there(group, len(members))  # Kafka prints the heading even for an empty table
    with_instance = any(member.instance_id for member in members)
    widths = [
        max([15, len(group.group_id)]),
        max([15, *(len(member.member_id) for member in members)]),
        *([max([17, *(len(m.instance_id or "") for m in members)])] if with_instance else []),
        max([15, *(len(member.host) for member in members)]),
        max([15, *(len(member.client_id) for member in members)]),
        15,
    ]

    def line(*cells: object) -> str:
        texts = (printable(str(cell)) for cell in cells)
        return " ".join(f"{text:<{width}}" for text, width in zip(texts, widths, strict=True))

    instance = ["GROUP-INSTANCE-ID"] if with_instance else []
    heading = line("GROUP", "CONSUMER-ID", *instance, "HOST", "CLIENT-ID", "#PARTITIONS")
    print(f"\n{heading} " + ("ASSIGNMENT" if verbose else ""))
    for member in members:
        own = [member.instance_id or ""] if with_instance else []
        count = len(member.partitions)
        text = line(group.group_id, member.member_id, *own, member.host, member.client_id, count)
        print(f"{text} " + (_assignment(member.partitions) if verbose else ""))


def _assignment(partitions: Sequence[TopicPartition]) -> str:
    """As Kafka 3.9 prints it: without the topics' names."""
    topics: dict[str, list[str]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(str(partition.partition))
    parts = sorted(f"({','.join(sorted(numbers))})" for numbers in topics.values())
    return ", ".join(parts) or _NONE


def _print_state(group: GroupDescription) -> None:
    if not _is_there(group, 1):
        return
    broker, host, port = group.coordinator
    coordinator = f"{host}:{port}  ({broker})"
    width = max(25, len(coordinator))

    def line(*cells: object) -> str:
        name, where, strategy, state, count = (printable(str(cell)) for cell in cells)
        return f"{name!s:<25} {where!s:<{width}} {strategy!s:<20} {state!s:<15} {count}"

    print("\n" + line("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"))
    print(line(group.group_id, coordinator, group.assignor, group.state, len(group.members)))
