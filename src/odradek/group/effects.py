"""Effects of the group coordinator's state machine."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple

from odradek.model.errors import ErrorCode
from odradek.model.partition import TopicPartition
from odradek.record.batch import NO_SEQUENCE
from odradek.record.coordinator import SharedEffect

KeyAndValue = tuple[bytes, bytes | None]
_NO_ERRORS: Final[Mapping[TopicPartition, ErrorCode]] = MappingProxyType({})


class JoinedMember(NamedTuple):
    """A member as JoinGroup describes it to the leader of the group."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinAnswer(NamedTuple):
    """The answer to `Join`: the member's id and generation."""

    error: ErrorCode
    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


class SyncAnswer(NamedTuple):
    """The answer to `Sync`: the member's assignment."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class HeartbeatAnswer(NamedTuple):
    """The answer to `Heartbeat`: no more than an error."""

    error: ErrorCode


class LeaveAnswer(NamedTuple):
    """To `Leave`; `members` has the error of each."""

    error: ErrorCode
    members: tuple[ErrorCode, ...]


class PartitionsAnswer(NamedTuple):
    """To `CommitOffsets`, `DeleteGroup`, `DeleteOffsets`.

    `partitions` has those that have an error of their own; `error` is that of all others.
    """

    error: ErrorCode
    partitions: Mapping[TopicPartition, ErrorCode] = _NO_ERRORS

    def of(self, partition: TopicPartition) -> ErrorCode:
        """The error of one partition."""
        return self.partitions.get(partition, self.error)


AnyAnswer = JoinAnswer | SyncAnswer | HeartbeatAnswer | LeaveAnswer | PartitionsAnswer


class Answer(NamedTuple):
    """Answer a request that waits."""

    request: int
    answer: AnyAnswer


class Append(NamedTuple):
    """Append these records to the coordinator's partition, with acks=all.

    `Appended` with this number is the outcome. The records belong to the transaction of the
    producer, if one is named.
    """

    number: int
    group_id: str
    records: tuple[KeyAndValue, ...]
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = NO_SEQUENCE


@dataclass(frozen=True, slots=True)
class AppendTombstones:
    """Append tombstones of these keys, without an outcome: the next coordinator may repeat it."""

    keys: tuple[bytes, ...]


OwnEffect = Answer | Append | AppendTombstones
Effect = OwnEffect | SharedEffect
