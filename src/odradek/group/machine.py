"""The group coordinator of one partition of `__consumer_offsets`: events in, effects out.

    members and generations    `odradek.group.membership`
    offsets                    `odradek.group.commits`
    both, from the log         `odradek.group.replay`

`handle` is the only way in. Heartbeats and commits come by the thousand, and go the same way.
"""

from collections.abc import Mapping
from typing import assert_never

from odradek.group.commits import Commits
from odradek.group.effects import Effect
from odradek.group.events import (
    Appended,
    CommitOffsets,
    DeadlineReached,
    DeleteGroup,
    DeleteOffsets,
    Event,
    ExpirationDue,
    Heartbeat,
    Join,
    Leave,
    Sync,
    TopicsDeleted,
    TransactionEnded,
)
from odradek.group.group import Group
from odradek.group.membership import Membership
from odradek.group.options import GroupOptions
from odradek.group.outbox import OffsetsAppend, Outbox
from odradek.group.records import CommittedOffset
from odradek.group.replay import Replay
from odradek.model.clock import Now
from odradek.model.errors import ApiError, MalformedRequestError
from odradek.model.partition import TopicPartition
from odradek.record.coordinator import (
    Loaded,
    MarkerReplayed,
    RecordSkipped,
    Replayed,
    Resigned,
)


class GroupMachine:
    """The groups of one partition, for one leader epoch."""

    def __init__(self, options: GroupOptions) -> None:
        self.groups: dict[str, Group] = {}  # to be read only
        # By producer id: the groups in which its open transaction has offsets.
        transactions: dict[int, set[str]] = {}
        self._out = Outbox()
        self._membership = Membership(self.groups, options, self._out)
        self._commits = Commits(self.groups, transactions, self._membership, options, self._out)
        self._replay = Replay(self.groups, transactions)

    def handle(  # noqa: C901, PLR0912 - one case for each kind of event
        self, event: Event, now: Now
    ) -> list[Effect]:
        """Take one event; return what is to be done about it, in this order."""
        self._out.now = now
        match event:
            case Heartbeat():
                self._membership.heartbeat(event)
            case CommitOffsets():
                self._commits.commit(event)
            case Appended():
                self._appended(event)
            case Replayed():
                self._replayed(event)
            case TransactionEnded(producer_id, committed) | MarkerReplayed(producer_id, committed):
                self._commits.transaction_ended(producer_id, committed=committed)
            case Join():
                self._membership.join(event)
            case Sync():
                self._membership.sync(event)
            case Leave():
                self._membership.leave(event)
            case DeadlineReached():
                self._membership.deadline_reached()
            case ExpirationDue(group_id):
                self._commits.expire(group_id)
            case TopicsDeleted(group_id, topics):
                self._commits.topics_deleted(group_id, topics)
            case DeleteGroup(request, group_id):
                self._commits.delete_group(request, group_id)
            case DeleteOffsets():
                self._commits.delete_offsets(event)
            case Loaded():
                self._loaded()
            case Resigned():
                self._resigned()
            case _:
                assert_never(event)
        return self._out.take()

    def _appended(self, event: Appended) -> None:
        append = self._out.appends.pop(event.number, None)
        if isinstance(append, OffsetsAppend):
            self._commits.appended(append, event.error)
        elif append is not None:
            self._membership.appended(append, event.error)

    def _replayed(self, event: Replayed) -> None:
        for record in event.records:
            try:
                self._replay.record(record, event.producer_id)
            except (ApiError, MalformedRequestError) as error:
                self._out.add(RecordSkipped(record.offset, str(error)))

    def _loaded(self) -> None:
        self._replay.end()
        self._commits.next_order = self._replay.next_order
        self._membership.loaded()

    def _resigned(self) -> None:
        """Answer the requests that wait; commits wait for the outcomes of their appends."""
        self._membership.resigned()
        appends = self._out.appends
        for number in [n for n, each in appends.items() if not isinstance(each, OffsetsAppend)]:
            del appends[number]

    def validate(self) -> None:
        """Check what holds after every event: called by the simulator and by tests.

        Raises:
            InvariantError: something does not hold.
        """
        self._commits.validate()

    # ---------------------------------------------------------------------- queries

    @property
    def next_deadline_ms(self) -> int | None:
        """When `DeadlineReached` is to be handed in, by the monotonic clock."""
        return self._membership.next_deadline_ms

    def committed_offsets(self, group_id: str) -> Mapping[TopicPartition, CommittedOffset]:
        group = self.groups.get(group_id)
        return group.offsets.committed if group is not None else {}

    def is_unstable(self, group_id: str, partition: TopicPartition) -> bool:
        """Whether a commit is staged or pending that may change this offset."""
        group = self.groups.get(group_id)
        return group is not None and group.offsets.is_unstable(partition)
