"""Observes consumer groups of any Kafka cluster from 2.8 on; of Odradek also its reports.

One observation of a group takes DescribeGroups and OffsetFetch from its coordinator, and
ListOffsets from the leaders. The offsets of all groups of one round are listed together.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

import odradek.client.admin.groups as admin_groups
from odradek.client.admin.groups import GroupDescription, GroupListing
from odradek.client.admin.state import describe_state
from odradek.client.cluster import GROUP_COORDINATOR, Cluster
from odradek.client.fetch.offsets import EARLIEST, LATEST, ListedOffset
from odradek.client.group.offsets import OffsetAndMetadata
from odradek.model.clock import WallMs
from odradek.model.errors import ApiError, OdradekError
from odradek.model.partition import TopicPartition
from odradek.net.clock import real_wall_ms
from odradek.web.groups.values import (
    ObservedGroup,
    ObservedMember,
    PartitionLag,
    ReportedRebalance,
)
from odradek.web.messages.offsets import list_offsets_now
from odradek.web.messages.progress import PartitionProgress, SearchProgress
from odradek.web.messages.query import Query
from odradek.web.messages.search import SliceBounds, SliceReader

GROUPS_MAX: Final = 500
_AT_ONCE: Final = 8
_GROUP_S: Final = 3.0
_RECORD_SECONDS: Final = 3.0

Offsets = Mapping[TopicPartition, ListedOffset | ApiError]


class ObservedGroups(NamedTuple):
    """The groups of one round; `unobserved` are those above the limit, or why one failed."""

    groups: list[ObservedGroup]
    unobserved: dict[str, str]


async def list_groups(cluster: Cluster) -> list[GroupListing]:
    """All groups of the cluster, by name.

    Raises:
        ApiError, ConnectionError: a broker refuses, or cannot be reached.
    """
    return sorted(await admin_groups.list_groups(cluster))


async def observe_groups(cluster: Cluster, names: Iterable[str] | None = None) -> ObservedGroups:
    """Some groups, or (None) all, as they are now.

    Raises:
        ApiError, ConnectionError: the groups cannot be listed.
    """
    if names is None:
        names = [each.group_id for each in await list_groups(cluster)]
    wanted = list(names)
    unobserved = dict.fromkeys(wanted[GROUPS_MAX:], f"only {GROUPS_MAX} groups are observed")
    limit = asyncio.Semaphore(_AT_ONCE)

    async def one(name: str) -> "_Described | str":
        async with limit:
            try:
                async with asyncio.timeout(_GROUP_S):
                    return await _describe(cluster, name)
            except TimeoutError:
                return f"its coordinator does not answer within {_GROUP_S:.0f} s"
            except (OdradekError, ConnectionError) as error:
                return str(error)

    described = await asyncio.gather(*(one(name) for name in wanted[:GROUPS_MAX]))
    found = []
    for name, each in zip(wanted, described, strict=False):
        if isinstance(each, str):
            unobserved[name] = each
        else:
            found.append(each)
    partitions = sorted({p for each in found for p in each.partitions})
    listed = await _offsets(cluster, partitions)
    wall_ms = real_wall_ms()
    return ObservedGroups([_observed(each, listed, wall_ms) for each in found], unobserved)


async def observe_group(cluster: Cluster, name: str) -> ObservedGroup:
    """One group with its offsets; the state is Dead if it does not exist.

    Raises:
        ApiError, ConnectionError: the coordinator refuses, or does not answer.
    """
    described = await _describe(cluster, name)
    listed = await _offsets(cluster, described.partitions)
    return _observed(described, listed, real_wall_ms())


class _Described(NamedTuple):
    group: GroupDescription
    committed: Mapping[TopicPartition, OffsetAndMetadata]
    report: Mapping[str, Any] | None
    unknown: str

    @property
    def partitions(self) -> list[TopicPartition]:
        """Those with a committed offset, or assigned to a member."""
        assigned = {p for member in self.group.members for p in member.partitions}
        return sorted({*self.committed, *assigned})


async def _describe(cluster: Cluster, name: str) -> _Described:
    group = await admin_groups.describe_group(cluster, name)
    unknown = ""
    committed: Mapping[TopicPartition, OffsetAndMetadata] = {}
    try:
        committed = await admin_groups.committed_offsets(cluster, name)
    except ApiError as error:
        unknown = f"committed offsets are not known: {error.message or error.code.name}"
    return _Described(group, committed, await _report(cluster, name), unknown)


async def _report(cluster: Cluster, name: str) -> Mapping[str, Any] | None:
    """The coordinator's report of the group; None if it is not one of Odradek."""
    try:
        connection = await cluster.coordinator(GROUP_COORDINATOR, name)
        report = await describe_state(connection, "groups", {"group": name})
    except (OdradekError, ConnectionError):
        return None
    if not isinstance(report, dict) or not (report.get("is_here") and report.get("exists")):
        return None
    return report


class _Listed(NamedTuple):
    starts: Offsets
    ends: Offsets
    stable: Offsets


async def _offsets(cluster: Cluster, partitions: Collection[TopicPartition]) -> _Listed:
    return _Listed(
        await list_offsets_now(cluster, dict.fromkeys(partitions, EARLIEST)),
        await list_offsets_now(cluster, dict.fromkeys(partitions, LATEST)),
        await list_offsets_now(cluster, dict.fromkeys(partitions, LATEST), reads_committed=True),
    )


def _observed(described: _Described, listed: _Listed, wall_ms: WallMs) -> ObservedGroup:
    group, report = described.group, described.report
    owners = {p: member.member_id for member in group.members for p in member.partitions}
    silent = {m["member_id"]: m["silent_ms"] for m in report["members"]} if report else {}
    return ObservedGroup(
        group_id=group.group_id,
        state=group.state,
        wall_ms=wall_ms,
        protocol_type=group.protocol_type,
        assignor=group.assignor,
        coordinator=group.coordinator,
        members=tuple(
            ObservedMember(
                member_id=each.member_id,
                client_id=each.client_id,
                host=each.host.removeprefix("/"),
                instance_id=each.instance_id,
                partitions=each.partitions,
                silent_ms=silent.get(each.member_id),
            )
            for each in group.members
        ),
        partitions=tuple(
            _partition(p, described.committed.get(p), listed, owners.get(p))
            for p in described.partitions
        ),
        rebalance=None if report is None else _rebalance(report),
        unknown=described.unknown,
    )


def _partition(
    partition: TopicPartition,
    committed: OffsetAndMetadata | None,
    listed: _Listed,
    member: str | None,
) -> PartitionLag:
    end = listed.ends.get(partition)
    return PartitionLag(
        partition=partition,
        committed=None if committed is None else committed.offset,
        metadata="" if committed is None else committed.metadata,
        log_start=_offset(listed.starts.get(partition)),
        end=_offset(end),
        stable=_offset(listed.stable.get(partition)),
        member=member,
        error=(end.message or end.code.name) if isinstance(end, ApiError) else "",
    )


def _offset(listed: ListedOffset | ApiError | None) -> int | None:
    return listed.offset if isinstance(listed, ListedOffset) and listed.offset >= 0 else None


def _rebalance(report: Mapping[str, Any]) -> ReportedRebalance:
    return ReportedRebalance(
        generation=report["generation"],
        began_ms=report["rebalance_ms"],
        reason=report["rebalance_reason"] or "",
        since_ms=report["since_ms"],
    )


class NextRecord(NamedTuple):
    """The timestamp of the first record at or after a committed offset."""

    timestamp_ms: int
    is_append_time: bool


async def next_records(
    cluster: Cluster, lags: Collection[PartitionLag]
) -> dict[TopicPartition, NextRecord]:
    """The timestamps of the next records that a group has to read: one Fetch for each partition.

    Partitions where it fails are left out.
    """
    found: dict[TopicPartition, NextRecord] = {}
    by_topic: dict[str, dict[int, PartitionProgress]] = {}
    for each in lags:
        if each.lag and each.committed is not None and each.end is not None:
            start = max(each.committed, each.log_start or 0)
            state = PartitionProgress(start=start, end=each.end, position=start)
            by_topic.setdefault(each.partition.topic, {})[each.partition.partition] = state
    for topic, partitions in by_topic.items():
        for index, state in partitions.items():
            query = Query(topic=topic, partitions=(index,))
            progress = SearchProgress(query.digest, 0, {index: state})
            bounds = SliceBounds(found=1, seconds=_RECORD_SECONDS, held_bytes=0)
            try:
                read = await SliceReader(cluster, query, progress, bounds, lane="lag").run()
            except (OdradekError, ConnectionError):
                continue
            for record in read.found:
                found[TopicPartition(topic, index)] = NextRecord(
                    record.timestamp, record.timestamp_type == 1
                )
    return found
