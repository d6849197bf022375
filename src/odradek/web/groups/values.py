"""A consumer group as it was observed at one moment. Values only.

None means that a fact is not known. End offsets are exclusive, so the committed offset of a
consumer that has read everything is the end offset.
"""

from dataclasses import dataclass
from enum import StrEnum

from odradek.model.clock import WallMs
from odradek.model.partition import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedMember:
    """A member with the partitions that are assigned to it."""

    member_id: str
    client_id: str
    host: str
    instance_id: str | None = None
    partitions: tuple[TopicPartition, ...] = ()
    silent_ms: int | None = None  # since its last heartbeat; only Odradek reports it

    @property
    def name(self) -> str:
        """The instance id of a static member, else the member id."""
        return self.instance_id or self.member_id


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """A partition that the group has committed an offset for, or that is assigned to a member."""

    partition: TopicPartition
    committed: int | None = None
    metadata: str = ""
    log_start: int | None = None
    end: int | None = None  # the high watermark
    stable: int | None = None  # the last stable offset
    member: str | None = None  # the member id that it is assigned to
    error: str = ""

    @property
    def lag(self) -> int | None:
        """Records between the committed offset and the high watermark."""
        if self.committed is None or self.end is None:
            return None
        return max(0, self.end - self.committed)

    @property
    def lost(self) -> int:
        """Offsets behind the committed one that were deleted before the group has read them."""
        if self.committed is None or self.log_start is None:
            return 0
        return max(0, self.log_start - self.committed)


class RebalanceSource(StrEnum):
    """How a rebalance became known."""

    REPORT = "the coordinator's report"
    POLLS = "a difference between two polls"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedRebalance:
    """What the coordinator reports of the last rebalance; only Odradek's do."""

    generation: int
    began_ms: int
    reason: str
    since_ms: int  # of the present state


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedGroup:
    """A group with its members, committed offsets and the offsets of their partitions."""

    group_id: str
    state: str
    wall_ms: WallMs
    protocol_type: str = ""
    assignor: str = ""
    coordinator: tuple[int, str, int] = (-1, "", -1)  # id, host, port
    members: tuple[ObservedMember, ...] = ()
    partitions: tuple[PartitionLag, ...] = ()
    rebalance: ReportedRebalance | None = None
    unknown: str = ""  # why offsets are missing

    @property
    def lag(self) -> int | None:
        """The lag of all partitions together; None if none is known."""
        known = [each.lag for each in self.partitions if each.lag is not None]
        return sum(known) if known else None
