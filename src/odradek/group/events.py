"""Events of the group coordinator's state machine.

`request` is the number of the request that waits; the `Answer` to it has the same.

Events that come by the thousand are NamedTuples: one is made in a quarter of the time that a frozen
dataclass takes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from odradek.group.protocols import Protocols
from odradek.group.records import CommittedOffset
from odradek.model.errors import ErrorCode
from odradek.model.partition import TopicPartition
from odradek.record.coordinator import Loaded, MarkerReplayed, Replayed, Resigned

NOT_PROVIDED: Final = "not provided"  # a client's reason, where it gives none
NO_PRODUCER: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """JoinGroup: a member enters the group, or joins again for a rebalance."""

    request: int
    group_id: str
    member_id: str  # "": it has none yet,
    fresh_member_id: str  # and this one is drawn for it
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    can_be_given_id: bool = True  # MEMBER_ID_REQUIRED may be the answer (v4)
    can_skip_assignment: bool = True  # v9
    reason: str = NOT_PROVIDED


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """SyncGroup: a member fetches its assignment; the leader brings those of all members."""

    request: int
    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None  # None: not in the request (before v5), and not checked
    protocol: str | None = None
    assignments: Mapping[str, bytes] = field(default_factory=dict)


class Heartbeat(NamedTuple):
    """Heartbeat: the session of a member begins again."""

    request: int
    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeavingMember:
    """A member that leaves: by its member id, or a static one by its instance id alone."""

    member_id: str
    group_instance_id: str | None = None
    reason: str = NOT_PROVIDED


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """LeaveGroup: each of these members succeeds or fails on its own."""

    request: int
    group_id: str
    members: tuple[LeavingMember, ...]


class Committer(NamedTuple):
    """The member of a generation that commits; or a client without a group ("" and -1)."""

    member_id: str = ""
    generation: int = -1
    group_instance_id: str | None = None
    producer_id: int = NO_PRODUCER  # whose transaction the offsets belong to
    producer_epoch: int = -1

    @property
    def is_member(self) -> bool:
        """Whether it names a member or a generation."""
        return bool(self.member_id) or self.generation >= 0 or self.group_instance_id is not None

    @property
    def is_transactional(self) -> bool:
        """Whether the offsets belong to a transaction."""
        return self.producer_id != NO_PRODUCER


class CommitOffsets(NamedTuple):
    """OffsetCommit, or TxnOffsetCommit with the producer's id."""

    request: int
    group_id: str
    committer: Committer
    offsets: Mapping[TopicPartition, CommittedOffset]


@dataclass(frozen=True, slots=True)
class TransactionEnded:
    """The marker of a producer's transaction is committed in this partition of the log."""

    producer_id: int
    committed: bool


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """DeleteGroups: remove a group without members."""

    request: int
    group_id: str


@dataclass(frozen=True, slots=True)
class DeleteOffsets:
    """OffsetDelete: remove offsets; those of topics that consumers subscribe to are kept."""

    request: int
    group_id: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class TopicsDeleted:
    """Remove the offsets of a group in topics that are deleted."""

    group_id: str
    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class ExpirationDue:
    """Remove the offsets of a group whose retention is over."""

    group_id: str


class Appended(NamedTuple):
    """Outcome of the `Append` of this number."""

    number: int
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class DeadlineReached:
    """A deadline of a member or a rebalance (`next_deadline_ms`) has passed."""


Event = (
    Join
    | Sync
    | Heartbeat
    | Leave
    | CommitOffsets
    | TransactionEnded
    | DeleteGroup
    | DeleteOffsets
    | TopicsDeleted
    | ExpirationDue
    | Appended
    | DeadlineReached
    | Replayed
    | MarkerReplayed
    | Loaded
    | Resigned
)
