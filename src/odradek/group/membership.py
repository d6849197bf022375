"""Members and generations of the groups that one partition of `__consumer_offsets` coordinates.

    JoinGroup    members send their protocols; when all have joined, a generation begins
    SyncGroup    its leader sends the assignments; when they are stored, each member gets its own
    Heartbeat    prolongs a member's session; the answer says whether the group rebalances
    LeaveGroup   members leave; a member whose session times out is removed as well

A rebalance begins when a member joins, leaves, or changes its protocols. It ends when all members
have joined, or when the longest rebalance timeout of the members is over: then members that have
not joined are removed, except static members, which stay for their session timeout. An assignment
is given to members when it is stored, not former.

A heartbeat sets no timer: it moves the member's deadline. A timer that fires before the deadline is
set again.
"""

from collections.abc import Mapping
from heapq import heappop, heappush
from typing import Final, assert_never

from odradek.group.effects import (
    HeartbeatAnswer,
    JoinAnswer,
    JoinedMember,
    LeaveAnswer,
    SyncAnswer,
)
from odradek.group.events import NOT_PROVIDED, Heartbeat, Join, Leave, LeavingMember, Sync
from odradek.group.group import Group, GroupState, Joining, Member
from odradek.group.options import GroupOptions
from odradek.group.outbox import (
    AssignmentAppend,
    EmptyAppend,
    FormerMember,
    GroupAppend,
    Outbox,
    ReplacementAppend,
)
from odradek.group.records import encode_group_key, encode_group_value
from odradek.model.errors import ErrorCode

_NONE: Final = ErrorCode.NONE
_PREPARING: Final = GroupState.PREPARING_REBALANCE
_COMPLETING: Final = GroupState.COMPLETING_REBALANCE
# A new member has no id to send heartbeats with, and its JoinGroup may wait for long.
NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60 * 1000
# A client that gets a member id and does not use it is dropped after its session timeout; this
# limits how many there are until then.
PENDING_JOINS_MAX: Final = 10_000
# What a failed append does to the group, as Kafka translates it. Other errors stay as they are.
_APPEND_ERRORS: Final = {
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


class Membership:
    """The members of the groups of one partition."""

    def __init__(self, groups: dict[str, Group], options: GroupOptions, outbox: Outbox) -> None:
        self._options = options
        self._groups = groups
        self._out = outbox
        # Deadline, number, group; and of what: a member's id, a rebalance, or a generation.
        self._timers: list[tuple[int, int, str, str | Joining | int]] = []
        self._timer_count = 0

    @property
    def next_deadline_ms(self) -> int | None:
        """When `DeadlineReached` is to be handed in, by the monotonic clock."""
        return self._timers[0][0] if self._timers else None

    # ------------------------------------------------------------------------ heartbeats

    def heartbeat(self, event: Heartbeat) -> None:
        """Prolong the session of a member."""
        self._out.answer(event.request, HeartbeatAnswer(self._heartbeat(event)))

    def _heartbeat(self, event: Heartbeat) -> ErrorCode:
        group = self._groups.get(event.group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = group.check_member(event.member_id, event.group_instance_id)
        if error is not _NONE:
            return error
        if event.generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        self.restart_session(group, group.members[event.member_id])
        return ErrorCode.REBALANCE_IN_PROGRESS if group.state is _PREPARING else _NONE

    def restart_session(self, group: Group, member: Member) -> None:
        """The session of a member begins again."""
        self._expect(group, member, member.session_timeout_ms)

    def _expect(self, group: Group, member: Member, timeout_ms: int) -> None:
        member.deadline_ms = self._out.now.monotonic_ms + timeout_ms
        if member.timer_ms is None or member.timer_ms > member.deadline_ms:
            member.timer_ms = member.deadline_ms
            self._set_timer(member.deadline_ms, group, member.member_id)

    def _set_timer(self, deadline_ms: int, group: Group, whose: str | Joining | int) -> None:
        self._timer_count += 1
        heappush(self._timers, (deadline_ms, self._timer_count, group.group_id, whose))

    # -------------------------------------------------------------------------- JoinGroup

    def join(self, event: Join) -> None:
        """Add a member, or take note that it has joined; the answer may come later."""
        options = self._options
        if not (
            options.session_timeout_ms_min
            <= event.session_timeout_ms
            <= options.session_timeout_ms_max
        ):
            self._refuse_join(event, ErrorCode.INVALID_SESSION_TIMEOUT)
            return
        group = self._groups.get(event.group_id)
        if group is None:
            if event.member_id:
                self._refuse_join(event, ErrorCode.UNKNOWN_MEMBER_ID)
                return
            group = self._groups[event.group_id] = Group(event.group_id)
        if not self._has_room_for(group, event.member_id):
            self._remove(group, event.member_id)
            self._refuse_join(event, ErrorCode.GROUP_MAX_SIZE_REACHED, member_id="")
        elif not group.supports(event.protocol_type, [name for name, _ in event.protocols]):
            self._refuse_join(event, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif not event.member_id:
            self._join_as_new(group, event)
        elif event.member_id in group.pending_joins and event.group_instance_id is None:
            self._add(group, event, event.member_id)
        else:
            self._join_again(group, event)
        self._join_may_be_complete(group)
        if group.is_blank and not group.members:
            del self._groups[group.group_id]

    def _has_room_for(self, group: Group, member_id: str) -> bool:
        size_max = self._options.size_max
        member = group.members.get(member_id)
        if group.state is GroupState.EMPTY:
            return True
        if group.state is _PREPARING:
            # The size may be above a limit that was lowered: the members that join last are
            # refused.
            rejoined = member is not None and member.join_request is not None
            return rejoined or group.awaiting_join < size_max
        return member is not None or len(group.members) < size_max

    def _join_as_new(self, group: Group, event: Join) -> None:
        if event.group_instance_id is not None:
            known = group.static_members.get(event.group_instance_id)
            if known is not None:
                self._rejoin_as_static(group, group.members[known], event)
            else:
                self._add(group, event, event.fresh_member_id)
        elif event.can_be_given_id:
            self._await_with_id(group, event)
        else:
            self._add(group, event, event.fresh_member_id)

    def _await_with_id(self, group: Group, event: Join) -> None:
        if len(group.pending_joins) >= PENDING_JOINS_MAX:
            group.pending_joins.pop(next(iter(group.pending_joins)))
        deadline_ms = self._out.now.monotonic_ms + event.session_timeout_ms
        group.pending_joins[event.fresh_member_id] = deadline_ms
        self._set_timer(deadline_ms, group, event.fresh_member_id)
        self._refuse_join(event, ErrorCode.MEMBER_ID_REQUIRED, member_id=event.fresh_member_id)

    def _add(self, group: Group, event: Join, member_id: str) -> None:
        member = Member(
            member_id=member_id,
            group_instance_id=event.group_instance_id,
            client_id=event.client_id,
            client_host=event.client_host,
            session_timeout_ms=event.session_timeout_ms,
            rebalance_timeout_ms=event.rebalance_timeout_ms,
            protocols=event.protocols,
            is_new=True,
        )
        if not group.members:
            group.protocol_type = event.protocol_type
        if group.state is _PREPARING and not group.generation:
            group.member_added = True
        group.add(member, event.request)
        self._expect(group, member, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._may_rebalance(group, _because(f"member {member_id} joined", event.reason))

    def _join_again(self, group: Group, event: Join) -> None:
        error = group.check_member(event.member_id, event.group_instance_id)
        if error is not _NONE:
            self._refuse_join(event, error)
            return
        member = group.members[event.member_id]
        same = member.protocols == event.protocols
        leads = group.leader == member.member_id
        if same and (
            # A retry; or not the leader, which alone may ask for a rebalance without another
            # subscription (because a topic has more partitions, say).
            group.state is _COMPLETING or (group.state is GroupState.STABLE and not leads)
        ):
            members = group.described_members() if leads else ()
            self._out.answer(event.request, self._joined(group, member, members=members))
            return
        self._update(group, member, event)
        self._may_rebalance(
            group, _because(f"member {member.member_id} joined again", event.reason)
        )

    def _update(self, group: Group, member: Member, event: Join) -> None:
        group.update(
            member,
            event.protocols,
            session_timeout_ms=event.session_timeout_ms,
            rebalance_timeout_ms=event.rebalance_timeout_ms,
        )
        self._answer_join(group, member, ErrorCode.REBALANCE_IN_PROGRESS)  # a retry
        group.await_join(member, event.request)

    def _joined(
        self,
        group: Group,
        member: Member,
        *,
        members: tuple[JoinedMember, ...] = (),
        leader: str | None = None,
        skip_assignment: bool = False,
    ) -> JoinAnswer:
        return JoinAnswer(
            _NONE,
            member.member_id,
            group.generation,
            group.protocol_type,
            group.protocol,
            (group.leader if leader is None else leader) or "",
            skip_assignment,
            members,
        )

    def _refuse_join(self, event: Join, error: ErrorCode, member_id: str | None = None) -> None:
        answer = JoinAnswer(error, event.member_id if member_id is None else member_id)
        self._out.answer(event.request, answer)

    def _answer_join(self, group: Group, member: Member, error: ErrorCode) -> None:
        if member.join_request is not None:
            self._out.answer(member.join_request, JoinAnswer(error, member.member_id))
            group.await_join(member, None)

    def _answer_sync(self, member: Member, answer: SyncAnswer) -> bool:
        if member.sync_request is None:
            return False
        self._out.answer(member.sync_request, answer)
        member.sync_request = None
        return True

    # ------------------------------------------------------------------ static members

    def _rejoin_as_static(self, group: Group, member: Member, event: Join) -> None:
        """A static member joins again, and gets another id; requests with the old one are fenced.

        A stable group stays as it is if its protocol does. In COMPLETING_REBALANCE the leader may
        have the old id in its members already, and its assignment would not have the new one.
        """
        former = FormerMember(
            member.member_id, member.protocols, member.session_timeout_ms,
            member.rebalance_timeout_ms, group.leader or "",
        )  # fmt: skip
        self._answer_join(group, member, ErrorCode.FENCED_INSTANCE_ID)
        self._answer_sync(member, SyncAnswer(ErrorCode.FENCED_INSTANCE_ID))
        self._rename(group, member, event.fresh_member_id)
        self._update(group, member, event)
        self.restart_session(group, member)
        reason = _because(f"static member {event.group_instance_id} joined again", event.reason)
        if group.state is _COMPLETING:
            self._rebalance(group, reason)
        elif group.state is GroupState.STABLE:
            if group.protocol == group.choose_protocol():
                assignments = {m.member_id: m.assignment for m in group.members.values()}
                self._append(assignments, ReplacementAppend(group, member, event, former))
            else:
                self._rebalance(group, reason)

    def _rename(self, group: Group, member: Member, member_id: str) -> None:
        group.replace(member, member_id)
        member.timer_ms = None  # it has the old id

    def _replacement_stored(self, append: ReplacementAppend, error: ErrorCode) -> None:
        group, member, join, former = append.group, append.member, append.join, append.former
        if member.join_request is not join.request or group.state is not GroupState.STABLE:
            return  # it joined once more, or waits for the next generation
        group.await_join(member, None)
        if error is not _NONE:
            group.update(
                member,
                former.protocols,
                session_timeout_ms=former.session_timeout_ms,
                rebalance_timeout_ms=former.rebalance_timeout_ms,
            )
            self._rename(group, member, former.member_id)
            self._out.answer(join.request, JoinAnswer(error, ""))
        elif join.can_skip_assignment:
            # The leader gets the members, to watch their metadata; the assignment stays.
            leads = group.leader == member.member_id
            members = group.described_members() if leads else ()
            answer = self._joined(group, member, members=members, skip_assignment=leads)
            self._out.answer(join.request, answer)
        else:
            # The answer names the old id as the leader: so the client computes no assignment,
            # which would not be used.
            self._out.answer(join.request, self._joined(group, member, leader=former.leader))
        self.restart_session(group, member)

    # ------------------------------------------------------------------------- rebalances

    def _may_rebalance(self, group: Group, reason: str) -> None:
        if group.can_rebalance:
            self._rebalance(group, reason)

    def _rebalance(self, group: Group, reason: str) -> None:
        monotonic_ms = self._out.now.monotonic_ms
        if group.state is _COMPLETING:
            self._give_up_assignment(group, ErrorCode.REBALANCE_IN_PROGRESS)
        group.sync_deadline_ms = None
        if group.state is GroupState.EMPTY:
            delay_ms = self._options.initial_rebalance_delay_ms
            joining = Joining(
                monotonic_ms + delay_ms,
                is_initial=True,
                delay_ms=delay_ms,
                remaining_ms=max(group.rebalance_timeout_ms - delay_ms, 0),
            )
            group.member_added = False
        else:
            joining = Joining(monotonic_ms + group.rebalance_timeout_ms)
        self._out.note(
            f"group {group.group_id} rebalances from {group.state.value}, "
            f"generation {group.generation}: {reason}"
        )
        group.rebalance_reason, group.rebalance_ms = reason, self._out.now.wall_ms
        group.enter(_PREPARING, wall_ms=self._out.now.wall_ms)
        self._wait_for_joins(group, joining)
        self._join_may_be_complete(group)

    def _wait_for_joins(self, group: Group, joining: Joining) -> None:
        group.joining = joining
        self._set_timer(joining.deadline_ms, group, joining)

    def _give_up_assignment(self, group: Group, error: ErrorCode) -> None:
        for member in group.members.values():
            member.assignment = b""
            if self._answer_sync(member, SyncAnswer(error)):
                self.restart_session(group, member)

    def _join_may_be_complete(self, group: Group) -> None:
        joining = group.joining
        if joining is not None and not joining.is_initial and group.has_all_joined:
            self._complete_join(group)

    def _joining_ended(self, group: Group, joining: Joining) -> None:
        if group.joining is not joining:
            return
        if joining.is_initial and group.member_added and joining.remaining_ms:
            group.member_added = False
            delay_ms = min(self._options.initial_rebalance_delay_ms, joining.remaining_ms)
            extended = Joining(
                self._out.now.monotonic_ms + delay_ms,
                is_initial=True,
                delay_ms=delay_ms,
                remaining_ms=max(joining.remaining_ms - joining.delay_ms, 0),
            )
            self._wait_for_joins(group, extended)
            return
        self._complete_join(group)

    def _complete_join(self, group: Group) -> None:
        for member in list(group.members.values()):
            if member.join_request is None and member.group_instance_id is None:
                self._out.note(f"group {group.group_id}: {member.member_id} did not join in time")
                self._remove(group, member.member_id)
        if not group.elect_leader() and group.members:
            # Only static members that have not joined: they stay until their sessions time out.
            self._wait_for_joins(
                group, Joining(self._out.now.monotonic_ms + group.rebalance_timeout_ms)
            )
            return
        group.joining = None
        group.next_generation(wall_ms=self._out.now.wall_ms)
        if not group.members:
            self._out.note(f"group {group.group_id} is empty in generation {group.generation}")
            self._append({}, EmptyAppend(group))
            return
        self._out.note(
            f"group {group.group_id} begins generation {group.generation} "
            f"with {len(group.members)} members"
        )
        monotonic_ms = self._out.now.monotonic_ms
        for member in group.members.values():
            if member.join_request is not None:
                leads = member.member_id == group.leader
                members = group.described_members() if leads else ()
                self._out.answer(member.join_request, self._joined(group, member, members=members))
                group.await_join(member, None)
            self.restart_session(group, member)
            member.is_new = False
            group.pending_syncs.add(member.member_id)
        group.sync_deadline_ms = monotonic_ms + group.rebalance_timeout_ms
        self._set_timer(group.sync_deadline_ms, group, group.generation)

    # -------------------------------------------------------------------------- SyncGroup

    def sync(self, event: Sync) -> None:
        """Answer with an assignment, when there is one; store those that the leader brings."""
        group = self._groups.get(event.group_id)
        error = ErrorCode.UNKNOWN_MEMBER_ID if group is None else _check_sync(group, event)
        if group is None or error is not _NONE:
            self._out.answer(event.request, SyncAnswer(error))
            return
        member = group.members[event.member_id]
        if group.state is _PREPARING:
            self._out.answer(event.request, SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS))
            return
        group.pending_syncs.discard(member.member_id)
        if not group.pending_syncs:
            group.sync_deadline_ms = None
        if group.state is GroupState.STABLE:
            self._out.answer(event.request, _assignment_of(group, member))
            return
        self._answer_sync(member, SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS))  # a retry
        member.sync_request = event.request
        # A leader that lost its connection sends SyncGroup again, maybe with another assignment. If
        # both were stored, this coordinator would answer with the first, the next with the second.
        if member.member_id == group.leader and group.storing != group.generation:
            assignments = {
                member_id: event.assignments.get(member_id, b"") for member_id in group.members
            }
            group.storing = group.generation
            append = AssignmentAppend(group, group.generation, assignments)
            self._append(assignments, append)

    def _append(self, assignments: Mapping[str, bytes], purpose: GroupAppend) -> None:
        group = purpose.group
        record = (encode_group_key(group.group_id), encode_group_value(group.value(assignments)))
        self._out.append_group(record, purpose)

    def appended(self, append: GroupAppend, error: ErrorCode) -> None:
        """Go on after an append."""
        if error is not _NONE:
            self._out.note(f"group {append.group.group_id} could not be stored: {error.name}")
        error = _APPEND_ERRORS.get(error, error)
        match append:
            case AssignmentAppend():
                self._assignment_stored(append, error)
            case ReplacementAppend():
                self._replacement_stored(append, error)
            case EmptyAppend():
                pass  # no request waits for it
            case _:
                assert_never(append)

    def _assignment_stored(self, append: AssignmentAppend, error: ErrorCode) -> None:
        group, generation = append.group, append.generation
        if group.storing == generation:
            group.storing = None
        if group.state is not _COMPLETING or group.generation != generation:
            return  # another rebalance has begun meanwhile
        if error is not _NONE:
            self._give_up_assignment(group, error)
            self._may_rebalance(group, f"its assignment could not be stored: {error.name}")
            return
        for member in group.members.values():
            member.assignment = append.assignments.get(member.member_id, b"")
        group.enter(GroupState.STABLE, wall_ms=self._out.now.wall_ms)
        for member in group.members.values():
            if self._answer_sync(member, _assignment_of(group, member)):
                self.restart_session(group, member)

    def _syncing_ended(self, group: Group) -> None:
        group.sync_deadline_ms = None
        missing = sorted(group.pending_syncs)
        for member_id in missing:
            self._remove(group, member_id)
        self._may_rebalance(group, f"{', '.join(missing)} sent no SyncGroup in time")

    # ------------------------------------------------------------------------- LeaveGroup

    def leave(self, event: Leave) -> None:
        """Remove members by LeaveGroup, each with an error of its own."""
        group = self._groups.get(event.group_id)
        if group is None:
            errors = tuple(ErrorCode.UNKNOWN_MEMBER_ID for _ in event.members)
        else:
            errors = tuple(self._leave_one(group, leaving) for leaving in event.members)
        self._out.answer(event.request, LeaveAnswer(_NONE, errors))

    def _leave_one(self, group: Group, leaving: LeavingMember) -> ErrorCode:
        member_id, instance_id = leaving.member_id, leaving.group_instance_id
        if not member_id:
            # An administrator removes a static member, whatever its member id is.
            member_id = group.static_members.get(instance_id or "", "")
            if not member_id:
                return ErrorCode.UNKNOWN_MEMBER_ID
        elif member_id in group.pending_joins:
            self._drop_pending(group, member_id)
            return _NONE
        else:
            error = group.check_member(member_id, instance_id)
            if error is not _NONE:
                return error
        self._removed(group, member_id, _because(f"member {member_id} left", leaving.reason))
        return _NONE

    def _drop_pending(self, group: Group, member_id: str) -> None:
        group.remove(member_id)
        self._join_may_be_complete(group)
        if group.is_blank and not group.members:
            del self._groups[group.group_id]

    def _remove(self, group: Group, member_id: str) -> None:
        """Remove a member; its requests that wait get UNKNOWN_MEMBER_ID."""
        member = group.members.get(member_id)
        if member is not None:
            if member.join_request is not None:
                answer = JoinAnswer(ErrorCode.UNKNOWN_MEMBER_ID, "")
                self._out.answer(member.join_request, answer)
                group.await_join(member, None)
            self._answer_sync(member, SyncAnswer(ErrorCode.UNKNOWN_MEMBER_ID))
        group.remove(member_id)

    def _removed(self, group: Group, member_id: str, reason: str) -> None:
        self._remove(group, member_id)
        self._may_rebalance(group, reason)
        self._join_may_be_complete(group)

    # ------------------------------------------------------------------------------ time

    def deadline_reached(self) -> None:
        """End the sessions and rebalances whose time is over."""
        monotonic_ms = self._out.now.monotonic_ms
        while self._timers and self._timers[0][0] <= monotonic_ms:
            deadline_ms, _, group_id, whose = heappop(self._timers)
            group = self._groups.get(group_id)
            if group is None:
                continue
            if isinstance(whose, Joining):
                self._joining_ended(group, whose)
            elif isinstance(whose, int):
                if group.sync_deadline_ms == deadline_ms and group.generation == whose:
                    self._syncing_ended(group)
            elif group.pending_joins.get(whose) == deadline_ms:
                self._drop_pending(group, whose)
            else:
                self._check_session(group, whose, deadline_ms)

    def _check_session(self, group: Group, member_id: str, timer_ms: int) -> None:
        member = group.members.get(member_id)
        if member is None or member.timer_ms != timer_ms:
            return
        member.timer_ms = None
        if member.deadline_ms > timer_ms:
            member.timer_ms = member.deadline_ms
            self._set_timer(member.deadline_ms, group, member_id)
        elif member.is_new or not member.is_waiting:
            self._removed(group, member_id, f"member {member_id} sent no heartbeat in time")

    # ------------------------------------------------------------------------- leadership

    def loaded(self) -> None:
        """Begin the sessions of the members that the log has."""
        for group in list(self._groups.values()):
            if len(group.members) > self._options.size_max:
                self._rebalance(group, f"{len(group.members)} are more than group.max.size")
            for member in list(group.members.values()):
                self.restart_session(group, member)

    def resigned(self) -> None:
        """Answer the requests that wait."""
        for group in self._groups.values():
            for member in group.members.values():
                self._answer_join(group, member, ErrorCode.NOT_COORDINATOR)
                self._answer_sync(member, SyncAnswer(ErrorCode.NOT_COORDINATOR))
        self._timers.clear()


def _because(what: str, reason: str | None) -> str:
    """The cause of a rebalance, with the client's reason, if it gave one (KIP-800)."""
    return what if reason in (None, "", NOT_PROVIDED) else f"{what} ({reason})"


def _check_sync(group: Group, event: Sync) -> ErrorCode:
    error = group.check_member(event.member_id, event.group_instance_id)
    if error is not _NONE:
        return error
    if event.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if event.protocol_type is not None and event.protocol_type != group.protocol_type:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if event.protocol is not None and event.protocol != group.protocol:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return _NONE


def _assignment_of(group: Group, member: Member) -> SyncAnswer:
    return SyncAnswer(_NONE, group.protocol_type, group.protocol, member.assignment)
