"""What the controller goes on with, after other tasks of the event loop have run.

An external event may concern 10,000 partitions, or need the outcome of an effect before it can be
finished. So a machine returns the rest of its work as effects `Proceed(step)`. The shell hands
each step to `Controller.handle` in its turn, that is when all effects before it are carried out.
A step carries names, never objects of the context: what it finds there is what holds by then.

Steps with a field `partitions` or `leaving` are slices of longer work.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from odradek.controller.answers import Refusal
from odradek.controller.causes import Cause
from odradek.controller.proposals import Purpose
from odradek.model.cluster import Broker
from odradek.model.errors import ErrorCode
from odradek.model.partition import Assignment, LeaderAndIsr, TopicPartition

Names = tuple[TopicPartition, ...]
Assignments = Mapping[TopicPartition, Assignment]
Leaving = Mapping[TopicPartition, frozenset[int]]

# ------------------------------------------------------------------------- every event


@dataclass(frozen=True, slots=True)
class StoreProposals:
    """Write the states that were proposed in the slices before."""


@dataclass(frozen=True, slots=True)
class FlushRequests:
    """Send what was gathered for the brokers since the last time."""


@dataclass(frozen=True, slots=True)
class DescribePartitions:
    """Describe partitions as they are to be sent; with each, whether it is new."""

    partitions: tuple[tuple[TopicPartition, bool], ...]


@dataclass(frozen=True, slots=True)
class BuildRequests:
    """Put the described partitions together: one set of requests for each broker."""


# ------------------------------------------------------------- failover, brokers, topics


@dataclass(frozen=True, slots=True)
class TakeOver:
    """A new controller checks partitions: replicas, ISR and leader against registered brokers."""

    partitions: Names


@dataclass(frozen=True, slots=True)
class JoinBrokers:
    """These brokers take part from now on."""

    brokers: tuple[Broker, ...]
    is_connected: bool  # False: channels to them are to be opened first


@dataclass(frozen=True, slots=True)
class LoseReplicas:
    """The replicas of partitions on these brokers are offline."""

    partitions: Names
    brokers: frozenset[int]
    cause: Cause


@dataclass(frozen=True, slots=True)
class RestoreReplicas:
    """The replicas of partitions on these brokers are online again."""

    partitions: Names
    brokers: frozenset[int]
    cause: Cause


@dataclass(frozen=True, slots=True)
class SendStates:
    """Send the stored state of partitions to their replicas on these brokers once more."""

    partitions: Names
    brokers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CreatePartitions:
    """New partitions enter the state machine; elect their first leaders."""

    partitions: Mapping[TopicPartition, Cause]


@dataclass(frozen=True, slots=True)
class MoveOffBroker:
    """Move leadership of partitions away from a broker that shuts down; its followers stop."""

    partitions: Names
    broker: int


@dataclass(frozen=True, slots=True)
class AnswerShutdown:
    """Answer ControlledShutdown: which of these partitions the broker still leads."""

    partitions: Names
    broker: int


@dataclass(frozen=True, slots=True)
class AnswerIsrChanges:
    """Answer AlterPartition: `answers`, and for what was stored the state that stands."""

    answers: Mapping[TopicPartition, LeaderAndIsr | ErrorCode]
    wanted: Mapping[TopicPartition, LeaderAndIsr]


# ------------------------------------------------------------------------------ elections


@dataclass(frozen=True, slots=True)
class HoldElections:
    """Hold the preferred leader elections of `/admin/preferred_replica_election`."""

    partitions: Names | None  # None: the node is not there


@dataclass(frozen=True, slots=True)
class ElectAsRequested:
    """Hold elections of an ElectLeaders request."""

    partitions: Names
    purpose: Purpose
    error: ErrorCode  # for a partition in which no replica can be elected


@dataclass(frozen=True, slots=True)
class AnswerElections:
    """Answer the ElectLeaders request after its elections."""


@dataclass(frozen=True, slots=True)
class ElectPreferred:
    """Let preferred replicas lead, as `/admin/preferred_replica_election` requests."""

    partitions: Names


@dataclass(frozen=True, slots=True)
class Rebalance:
    """Let preferred replicas lead; with each partition, the broker that leads too few."""

    partitions: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class RetryElections:
    """Elect leaders for those of these partitions that have none."""

    partitions: Names
    cause: Cause


# --------------------------------------------------------------------------- reassignment


@dataclass(frozen=True, slots=True)
class LoadReassignments:
    """Resume the reassignments that are stored, and begin those of the node."""

    targets: Mapping[TopicPartition, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class ResumeReassignments:
    """Resume the reassignments that need one of these brokers."""

    brokers: frozenset[int]


@dataclass(frozen=True, slots=True)
class AdoptAssignments:
    """Go on with the assignments among these that are stored by now."""

    before: Assignments
    wanted: Assignments
    cause: Cause


@dataclass(frozen=True, slots=True)
class ContinueReassignments:
    """Complete those whose target is in sync, announce the others in a new leader epoch."""

    partitions: Names
    cause: Cause


@dataclass(frozen=True, slots=True)
class BeginReassignments:
    """SendRequests new replicas to the leader and to themselves."""

    partitions: Names
    cause: Cause


@dataclass(frozen=True, slots=True)
class FinishReassignments:
    """Complete the reassignments whose target came in sync with the present event."""


@dataclass(frozen=True, slots=True)
class AssignTargets:
    """Make the target the assignment, and let one of it lead."""

    partitions: Names
    cause: Cause


@dataclass(frozen=True, slots=True)
class ReleaseReplicas:
    """Take the removed replicas out, where a replica of the target leads."""

    before: Assignments
    cause: Cause


@dataclass(frozen=True, slots=True)
class CompleteReassignments:
    """Enter into the journal what is done, and take it out of the node."""

    before: Assignments
    cause: Cause


@dataclass(frozen=True, slots=True)
class MoveLeaders:
    """Move leadership away from leaving replicas."""

    leaving: Leaving
    cause: Cause


@dataclass(frozen=True, slots=True)
class LeaveIsr:
    """Take leaving replicas out of the ISR."""

    leaving: Leaving
    cause: Cause


@dataclass(frozen=True, slots=True)
class DeleteReplicas:
    """Have leaving replicas delete their logs."""

    leaving: Leaving


@dataclass(frozen=True, slots=True)
class AnswerReassignments:
    """Answer AlterPartitionReassignments after the new assignments are stored."""

    refusals: Mapping[TopicPartition, Refusal | None]
    wanted: Assignments


# ------------------------------------------------------------------------- topic deletion


@dataclass(frozen=True, slots=True)
class ResumeDeletions:
    """Start the deletions that can be started, finish those that are done."""

    brokers: frozenset[int] = frozenset()  # topics halted for one of these are tried again


@dataclass(frozen=True, slots=True)
class EndLeadership:
    """Write a state without leader for partitions of a topic that is being deleted."""

    partitions: Names


@dataclass(frozen=True, slots=True)
class StopReplicas:
    """Have the online replicas of partitions delete their logs."""

    partitions: Names


ReassignmentStep = (
    LoadReassignments
    | ResumeReassignments
    | AdoptAssignments
    | ContinueReassignments
    | BeginReassignments
    | FinishReassignments
    | AssignTargets
    | ReleaseReplicas
    | CompleteReassignments
    | MoveLeaders
    | LeaveIsr
    | DeleteReplicas
    | AnswerReassignments
)
Step = (
    StoreProposals
    | FlushRequests
    | DescribePartitions
    | BuildRequests
    | TakeOver
    | JoinBrokers
    | LoseReplicas
    | RestoreReplicas
    | SendStates
    | CreatePartitions
    | MoveOffBroker
    | AnswerShutdown
    | AnswerIsrChanges
    | HoldElections
    | ElectAsRequested
    | AnswerElections
    | ElectPreferred
    | Rebalance
    | RetryElections
    | ReassignmentStep
    | ResumeDeletions
    | EndLeadership
    | StopReplicas
)
