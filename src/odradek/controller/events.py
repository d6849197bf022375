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
    """A topic as its node has it."""

    name: str
    id: UUID | None  # None: written by a tool from before topic ids
    assignments: Mapping[int, Assignment]
    store_version: int = 0
    spare_id: UUID | None = None  # drawn by the shell where `id` is None


# ------------------------------------------------------------------------------ failover


@dataclass(frozen=True, slots=True)
class BrokersLoaded:
    """A term begins; these brokers are registered."""

    brokers: tuple[Broker, ...]
    unregistered: tuple[int, ...] = ()  # registered in the term before, and not any more
    # Up to this controller epoch, partition states are those of a store that was put back to an
    # earlier state; -1: it never was.
    restored_epoch: int = -1


@dataclass(frozen=True, slots=True)
class TopicsLoaded:
    """Some of the topics, with the states of those partitions that have one."""

    topics: tuple[TopicSeen, ...]
    states: Mapping[TopicPartition, StoredState]


@dataclass(frozen=True, slots=True)
class LoadingFinished:
    """All topics are loaded; the topics to delete, and reassignments and elections of nodes."""

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
    """The nodes of some topics, new or changed; topics without a node are missing."""

    topics: tuple[TopicSeen, ...]


@dataclass(frozen=True, slots=True)
class DeletionsChanged:
    """These topics have a node under `/admin/delete_topics` now."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReassignmentsSeen:
    """The targets in `/admin/reassign_partitions`; empty if it is not there."""

    targets: Mapping[TopicPartition, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class ElectionsSeen:
    """The partitions in `/admin/preferred_replica_election`; None if it is not there."""

    partitions: tuple[TopicPartition, ...] | None


@dataclass(frozen=True, slots=True)
class LogDirsFailed:
    """A log directory of each of these brokers failed; LeaderAndIsr responses name the replicas."""

    brokers: tuple[int, ...]


# ------------------------------------------------------------------- requests of brokers


@dataclass(frozen=True, slots=True)
class IsrChange:
    """The ISR that a leader requests for its partition."""

    partition: TopicPartition
    wanted: LeaderAndIsr  # its `partition_epoch` is the one that the leader has
    # The broker epochs with which the leader saw its followers fetch; -1 is not checked.
    broker_epochs: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class IsrChangesRequested:
    """AlterPartition: leaders request other ISRs."""

    broker: int
    broker_epoch: int
    changes: tuple[IsrChange, ...]


@dataclass(frozen=True, slots=True)
class ControlledShutdownRequested:
    """ControlledShutdown; broker epoch -1 (v0, v1) is not checked."""

    broker: int
    broker_epoch: int
    together_with: tuple[int, ...] = ()  # the brokers that are being stopped at the same time


class ElectionKind(Enum):
    """The election types of ElectLeaders, with their numbers on the wire."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class ElectionsRequested:
    """ElectLeaders; None for all partitions."""

    kind: ElectionKind
    partitions: tuple[TopicPartition, ...] | None


@dataclass(frozen=True, slots=True)
class ReassignmentsRequested:
    """AlterPartitionReassignments: the target of each partition; None cancels."""

    targets: Mapping[TopicPartition, tuple[int, ...] | None]


@dataclass(frozen=True, slots=True)
class ReassignmentsListed:
    """ListPartitionReassignments, of these partitions; None for all."""

    partitions: tuple[TopicPartition, ...] | None


# ---------------------------------------------------------------- timers and configuration


@dataclass(frozen=True, slots=True)
class RebalanceDue:
    """The timer of `leader.imbalance.check.interval.seconds` fired."""

    percentage_max: int  # of a broker's partitions that others may lead


@dataclass(frozen=True, slots=True)
class UncleanElectionsEnabled:
    """Unclean election was allowed for these topics; None: for all that do not configure it."""

    topics: tuple[str, ...] | None


# -------------------------------------------------------------------- answers of brokers


@dataclass(frozen=True, slots=True)
class LeaderAndIsrAnswered:
    """The response to LeaderAndIsr."""

    broker: int
    broker_epoch: int  # of the registration to which the request was sent
    errors: Mapping[TopicPartition, ErrorCode]


@dataclass(frozen=True, slots=True)
class ReplicasDeleted:
    """The response to StopReplica, for the replicas that were to be deleted."""

    broker: int
    broker_epoch: int
    errors: Mapping[TopicPartition, ErrorCode]


# ------------------------------------------------------------------------------ outcomes


@dataclass(frozen=True, slots=True)
class Stored:
    """The outcomes of `StoreStates`; each proposal is accepted or conflicts on its own."""

    outcomes: tuple[Outcome, ...]


@dataclass(frozen=True, slots=True)
class LogEndsRead:
    """Where logs end, of the replicas that responded; `min.insync.replicas` of their topics."""

    ends: Mapping[TopicPartition, Mapping[int, LogEnd]]
    isr_min: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class AssignmentsWritten:
    """These are stored in their topics' nodes; partitions of removed topics are missing."""

    assignments: Mapping[TopicPartition, Assignment]


@dataclass(frozen=True, slots=True)
class UncleanAllowed:
    """Whether each of these topics allows unclean election."""

    topics: Mapping[str, bool]


@dataclass(frozen=True, slots=True)
class TopicsRemoved:
    """All nodes of these topics are removed."""

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
