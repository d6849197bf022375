"""What is known about the replicas of one partition.

None means that the fact is not known, and is drawn as unknown: a cluster of Apache Kafka does not
report the log end offset of each replica, for example. End offsets are exclusive, as everywhere.
"""

from dataclasses import dataclass
from enum import StrEnum


class LaneRole(StrEnum):
    """What a replica is at this moment."""

    LEADER = "leader"
    FOLLOWER = "follower"
    OFFLINE = "offline"


class LaneMove(StrEnum):
    """What a reassignment does with a replica."""

    ADDING = "adding"
    REMOVING = "removing"


class MarkKind(StrEnum):
    """What a mark on the offset axis shows."""

    COMMITTED = "committed offset"
    POSITION = "position"
    TRANSACTION = "open transaction"
    COMMIT = "commit marker"
    ABORT = "abort marker"


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochStart:
    """Where the records of a leader epoch begin in a replica's log."""

    leader_epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLane:
    """One replica of the partition, with all that is known about it."""

    broker: int
    role: LaneRole
    rack: str | None = None
    move: LaneMove | None = None
    in_sync: bool | None = None  # as the controller has the ISR
    leo: int | None = None
    high_watermark: int | None = None
    last_stable_offset: int | None = None
    log_start_offset: int | None = None
    leader_epoch: int | None = None
    epochs: tuple[EpochStart, ...] = ()  # in the order of their offsets
    bytes_left: int | None = None  # of a replica that is being added
    bytes_per_s: float | None = None
    seconds_left: float | None = None
    reason: str = ""  # why the replica is in this state, in one sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisMark:
    """Something at an offset that is not a property of a replica."""

    kind: MarkKind
    offset: int
    label: str  # the group, the producer id


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLanes:
    """The replicas of a partition, in the order of the assignment, and the marks on their axis."""

    topic: str
    partition: int
    lanes: tuple[ReplicaLane, ...]
    marks: tuple[AxisMark, ...] = ()

    @property
    def key(self) -> str:
        """The name of the picture in a document; the same for each picture of the partition."""
        return f"lanes-{self.topic}-{self.partition}"
