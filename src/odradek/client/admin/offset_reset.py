"""New committed offsets for a group, as `kafka-consumer-groups --reset-offsets` computes them.

Nothing is committed here: `odradek.client.admin.groups.commit_offsets` does that, and only for a
group without members. Offsets that are out of bounds are limited to those of existing records.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from odradek.client.admin.groups import committed_offsets
from odradek.client.cluster import Cluster
from odradek.client.fetch.offsets import EARLIEST, LATEST, ListedOffset, try_to_list_offsets
from odradek.model.clock import WallMs
from odradek.model.errors import ApiError, OdradekError
from odradek.model.partition import TopicPartition

Offsets: TypeAlias = dict[TopicPartition, int]

# States in which a group has no members, so that its offsets may be set.
RESETTABLE: Final = ("Empty", "Dead")

_DURATION: Final = re.compile(
    r"([-+]?)P(?:([-+]?\d+)D)?"
    r"(?:T(?:([-+]?\d+)H)?(?:([-+]?\d+)M)?(?:([-+]?\d+(?:\.\d+)?)S)?)?",
    re.IGNORECASE,
)


class NoCommittedOffsetError(OdradekError):
    """An offset cannot be shifted where none is committed."""

    def __init__(self, partition: TopicPartition) -> None:
        super().__init__(
            f"Cannot shift offset for partition {partition} since there is no current committed "
            "offset"
        )


@dataclass(frozen=True, slots=True)
class ToEarliest:
    """The log start offset of each partition."""


@dataclass(frozen=True, slots=True)
class ToLatest:
    """The high watermark of each partition."""


@dataclass(frozen=True, slots=True)
class ToCurrent:
    """The committed offset; the high watermark where there is none."""


@dataclass(frozen=True, slots=True)
class ToTime:
    """The first record at or after this moment; the high watermark if there is none."""

    wall_ms: WallMs


@dataclass(frozen=True, slots=True)
class ShiftBy:
    """The committed offset and so many more, or (negative) fewer."""

    offsets: int


@dataclass(frozen=True, slots=True)
class ToOffsets:
    """Exactly these offsets, by partition."""

    offsets: Mapping[TopicPartition, int]


Scenario: TypeAlias = ToEarliest | ToLatest | ToCurrent | ToTime | ShiftBy | ToOffsets


@dataclass(slots=True)
class NewOffsets:
    """The offsets to commit, and what differs from the request.

    `limited`: what was requested where it is out of bounds. `without_record`: the partitions that
    have no record at or after the time.
    """

    offsets: Offsets
    limited: Offsets = field(default_factory=dict)
    without_record: list[TopicPartition] = field(default_factory=list)


async def new_offsets(
    cluster: Cluster, group_id: str, partitions: Collection[TopicPartition], scenario: Scenario
) -> NewOffsets:
    """The offsets of a group after a reset of these partitions.

    Raises:
        NoCommittedOffsetError: an offset cannot be shifted.
        ApiError: the coordinator or a leader refuses.
    """
    match scenario:
        case ToEarliest():
            return NewOffsets(await _listed(cluster, partitions, EARLIEST))
        case ToLatest():
            return NewOffsets(await _listed(cluster, partitions, LATEST))
        case ToTime(wall_ms=wall_ms):
            return await _at(cluster, partitions, wall_ms)
        case ToCurrent():
            committed = await committed_offsets(cluster, group_id)
            current = {p: committed[p].offset for p in partitions if p in committed}
            rest = [p for p in partitions if p not in committed]
            return NewOffsets(current | await _listed(cluster, rest, LATEST))
        case ShiftBy(offsets=by):
            return await _within(cluster, await _shifted(cluster, group_id, partitions, by))
        case ToOffsets(offsets=offsets):
            return await _within(cluster, dict(offsets))


async def _listed(cluster: Cluster, partitions: Collection[TopicPartition], spec: int) -> Offsets:
    listed = await try_to_list_offsets(cluster, dict.fromkeys(partitions, spec))
    return {partition: _offset(found) for partition, found in listed.items()}


def _offset(listed: ListedOffset | ApiError) -> int:
    if isinstance(listed, ApiError):
        raise listed
    return listed.offset


async def _at(
    cluster: Cluster, partitions: Collection[TopicPartition], wall_ms: WallMs
) -> NewOffsets:
    found = await _listed(cluster, partitions, wall_ms)
    rest = [partition for partition, offset in found.items() if offset < 0]
    return NewOffsets(found | await _listed(cluster, rest, LATEST), without_record=rest)


async def _shifted(
    cluster: Cluster, group_id: str, partitions: Collection[TopicPartition], by: int
) -> Offsets:
    committed = await committed_offsets(cluster, group_id)
    for partition in partitions:
        if partition not in committed:
            raise NoCommittedOffsetError(partition)
    return {partition: committed[partition].offset + by for partition in partitions}


async def _within(cluster: Cluster, wanted: Offsets) -> NewOffsets:
    starts = await _listed(cluster, wanted, EARLIEST)
    ends = await _listed(cluster, wanted, LATEST)
    offsets = {p: min(max(offset, starts[p]), ends[p]) for p, offset in wanted.items()}
    limited = {p: offset for p, offset in wanted.items() if offset != offsets[p]}
    return NewOffsets(offsets, limited)


def duration_ms(text: str) -> int:
    """The milliseconds of an ISO 8601 duration of days and smaller units: P1DT2H3M4.5S.

    Raises:
        ValueError: the text is not such a duration.
    """
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()[1:]):
        raise ValueError(text)
    sign, *parts = found.groups()
    days, hours, minutes, seconds = (float(part or 0) for part in parts)
    length_s = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    return int((-length_s if sign == "-" else length_s) * 1000)
