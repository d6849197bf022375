"""The offsets of a search, and what it costs to read them, before a record is read.

Offsets come from ListOffsets. Sizes are estimated from the leaders' log directories: the share of
the offsets of a partition that is searched. That is exact for topics whose records have about one
size; after compaction a range has fewer records than offsets.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import odradek.client.admin.groups as admin_groups
import odradek.client.admin.partitions as admin_partitions
from odradek.client.cluster import Cluster
from odradek.client.fetch.offsets import EARLIEST, LATEST, ListedOffset
from odradek.model.clock import WallMs
from odradek.model.errors import ApiError, ErrorCode, OdradekError
from odradek.model.partition import TopicPartition
from odradek.web.messages.offsets import WITHIN_S, Offsets, list_offsets_now
from odradek.web.messages.progress import (
    OFFSET_MAX,
    PARTITIONS_MAX,
    PartitionProgress,
    SearchProgress,
)
from odradek.web.messages.query import AtOffset, AtTime, Bound, Query, QueryError
from odradek.web.messages.scan import open_transactions

_UNKNOWN: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRange:
    """One partition of a search. `start` and `end` bound what is searched; `end` is exclusive.

    `bytes` and `held_bytes` are -1 if sizes are not known.
    """

    partition: int
    log_start: int
    high_watermark: int
    stable: int  # the last stable offset
    start: int
    end: int
    held_bytes: int = _UNKNOWN  # of the leader's whole replica
    error: str = ""

    @property
    def offsets(self) -> int:
        """The number of offsets to read: as many records, or fewer after compaction."""
        return max(0, self.end - self.start)

    @property
    def bytes(self) -> int:
        """The estimated bytes to read."""
        held = self.high_watermark - self.log_start
        if self.held_bytes < 0:
            return _UNKNOWN
        return self.held_bytes * self.offsets // held if held > 0 else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRanges:
    """All partitions of a search; `sizes_unknown` says why there are no sizes."""

    ranges: tuple[PartitionRange, ...]
    sizes_unknown: str = ""
    started_ms: int = 0

    @property
    def offsets(self) -> int:
        return sum(each.offsets for each in self.ranges)

    @property
    def bytes(self) -> int:
        """The estimated bytes to read; -1 if they are not known."""
        sizes = [each.bytes for each in self.ranges]
        return _UNKNOWN if _UNKNOWN in sizes else sum(sizes)

    def progress(self, query: Query, *, follows: bool = False) -> SearchProgress:
        """The state of the search before its first slice; with `follows`, of one without an end."""
        return SearchProgress(
            query.digest,
            self.started_ms,
            {
                each.partition: PartitionProgress(
                    start=each.start,
                    end=OFFSET_MAX if follows else max(each.start, each.end),
                    position=each.start,
                    error=each.error,
                )
                for each in self.ranges
            },
        )


async def ranges_of(
    cluster: Cluster, query: Query, *, wall_ms: WallMs, with_sizes: bool = True
) -> SearchRanges:
    """The offsets to search, and their estimated size.

    Raises:
        QueryError: there is no such topic or partition, or there are too many.
        ApiError, ConnectionError: the cluster does not answer.
    """
    partitions = await partitions_of(cluster, query)
    starts = await list_offsets_now(cluster, dict.fromkeys(partitions, EARLIEST))
    ends = await list_offsets_now(cluster, dict.fromkeys(partitions, LATEST))
    stable = await list_offsets_now(
        cluster, dict.fromkeys(partitions, LATEST), reads_committed=True
    )
    from_time = await _at_time(cluster, partitions, query.start)
    to_time = await _at_time(cluster, partitions, query.end)
    sizes: Mapping[TopicPartition, int] = {}
    why = ""
    if with_sizes:
        try:
            async with asyncio.timeout(WITHIN_S):
                sizes = await _sizes(cluster, partitions)
        except (OdradekError, ConnectionError, TimeoutError) as error:
            why = str(error) or "a leader does not answer"
    return SearchRanges(
        ranges=tuple(
            _range(query, p, (starts, ends, stable), (from_time, to_time), sizes.get(p, _UNKNOWN))
            for p in partitions
        ),
        sizes_unknown=why,
        started_ms=wall_ms,
    )


def _range(
    query: Query,
    partition: TopicPartition,
    listed: tuple[Offsets, Offsets, Offsets],
    by_time: tuple[Offsets, Offsets],
    size: int,
) -> PartitionRange:
    offsets = [each.get(partition, _NOT_LISTED) for each in (*listed, *by_time)]
    for each in offsets:
        if isinstance(each, ApiError) and each is not _NOT_LISTED:
            return PartitionRange(
                partition=partition.partition, log_start=0, high_watermark=0, stable=0,
                start=0, end=0, error=each.message or each.code.name,
            )  # fmt: skip
    log_start, end, stable, from_time, to_time = (
        each.offset if isinstance(each, ListedOffset) else _UNKNOWN for each in offsets
    )
    until = max(log_start, min(_offset(query.end, end, to_time, end), end))
    if query.committed_only:
        until = max(log_start, min(until, stable))
    start = _offset(query.start, log_start, from_time, end)
    if query.last is not None:
        start = until - query.last
    return PartitionRange(
        partition=partition.partition,
        log_start=log_start,
        high_watermark=end,
        stable=stable,
        start=min(max(start, log_start), end),
        end=until,
        held_bytes=size,
    )


_NOT_LISTED: Final = ApiError(ErrorCode.NONE)


def _offset(bound: Bound | None, default: int, by_time: int, end: int) -> int:
    """The offset of a bound; a time after the last record is the end."""
    match bound:
        case None:
            return default
        case AtOffset(offset=offset):
            return offset
        case AtTime():
            return end if by_time < 0 else by_time


async def _at_time(
    cluster: Cluster, partitions: list[TopicPartition], bound: Bound | None
) -> Offsets:
    if not isinstance(bound, AtTime):
        return {}
    return await list_offsets_now(cluster, dict.fromkeys(partitions, max(0, bound.wall_ms)))


async def partitions_of(cluster: Cluster, query: Query) -> list[TopicPartition]:
    """The partitions of a search, from fresh metadata.

    Raises:
        QueryError: there is no such topic or partition, or there are too many.
        ConnectionError: no broker answers.
    """
    await cluster.refresh([query.topic])
    there = cluster.metadata.partitions(query.topic)
    if not there:
        code = cluster.metadata.errors.get(query.topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        raise QueryError(f"topic: {query.topic!r} cannot be read: {_name(code)}")
    if query.partitions is not None:
        missing = set(query.partitions) - {each.partition for each in there}
        if missing:
            raise QueryError(
                f"partitions: {query.topic} has no partition {min(missing)}; it has {len(there)}"
            )
        there = [each for each in there if each.partition in query.partitions]
    if len(there) > PARTITIONS_MAX:
        raise QueryError(
            f"partitions: {query.topic} has {len(there)}; choose at most {PARTITIONS_MAX}"
        )
    return there


def _name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error code {code}"


async def _sizes(cluster: Cluster, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    """The bytes of the leaders' replicas."""
    by_leader: dict[int, list[TopicPartition]] = {}
    for partition in partitions:
        leader = cluster.metadata.leader(partition)
        if leader >= 0:
            by_leader.setdefault(leader, []).append(partition)
    found: dict[TopicPartition, int] = {}
    for leader, led in by_leader.items():
        for directory in await admin_partitions.describe_log_dirs(cluster, leader, led):
            for partition, replica in directory.replicas.items():
                if not replica.is_future:
                    found[partition] = replica.size_bytes
    return found


async def open_producers(
    cluster: Cluster, topic: str, partitions: list[int]
) -> dict[int, dict[int, int]]:
    """By partition, the first offsets of open transactions by producer id; empty if not known."""
    names = [TopicPartition(topic, index) for index in partitions]
    if not names:
        return {}
    described = await admin_groups.describe_producers(cluster, names)
    return {
        partition.partition: open_transactions(
            (p.producer_id, p.transaction_start_offset) for p in producers
        )
        for partition, producers in described.items()
        if not isinstance(producers, ApiError)
    }
