"""The events of the controller.

*External* events come from outside: a watch fired and its node was read, a broker sent a request
or a response, a timer fired. One is settled, with all that follows from it, before the next is
taken. *Outcomes* report what became of an effect; they are settled before the next effect is
carried out. *Steps* (`odradek.controller.steps`) go on with an external event.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from uuid import UUID

from odradek.controller.isr_history import LogEnd
from odradek.controller.proposals import Outcome, StoredState
from odradek.controller.steps import Step
from odradek.model.cluster import Broker
from odradek.model.errors import ErrorCode
from odradek.model.partition import Assignment, LeaderAndIsr, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSeen:
    """A topic as its node says it is."""

    name: str
    id: UUID | None  # None: written by a tool from before topic ids
    assignments: Mapping[int, Assignment]
    store_version: int = 0
    spare_id: UUID | None = None  # drawn by the shell where `id` is None


# ------------------------------------------------------------------------------ failover


@dataclass(frozen=True, slots=True)
class BrokersLoaded:
    """We were elected; these brokers are registered."""

    brokers: tuple[Broker, ...]
    gone: tuple[int, ...] = ()  # those that an earlier controller knew and that are not there


@dataclass(frozen=True, slots=True)
class TopicsLoaded:
    """Some of the topics there are, with the states of those partitions that have one."""

    topics: tuple[TopicSeen, ...]
    states: Mapping[TopicPartition, StoredState]


@dataclass(frozen=True, slots=True)
class LoadingFinished:
    """All topics were handed in. These are to be deleted, moved, led by their preferred replica."""

    deletions: tuple[str, ...] = ()
    reassignments: Mapping[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    elections: tuple[TopicPartition, ...] | None = None  # None: the node is not there


# ------------------------------------------------------------------------------- watches


@dataclass(frozen=True, slots=True)
class BrokersChanged:
    """These brokers are registered now."""

    brokers: tuple[Broker, ...]


@dataclass(frozen=True, slots=True)
class TopicsChanged:
    """These topics have a node now."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopicsRead:
    """The nodes of some topics, new or changed. Those that are gone are missing."""

    topics: tuple[TopicSeen, ...]


@dataclass(frozen=True, slots=True)
class DeletionsChanged:
    """These topics have a node under `/admin/delete_topics` now."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReassignmentsSeen:
    """What `/admin/reassign_partitions` wants now; nothing if it is not there."""

    targets: Mapping[TopicPartition, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class ElectionsSeen:
    """The partitions in `/admin/preferred_replica_election`; None if it is not there."""

    partitions: tuple[TopicPartition, ...] | None


@dataclass(frozen=True, slots=True)
class LogDirsFailed:
    """These brokers gave notice that a log dir of theirs failed. Which replicas, they answer."""

    brokers: tuple[int, ...]


# ------------------------------------------------------------------- requests of brokers


@dataclass(frozen=True, slots=True)
class IsrChange:
    """What a leader wants its partition's ISR to be."""

    partition: TopicPartition
    wanted: LeaderAndIsr  # its `partition_epoch` is the one that the leader has
    # The broker epochs with which the leader saw its followers fetch; -1 is not checked.
    broker_epochs: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class IsrChangesRequested:
    """AlterPartition."""

    broker: int
    broker_epoch: int
    changes: tuple[IsrChange, ...]


@dataclass(frozen=True, slots=True)
class ControlledShutdownRequested:
    """A broker wants to leave in good order; epoch -1 (v0, v1) is not checked."""

    broker: int
    broker_epoch: int
    together_with: tuple[int, ...] = ()  # the brokers that are being stopped at the same time


class ElectionKind(Enum):
    """What ElectLeaders may ask for, as on the wire."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class ElectionsRequested:
    """ElectLeaders; None for all partitions."""

    kind: ElectionKind
    partitions: tuple[TopicPartition, ...] | None


@dataclass(frozen=True, slots=True)
class ReassignmentsRequested:
    """AlterPartitionReassignments: whereto; None cancels."""

    targets: Mapping[TopicPartition, tuple[int, ...] | None]


@dataclass(frozen=True, slots=True)
class ReassignmentsListed:
    """ListPartitionReassignments: which of these are under way; None for all."""

    partitions: tuple[TopicPartition, ...] | None


# ---------------------------------------------------------------- timers and configuration


@dataclass(frozen=True, slots=True)
class RebalanceDue:
    """It is time to look whether the preferred replicas lead."""

    percentage_max: int  # of a broker's partitions that others may lead


@dataclass(frozen=True, slots=True)
class UncleanElectionsEnabled:
    """Unclean election was allowed for these topics; None: for all that do not say otherwise."""

    topics: tuple[str, ...] | None


# -------------------------------------------------------------------- answers of brokers


@dataclass(frozen=True, slots=True)
class LeaderAndIsrAnswered:
    """A broker has become leader and follower as it was told, or could not."""

    broker: int
    broker_epoch: int  # the life of it that was told
    errors: Mapping[TopicPartition, ErrorCode]


@dataclass(frozen=True, slots=True)
class ReplicasDeleted:
    """A broker has deleted replicas as it was told, or could not."""

    broker: int
    broker_epoch: int
    errors: Mapping[TopicPartition, ErrorCode]


# ------------------------------------------------------------------------------ outcomes


@dataclass(frozen=True, slots=True)
class Stored:
    """What became of proposals. Each succeeds or fails on its own."""

    outcomes: tuple[Outcome, ...]


@dataclass(frozen=True, slots=True)
class LogEndsRead:
    """What the replicas that were asked have said, and what their topics have to have in sync."""

    ends: Mapping[TopicPartition, Mapping[int, LogEnd]]
    isr_min: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class AssignmentsWritten:
    """These stand in their topics' nodes now. Those whose topic is gone are missing."""

    assignments: Mapping[TopicPartition, Assignment]


@dataclass(frozen=True, slots=True)
class UncleanAllowed:
    """Whether each of the topics asked about allows unclean election."""

    topics: Mapping[str, bool]


@dataclass(frozen=True, slots=True)
class TopicsRemoved:
    """Nothing of these topics is left in the store."""

    names: tuple[str, ...]


External = (
    BrokersLoaded
    | TopicsLoaded
    | LoadingFinished
    | BrokersChanged
    | TopicsChanged
    | TopicsRead
    | DeletionsChanged
    | ReassignmentsSeen
    | ElectionsSeen
    | LogDirsFailed
    | IsrChangesRequested
    | ControlledShutdownRequested
    | ElectionsRequested
    | ReassignmentsRequested
    | ReassignmentsListed
    | RebalanceDue
    | UncleanElectionsEnabled
    | LogEndsRead
    | LeaderAndIsrAnswered
    | ReplicasDeleted
)
Reported = Stored | AssignmentsWritten | UncleanAllowed | TopicsRemoved | TopicsRead
Event = External | Reported | Step
