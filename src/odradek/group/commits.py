"""Commits of the groups that one partition of `__consumer_offsets` coordinates.

A commit is accepted from a member of the current generation; without a generation it is accepted
while the group has no members. It is staged, appended, and settled when the outcome is known.
Within a transaction it is pending until the marker.

Offsets expire `offsets.retention.minutes` after the last member left the group, or after they were
committed, if that was later. Offsets that a stable group of consumers does not subscribe to, and
those of consumers without a group, expire so long after they were committed (KIP-211). An offset
does not expire while another commit for its partition is staged or pending. A group without members
and offsets is removed.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from odradek.group.effects import KeyAndValue, PartitionsAnswer
from odradek.group.events import CommitOffsets, Committer, DeleteOffsets
from odradek.group.group import UNKNOWN_MS, Group, GroupState
from odradek.group.membership import Membership
from odradek.group.options import GroupOptions
from odradek.group.outbox import OffsetsAppend, Outbox
from odradek.group.protocols import CONSUMER_PROTOCOL
from odradek.group.records import (
    CommittedOffset,
    encode_group_key,
    encode_offset_key,
    encode_offset_value,
    is_too_long,
)
from odradek.model.errors import ErrorCode
from odradek.model.invariants import hold
from odradek.model.partition import TopicPartition

_NONE: Final = ErrorCode.NONE
# What a failed append is answered with, as Kafka translates it. Other errors stay as they are.
_APPEND_ERRORS: Final[Mapping[ErrorCode, ErrorCode]] = {
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}


class Commits:
    """The committed offsets of the groups of one partition."""

    def __init__(
        self,
        groups: dict[str, Group],
        transactions: dict[int, set[str]],
        membership: Membership,
        options: GroupOptions,
        outbox: Outbox,
    ) -> None:
        """`transactions` has, by producer id, the groups in which offsets are pending."""
        self.next_order = 0
        self._groups = groups
        self._transactions = transactions
        self._membership = membership
        self._options = options
        self._out = outbox

    def validate(self) -> None:
        """Check what holds after every event.

        Raises:
            InvariantError: something does not hold.
        """
        for name, group in self._groups.items():
            hold(group.group_id == name, group.group_id, f"is under {name}")
            hold(group.state is not GroupState.DEAD, name, "is removed")
            group.validate()
            for producer_id in group.offsets.pending_producers():
                known = name in self._transactions.get(producer_id, ())
                hold(known, name, f"its transaction of producer {producer_id} is not known")

    # ------------------------------------------------------------------------ commits

    def commit(self, event: CommitOffsets) -> None:
        """Stage and append what is accepted."""
        committer = event.committer
        group = self._groups.get(event.group_id)
        error = _NONE
        if group is None:
            if committer.generation >= 0 and not committer.is_transactional:
                error = ErrorCode.ILLEGAL_GENERATION
            group = Group(event.group_id)
        error = error or self._check_committer(group, committer)
        if error is not _NONE:
            self._out.answer(event.request, PartitionsAnswer(error))
            return
        offsets, refused = self._split(event.offsets)
        if not offsets:
            self._out.answer(event.request, PartitionsAnswer(_NONE, refused))
            return
        self._groups[group.group_id] = group
        if committer.is_transactional:
            group.offsets.stage_in_transaction(committer.producer_id, offsets)
            self._transactions.setdefault(committer.producer_id, set()).add(group.group_id)
        else:
            group.offsets.stage(offsets)
        group_id = group.group_id
        records: list[KeyAndValue] = [
            (encode_offset_key(group_id, partition[0], partition[1]), encode_offset_value(offset))
            for partition, offset in offsets.items()
        ]
        append = OffsetsAppend(event.request, group, committer, offsets, refused)
        self._out.append_offsets(records, append)

    def _split(
        self, asked: Mapping[TopicPartition, CommittedOffset]
    ) -> tuple[dict[TopicPartition, CommittedOffset], dict[TopicPartition, ErrorCode]]:
        """Those to append, with their order in the log; and those whose metadata is too long."""
        chars_max = self._options.offset_metadata_chars_max
        refused: dict[TopicPartition, ErrorCode] = {}
        offsets: dict[TopicPartition, CommittedOffset] = {}
        for partition, offset in asked.items():
            text = offset.metadata
            if len(text) > chars_max or is_too_long(text):
                refused[partition] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                offsets[partition] = offset.at(self.next_order)
                self.next_order += 1
        return offsets, refused

    def _check_committer(self, group: Group, committer: Committer) -> ErrorCode:
        state = group.state
        if committer.generation < 0 and state is GroupState.EMPTY:
            return _NONE  # an administrator, or a consumer that assigns itself, under any name
        transactional = committer.is_transactional
        if committer.is_member:
            error = group.check_member(committer.member_id, committer.group_instance_id)
            if error is _NONE and committer.generation != group.generation:
                error = ErrorCode.ILLEGAL_GENERATION
        else:
            error = _NONE if transactional else ErrorCode.UNKNOWN_MEMBER_ID
        if error is not _NONE or transactional:
            return error
        if state is GroupState.COMPLETING_REBALANCE:
            # The member has the generation, and not yet its assignment in it.
            return ErrorCode.REBALANCE_IN_PROGRESS
        self._membership.restart_session(group, group.members[committer.member_id])
        return _NONE

    def appended(self, append: OffsetsAppend, error: ErrorCode) -> None:
        """Settle a commit, and answer it."""
        group, committer = append.group, append.committer
        if not committer.is_transactional:
            group.offsets.settle(append.offsets, appended=error is _NONE)
        elif error is not ErrorCode.REQUEST_TIMED_OUT:
            group.offsets.settle_in_transaction(
                committer.producer_id, append.offsets, appended=error is _NONE
            )
        if not group.members and group.is_blank and self._groups.get(group.group_id) is group:
            del self._groups[group.group_id]
        answer = PartitionsAnswer(_APPEND_ERRORS.get(error, error), append.refused)
        self._out.answer(append.request, answer)

    def transaction_ended(self, producer_id: int, *, committed: bool) -> None:
        """The pending offsets of the producer become committed, or are dropped."""
        for group_id in sorted(self._transactions.pop(producer_id, ())):
            group = self._groups.get(group_id)
            if group is not None:
                group.offsets.transaction_ended(producer_id, committed=committed)

    # ------------------------------------------------------------------------ removal

    def delete_group(self, request: int, group_id: str) -> None:
        """Remove a group without members, and its offsets."""
        group = self._groups.get(group_id)
        error = _NONE
        if group is None:
            error = ErrorCode.GROUP_ID_NOT_FOUND
        elif group.state is not GroupState.EMPTY:
            error = ErrorCode.NON_EMPTY_GROUP
        else:
            self._removed(group, group.offsets.remove_all())
        self._out.answer(request, PartitionsAnswer(error))

    def delete_offsets(self, event: DeleteOffsets) -> None:
        """Remove offsets, but for topics that consumers of the group subscribe to."""
        group = self._groups.get(event.group_id)
        if group is None:
            self._out.answer(event.request, PartitionsAnswer(ErrorCode.GROUP_ID_NOT_FOUND))
            return
        subscribed: frozenset[str] | None = frozenset()
        if group.state is not GroupState.EMPTY:
            if group.protocol_type != CONSUMER_PROTOCOL:
                self._out.answer(event.request, PartitionsAnswer(ErrorCode.NON_EMPTY_GROUP))
                return
            subscribed = group.subscribed
        errors = {
            partition: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            if subscribed is None or partition[0] in subscribed
            else _NONE
            for partition in event.partitions
        }
        removed = group.offsets.remove(each for each, error in errors.items() if not error)
        self._removed(group, removed)
        self._out.answer(event.request, PartitionsAnswer(_NONE, errors))

    def topics_deleted(self, group_id: str, topics: frozenset[str]) -> None:
        group = self._groups.get(group_id)
        if group is None:
            return
        partitions = [each for each in group.offsets.partitions() if each[0] in topics]
        if partitions:
            self._removed(group, group.offsets.remove(partitions))

    def expire(self, group_id: str) -> None:
        """Remove the offsets of a group whose retention is over."""
        group = self._groups.get(group_id)
        if group is not None:
            self._removed(group, group.offsets.remove(self._expired(group)))

    def _expired(self, group: Group) -> Iterable[TopicPartition]:
        offsets, retention_ms = group.offsets, self._options.offsets_retention_ms
        wall_ms = self._out.now.wall_ms
        if group.protocol_type is None:
            return offsets.expired(
                wall_ms=wall_ms, retention_ms=retention_ms, since=_commit_timestamp
            )
        if group.state is GroupState.EMPTY:
            # -1 in records of old versions, which do not have when the last member left.
            empty_since_ms = group.state_timestamp_ms
            return offsets.expired(
                wall_ms=wall_ms,
                retention_ms=retention_ms,
                # An offset may be committed to a group that is empty for days. Kafka expires it
                # at the next look, together with the older ones.
                since=lambda offset: max(empty_since_ms, offset.commit_timestamp_ms),
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
        return ()

    def _removed(self, group: Group, partitions: Iterable[TopicPartition]) -> None:
        """Append the tombstones; the group's own, too, if nothing of it is left."""
        keys = [encode_offset_key(group.group_id, *partition) for partition in partitions]
        if group.state is GroupState.EMPTY and not group.offsets and not group.pending_joins:
            group.enter(GroupState.DEAD, wall_ms=UNKNOWN_MS)
            del self._groups[group.group_id]
            if group.generation:  # else there is no record of it
                keys.append(encode_group_key(group.group_id))
        self._out.append_tombstones(keys)


def _commit_timestamp(offset: CommittedOffset) -> int:
    return offset.commit_timestamp_ms
