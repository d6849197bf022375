"""The effects of the controller: what its shell is to carry out.

Effects are carried out in order, one after the other; the outcome of one is handled, with all that
follows from it, before the next (`odradek.model.trampoline`). So a list of effects reads as a
program: store these, *then* proceed there.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from odradek.controller.answers import AnyAnswer
from odradek.controller.causes import Decision
from odradek.controller.events import Event, TopicSeen
from odradek.controller.proposals import Proposal
from odradek.controller.steps import Step, StoreProposals
from odradek.model.cluster import Broker
from odradek.model.partition import Assignment, LeaderAndIsr, TopicPartition

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

# Partitions worked on before others may run: 5 to 10 us each, so a few milliseconds.
SLICE: Final = 250

# ---------------------------------------------------------------------------- the store


@dataclass(frozen=True, slots=True)
class StoreStates:
    """Write all of these in one pipelined step; reported as `Stored`."""

    proposals: tuple[Proposal, ...]


@dataclass(frozen=True, slots=True)
class ReadTopics:
    """Read these topics' nodes, and watch them; reported as `TopicsRead`."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WriteTopics:
    """Write these topics' nodes with their ids, if unchanged; reported as `TopicsRead`."""

    topics: tuple[TopicSeen, ...]


@dataclass(frozen=True, slots=True)
class WriteAssignments:
    """Write these into their topics' nodes, beside other partitions; `AssignmentsWritten`."""

    assignments: Mapping[TopicPartition, Assignment]


@dataclass(frozen=True, slots=True)
class RemoveReassignments:
    """Take these out of `/admin/reassign_partitions`; remove the node when it is empty."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class RemoveElections:
    """Delete `/admin/preferred_replica_election` after its elections."""


@dataclass(frozen=True, slots=True)
class AskUnclean:
    """Read which of these topics allow unclean election; reported as `UncleanAllowed`."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReadLogEnds:
    """Read where the logs of these replicas end; reported some time later as `LogEndsRead`."""

    replicas: Mapping[TopicPartition, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class RemoveTopics:
    """Remove all nodes of these topics; reported as `TopicsRemoved`."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RemoveDeletions:
    """Remove requests for deletion that are refused."""

    names: tuple[str, ...]


# ---------------------------------------------------------------------------- the brokers


@dataclass(frozen=True, slots=True)
class Connect:
    """Open a channel to a broker."""

    broker: Broker


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Close the channel to a broker, and drop the requests that are queued in it."""

    broker: int


class PartitionUpdate(NamedTuple):
    """One partition as LeaderAndIsr and UpdateMetadata have it."""

    partition: TopicPartition
    leader_and_isr: LeaderAndIsr
    controller_epoch: int
    assignment: Assignment
    is_new: bool
    offline: tuple[int, ...]
    being_deleted: bool


class StopUpdate(NamedTuple):
    """One replica as StopReplica has it."""

    partition: TopicPartition
    leader_epoch: int
    delete: bool


class BrokerRequests(NamedTuple):
    """The requests to one broker; one that is None is not sent."""

    broker: int
    broker_epoch: int
    leader_and_isr: tuple[PartitionUpdate, ...] | None
    metadata: tuple[PartitionUpdate, ...] | None
    stop: tuple[StopUpdate, ...] | None


@dataclass(frozen=True, slots=True)
class SendRequests:
    """One LeaderAndIsr, one UpdateMetadata and one StopReplica for each broker, in this order."""

    requests: tuple[BrokerRequests, ...]
    brokers: Mapping[int, Broker]  # those that are registered
    topic_ids: Mapping[str, UUID]  # of the topics in the requests


# ------------------------------------------------------------------ requesters, and the shell


@dataclass(frozen=True, slots=True)
class Answer:
    """Respond to the request that is being settled."""

    answer: AnyAnswer


@dataclass(frozen=True, slots=True)
class RecordDecisions:
    """Enter decisions into the journal."""

    decisions: tuple[Decision, ...]


@dataclass(frozen=True, slots=True)
class Proceed:
    """Let other tasks run, then hand this to `Controller.handle`: the present event goes on."""

    step: Event


@dataclass(frozen=True, slots=True)
class Resign:
    """Another controller was elected: stop."""

    reason: str


Effect = (
    StoreStates
    | ReadTopics
    | WriteTopics
    | WriteAssignments
    | RemoveReassignments
    | RemoveElections
    | AskUnclean
    | ReadLogEnds
    | RemoveTopics
    | RemoveDeletions
    | Connect
    | Disconnect
    | SendRequests
    | Answer
    | RecordDecisions
    | Proceed
    | Resign
)


def in_slices(make: Callable[[tuple[T, ...]], Step], items: Iterable[T]) -> list[Effect]:
    """Steps that are made for `SLICE` of the items each."""
    left = iter(items)
    effects: list[Effect] = []
    while chunk := tuple(islice(left, SLICE)):
        effects.append(Proceed(make(chunk)))
    return effects


def then_store(effects: list[Effect]) -> list[Effect]:
    """These, then write the states that were proposed meanwhile."""
    return [*effects, Proceed(StoreProposals())]


def mapping_in_slices(make: Callable[[Mapping[K, V]], Step], items: Mapping[K, V]) -> list[Effect]:
    """As `in_slices`, for the items of a mapping."""
    return in_slices(lambda chunk: make(dict(chunk)), items.items())
