"""The effects of the event that a group machine handles, and what its appends under way are for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from odradek.group.effects import (
    Answer,
    AnyAnswer,
    Append,
    AppendTombstones,
    Effect,
    KeyAndValue,
)
from odradek.group.events import Committer, Join
from odradek.group.group import Group, Member
from odradek.group.protocols import Protocols
from odradek.group.records import CommittedOffset
from odradek.model.clock import MonotonicMs, Now, WallMs
from odradek.model.errors import ErrorCode
from odradek.model.partition import TopicPartition
from odradek.record.batch import NO_SEQUENCE
from odradek.record.coordinator import Note

_TOMBSTONES_AT_ONCE: Final = 1_000
_NO_COMMITTER: Final = Committer()


@dataclass(slots=True, eq=False)
class AssignmentAppend:
    """The assignment of a generation is appended."""

    group: Group
    generation: int
    assignments: Mapping[str, bytes]


@dataclass(slots=True, eq=False)
class EmptyAppend:
    """A group is appended whose last member has left."""

    group: Group


class FormerMember(NamedTuple):
    """A static member before it joined under another member id; and the leader then."""

    member_id: str
    protocols: Protocols
    session_timeout_ms: int
    rebalance_timeout_ms: int
    leader: str


@dataclass(slots=True, eq=False)
class ReplacementAppend:
    """A stable group is appended in which a static member has another member id."""

    group: Group
    member: Member
    join: Join
    former: FormerMember


@dataclass(slots=True, eq=False)
class OffsetsAppend:
    """Offsets are appended; `refused` has those that are not among them."""

    request: int
    group: Group
    committer: Committer
    offsets: Mapping[TopicPartition, CommittedOffset]
    refused: Mapping[TopicPartition, ErrorCode]


GroupAppend = AssignmentAppend | EmptyAppend | ReplacementAppend
AnyAppend = GroupAppend | OffsetsAppend


class Outbox:
    """Shared by the parts of one `GroupMachine`."""

    def __init__(self) -> None:
        self.now = Now(MonotonicMs(0), WallMs(0))  # of the event that is handled
        self.appends: dict[int, AnyAppend] = {}  # under way, by number
        self._append_count = 0
        self._effects: list[Effect] = []

    def take(self) -> list[Effect]:
        """The effects since the last call."""
        effects, self._effects = self._effects, []
        return effects

    def add(self, effect: Effect) -> None:
        """Ask for this, after all before it."""
        self._effects.append(effect)

    def answer(self, request: int, answer: AnyAnswer) -> None:
        self._effects.append(Answer(request, answer))

    def note(self, text: str) -> None:
        """Write a line to the log of the broker."""
        self._effects.append(Note(text))

    def append_group(self, record: KeyAndValue, purpose: GroupAppend) -> None:
        self._append(purpose, (record,), _NO_COMMITTER, NO_SEQUENCE)

    def append_offsets(self, records: Sequence[KeyAndValue], purpose: OffsetsAppend) -> None:
        """Append offsets: with sequence 0, as Kafka, in transactions and without."""
        self._append(purpose, tuple(records), purpose.committer, 0)

    def _append(
        self,
        purpose: AnyAppend,
        records: tuple[KeyAndValue, ...],
        committer: Committer,
        base_sequence: int,
    ) -> None:
        self._append_count += 1
        self.appends[self._append_count] = purpose
        self._effects.append(
            Append(
                self._append_count,
                purpose.group.group_id,
                records,
                committer.producer_id,
                committer.producer_epoch,
                base_sequence,
            )
        )

    def append_tombstones(self, keys: Sequence[bytes]) -> None:
        """Append tombstones, so many in a batch."""
        for first in range(0, len(keys), _TOMBSTONES_AT_ONCE):
            self._effects.append(AppendTombstones(tuple(keys[first : first + _TOMBSTONES_AT_ONCE])))
