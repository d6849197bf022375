"""The group coordinator of one partition of `__consumer_offsets`.

    members and generations    `odradek.group.membership`: events in, effects out
    positions                  here: plain calls, for they come by the thousand
    both, from a log           `odradek.group.replay`

A commit is taken from a member of the present generation, or, without a generation, from anybody
while the group has no members. It is prepared (`commit`), appended by whoever asked, and settled
(`settle`). Within a transaction it waits for the marker (`transaction_ended`).

Offsets expire `offsets.retention.minutes` after the group lost its last member, or after they were
committed, if that was later; those that a stable group of consumers does not subscribe to, and
those of consumers without a group, so long after they were committed (KIP-211). An offset whose
next commit is staged or pending does not expire. A group without members and offsets is forgotten.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from odradek.group.effects import Effect, Erase, Event, KeyAndValue, Loaded, Now
from odradek.group.group import Group, GroupState
from odradek.group.membership import Membership
from odradek.group.offsets import Commits, Place
from odradek.group.options import GroupOptions
from odradek.group.protocols import CONSUMER_PROTOCOL
from odradek.group.records import (
    STRING_BYTES_MAX,
    Committed,
    encode_group_key,
    encode_offset_key,
    encode_offset_value,
)
from odradek.group.replay import Replay
from odradek.model.errors import ErrorCode
from odradek.record.records import Record

_NONE: Final = ErrorCode.NONE
_ERASED_AT_ONCE: Final = 1_000
NO_PRODUCER: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Committer:
    """Who commits: a member of a generation, or somebody without a group ("" and -1)."""

    member_id: str = ""
    generation: int = -1
    group_instance_id: str | None = None
    producer_id: int = NO_PRODUCER  # in whose transaction

    @property
    def is_member(self) -> bool:
        """Whether it claims to be one."""
        return bool(self.member_id) or self.generation >= 0 or self.group_instance_id is not None


@dataclass(slots=True, eq=False)
class Commit:
    """A commit on its way: what to append, and what was refused at once."""

    group: Group
    commits: Commits
    records: list[KeyAndValue]
    refused: dict[Place, ErrorCode]
    producer_id: int


class GroupMachine:
    """All groups of one partition. A `Mind` of its log."""

    def __init__(self, options: GroupOptions) -> None:
        self.groups: dict[str, Group] = {}
        self._options = options
        self.membership = Membership(self.groups, options)
        # Of a producer with an open transaction: the groups in which it has positions pending.
        self._transactions: dict[int, set[str]] = {}
        self._replay = Replay(self.groups, self._transactions)
        self._next_order = 0

    # ---------------------------------------------------------------------- membership

    def handle(self, event: Event, now: Now) -> list[Effect]:
        """Take one event in; give back what has to be done about it."""
        if isinstance(event, Loaded):
            self._replay.end()
            self._next_order = self._replay.next_order
        return self.membership.handle(event, now)

    @property
    def next_deadline_ms(self) -> int | None:
        """When to say `Tick`, by the monotonic clock."""
        return self.membership.next_deadline_ms

    def heartbeat(
        self,
        group_id: str,
        generation: int,
        member_id: str,
        group_instance_id: str | None,
        now_ms: int,
    ) -> ErrorCode:
        """A member lives. Whether it is one, and may go on as it is."""
        return self.membership.heartbeat(group_id, generation, member_id, group_instance_id, now_ms)

    # ------------------------------------------------------------------------- replay

    def replay(self, record: Record, producer_id: int) -> None:
        """See `odradek.group.replay`."""
        self._replay.record(record, producer_id)

    def replay_marker(self, producer_id: int, *, committed: bool) -> None:
        """A transaction ended here."""
        self.transaction_ended(producer_id, committed=committed)

    # ------------------------------------------------------------------------ commits

    def commit(
        self, group_id: str, who: Committer, positions: Mapping[Place, Committed], now: Now
    ) -> Commit | ErrorCode:
        """Prepare to append positions; or why nothing of it is taken."""
        group = self.groups.get(group_id)
        transactional = who.producer_id != NO_PRODUCER
        if group is None:
            if who.generation >= 0 and not transactional:
                return ErrorCode.ILLEGAL_GENERATION
            group = Group(group_id)
        error = self._check_committer(group, who, transactional=transactional, now=now)
        if error is not _NONE:
            return error
        chars_max = self._options.offset_metadata_chars_max
        refused: dict[Place, ErrorCode] = {}
        commits: dict[Place, Committed] = {}
        for place, position in positions.items():
            text = position.metadata
            if len(text) > chars_max or len(text.encode()) > STRING_BYTES_MAX:
                refused[place] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                commits[place] = position._replace(order=self._next_order)
                self._next_order += 1
        if commits:
            self.groups[group_id] = group
            if transactional:
                group.offsets.stage_in_transaction(who.producer_id, commits)
                self._transactions.setdefault(who.producer_id, set()).add(group_id)
            else:
                group.offsets.stage(commits)
        records: list[KeyAndValue] = [
            (encode_offset_key(group_id, *place), encode_offset_value(position))
            for place, position in commits.items()
        ]
        return Commit(group, commits, records, refused, who.producer_id)

    def _check_committer(
        self, group: Group, who: Committer, *, transactional: bool, now: Now
    ) -> ErrorCode:
        state = group.state
        if who.generation < 0 and state is GroupState.EMPTY:
            return _NONE  # an administrator, or a consumer that assigns itself, whatever its name
        if who.is_member:
            error = group.check_member(who.member_id, who.group_instance_id)
            if error is _NONE and who.generation != group.generation:
                error = ErrorCode.ILLEGAL_GENERATION
        else:
            error = _NONE if transactional else ErrorCode.UNKNOWN_MEMBER_ID
        if error is not _NONE or transactional:
            return error
        if state is GroupState.COMPLETING_REBALANCE:
            # It knows of the generation, and does not know yet what it will be given in it.
            return ErrorCode.REBALANCE_IN_PROGRESS
        self.membership.heard(group, group.members[who.member_id], now.monotonic_ms)
        return _NONE

    def settle(self, commit: Commit, error: ErrorCode) -> None:
        """What became of an append."""
        offsets = commit.group.offsets
        if commit.producer_id == NO_PRODUCER:
            offsets.settle(commit.commits, appended=error is _NONE)
        elif error is not ErrorCode.REQUEST_TIMED_OUT:
            offsets.settle_in_transaction(
                commit.producer_id, commit.commits, appended=error is _NONE
            )
        group = commit.group
        if group.is_blank and not group.members and self.groups.get(group.group_id) is group:
            del self.groups[group.group_id]

    def transaction_ended(self, producer_id: int, *, committed: bool) -> None:
        """A marker stands in this partition: the producer's pending positions count, or go."""
        for group_id in sorted(self._transactions.pop(producer_id, ())):
            group = self.groups.get(group_id)
            if group is not None:
                group.offsets.transaction_ended(producer_id, committed=committed)

    # ---------------------------------------------------------------------- questions

    def positions(self, group_id: str) -> Mapping[Place, Committed]:
        """What the group has committed."""
        group = self.groups.get(group_id)
        return group.offsets.committed if group is not None else {}

    def is_unstable(self, group_id: str, place: Place) -> bool:
        """Something is on its way that may change this position."""
        group = self.groups.get(group_id)
        return group is not None and group.offsets.is_unstable(place)

    # ------------------------------------------------------------------------ removal

    def delete_group(self, group_id: str) -> tuple[ErrorCode, list[Effect]]:
        """Forget a group that has no members."""
        group = self.groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND, []
        if group.state is not GroupState.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP, []
        return _NONE, self._erased(group, group.offsets.remove_all())

    def delete_offsets(
        self, group_id: str, places: Iterable[Place]
    ) -> tuple[ErrorCode, dict[Place, ErrorCode], list[Effect]]:
        """Forget positions; what consumers of the group subscribe to stays."""
        group = self.groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND, {}, []
        subscribed: frozenset[str] | None = frozenset()
        if group.state is not GroupState.EMPTY:
            if group.protocol_type != CONSUMER_PROTOCOL:
                return ErrorCode.NON_EMPTY_GROUP, {}, []
            subscribed = group.subscribed
        errors = {
            place: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            if subscribed is None or place[0] in subscribed
            else _NONE
            for place in places
        }
        removed = group.offsets.remove(place for place, error in errors.items() if not error)
        return _NONE, errors, self._erased(group, removed)

    def topics_deleted(self, topics: frozenset[str]) -> Iterator[list[Effect]]:
        """Forget what was committed for topics that are gone. One step for each group."""
        for group in list(self.groups.values()):
            places = [place for place in group.offsets.places() if place[0] in topics]
            yield self._erased(group, group.offsets.remove(places)) if places else []

    def expiring(self, wall_ms: int) -> Iterator[list[Effect]]:
        """Forget what nobody has wanted for long. One step for each group."""
        for group in list(self.groups.values()):
            if self.groups.get(group.group_id) is group:
                yield self._erased(group, group.offsets.remove(self._expired(group, wall_ms)))

    def _expired(self, group: Group, wall_ms: int) -> list[Place]:
        offsets, retention_ms = group.offsets, self._options.offsets_retention_ms
        if group.protocol_type is None:
            return offsets.expired(
                wall_ms=wall_ms, retention_ms=retention_ms, since=_commit_timestamp
            )
        if group.state is GroupState.EMPTY:
            # -1 in records of old versions, which do not say when the last member left.
            left_ms = group.state_timestamp_ms
            return offsets.expired(
                wall_ms=wall_ms,
                retention_ms=retention_ms,
                # An offset may be committed to a group that has been empty for days: Kafka lets
                # it expire at its next look, together with the older ones.
                since=lambda commit: max(left_ms, commit.commit_timestamp_ms),
            )
        if (
            group.state is GroupState.STABLE
            and group.protocol_type == CONSUMER_PROTOCOL
            and group.subscribed is not None
        ):
            return offsets.expired(
                wall_ms=wall_ms,
                retention_ms=retention_ms,
                since=_commit_timestamp,
                spared=group.subscribed,
            )
        return []

    def _erased(self, group: Group, places: list[Place]) -> list[Effect]:
        keys = [encode_offset_key(group.group_id, *place) for place in places]
        if group.state is GroupState.EMPTY and not group.offsets and not group.pending_joins:
            group.enter(GroupState.DEAD, wall_ms=-1)
            del self.groups[group.group_id]
            if group.generation:  # else nothing was ever written of it
                keys.append(encode_group_key(group.group_id))
        return [
            Erase(tuple(keys[first : first + _ERASED_AT_ONCE]))
            for first in range(0, len(keys), _ERASED_AT_ONCE)
        ]


def _commit_timestamp(commit: Committed) -> int:
    return commit.commit_timestamp_ms
