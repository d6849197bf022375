"""Members and generations of the groups that one partition of `__consumer_offsets` minds.

    JoinGroup    members say what they can; when all are there, a generation begins
    SyncGroup    its leader says who gets what; when that is stored, everybody is told
    Heartbeat    members say that they live, and hear that the group rebalances
    LeaveGroup   members go; whoever is silent for his session timeout goes as well

A rebalance begins when a member comes, goes, or brings something else than before. It ends when
all members have joined, or the most patient one's rebalance timeout is over: who has not joined
by then is out, unless it is a static member, whose place is kept for its session timeout. An
assignment counts when it is stored, never before: `Store`, and then `Stored`.

A heartbeat makes no objects: it moves a deadline, and a timer that comes too early is set anew.
"""

from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final, NamedTuple, assert_never

from odradek.group.effects import (
    NOT_PROVIDED,
    Effect,
    Event,
    Join,
    JoinAnswer,
    JoinedMember,
    Leave,
    LeaveAnswer,
    Leaving,
    Loaded,
    Note,
    Now,
    Reply,
    Store,
    Stored,
    Sync,
    SyncAnswer,
    Tick,
    Ticket,
    Unloaded,
)
from odradek.group.group import Group, GroupState, Joining, Member
from odradek.group.options import GroupOptions
from odradek.group.protocols import Protocols
from odradek.group.records import encode_group_key, encode_group_value
from odradek.model.errors import ErrorCode

_NONE: Final = ErrorCode.NONE
_PREPARING: Final = GroupState.PREPARING_REBALANCE
_COMPLETING: Final = GroupState.COMPLETING_REBALANCE
# A new member has no id to send heartbeats with, and its JoinGroup may wait for long.
NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60 * 1000
# Who asks for an id and never comes back is forgotten after his session timeout, but there may
# be many such.
PENDING_JOINS_MAX: Final = 10_000


@dataclass(slots=True)
class _Assigned:
    """Why something is stored: the assignment of a generation."""

    group: Group
    generation: int
    assignments: dict[str, bytes]


@dataclass(slots=True)
class _Emptied:
    """Why something is stored: the last member has gone."""

    group: Group


class _Before(NamedTuple):
    """A static member as it was before it came back; and who led."""

    member_id: str
    protocols: Protocols
    session_timeout_ms: int
    rebalance_timeout_ms: int
    leader: str


@dataclass(slots=True)
class _Replaced:
    """Why something is stored: a static member came back, and the group goes on as it was."""

    group: Group
    member: Member
    join: Join
    before: _Before


class Membership:
    """The groups of one partition and their members."""

    def __init__(self, groups: dict[str, Group], options: GroupOptions) -> None:
        self.options = options
        self.groups = groups
        self._effects: list[Effect] = []
        # Deadline, number, group, and whose: a member's id, or what the group waits for.
        self._timers: list[tuple[int, int, str, str | Joining | int]] = []
        self._timer_count = 0
        self._now = Now(0, 0)

    @property
    def next_deadline_ms(self) -> int | None:
        """When to say `Tick`, by the monotonic clock."""
        return self._timers[0][0] if self._timers else None

    def handle(self, event: Event, now: Now) -> list[Effect]:
        """Take one event in; give back what has to be done about it."""
        self._now = now
        match event:
            case Join():
                self._join(event)
            case Sync():
                self._sync(event)
            case Leave():
                self._leave(event)
            case Stored(store, error):
                self._stored(store, error)
            case Tick():
                self._tick()
            case Loaded():
                self._loaded()
            case Unloaded():
                self._unloaded()
            case _:
                assert_never(event)
        effects, self._effects = self._effects, []
        return effects

    # ------------------------------------------------------------------------ heartbeats

    def heartbeat(
        self,
        group_id: str,
        generation: int,
        member_id: str,
        group_instance_id: str | None,
        now_ms: int,
    ) -> ErrorCode:
        """A member lives. Whether it is one, and may go on as it is."""
        group = self.groups.get(group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = group.check_member(member_id, group_instance_id)
        if error is not _NONE:
            return error
        if generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        self.heard(group, group.members[member_id], now_ms)
        return ErrorCode.REBALANCE_IN_PROGRESS if group.state is _PREPARING else _NONE

    def heard(self, group: Group, member: Member, now_ms: int) -> None:
        """Its session begins anew."""
        self._expect(group, member, member.session_timeout_ms, now_ms)

    def _expect(self, group: Group, member: Member, timeout_ms: int, now_ms: int) -> None:
        member.deadline_ms = now_ms + timeout_ms
        if member.timer_ms is None or member.timer_ms > member.deadline_ms:
            member.timer_ms = member.deadline_ms
            self._set_timer(member.deadline_ms, group, member.member_id)

    def _set_timer(self, deadline_ms: int, group: Group, whose: str | Joining | int) -> None:
        self._timer_count += 1
        heappush(self._timers, (deadline_ms, self._timer_count, group.group_id, whose))

    # -------------------------------------------------------------------------- JoinGroup

    def _join(self, event: Join) -> None:
        options = self.options
        if not (
            options.session_timeout_ms_min
            <= event.session_timeout_ms
            <= options.session_timeout_ms_max
        ):
            self._refuse_join(event, ErrorCode.INVALID_SESSION_TIMEOUT)
            return
        group = self.groups.get(event.group_id)
        if group is None:
            if event.member_id:
                self._refuse_join(event, ErrorCode.UNKNOWN_MEMBER_ID)
                return
            group = self.groups[event.group_id] = Group(event.group_id)
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
            del self.groups[group.group_id]

    def _has_room_for(self, group: Group, member_id: str) -> bool:
        size_max = self.options.size_max
        member = group.members.get(member_id)
        if group.state is GroupState.EMPTY:
            return True
        if group.state is _PREPARING:
            # By those who wait: the size may be above a limit that was lowered, and the last
            # of those who rejoin are the ones to go.
            rejoined = member is not None and member.join_ticket is not None
            return rejoined or group.awaiting_join < size_max
        return member is not None or len(group.members) < size_max

    def _join_as_new(self, group: Group, event: Join) -> None:
        if event.group_instance_id is not None:
            known = group.static_members.get(event.group_instance_id)
            if known is not None:
                self._rejoin_as_static(group, group.members[known], event)
            else:
                self._add(group, event, event.fresh_member_id)
        elif event.knows_member_ids:
            self._await_with_id(group, event)
        else:
            self._add(group, event, event.fresh_member_id)

    def _await_with_id(self, group: Group, event: Join) -> None:
        if len(group.pending_joins) >= PENDING_JOINS_MAX:
            group.pending_joins.pop(next(iter(group.pending_joins)))
        deadline_ms = self._now.monotonic_ms + event.session_timeout_ms
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
        group.add(member, event.ticket)
        self._expect(group, member, NEW_MEMBER_JOIN_TIMEOUT_MS, self._now.monotonic_ms)
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
            # It may not have got the answer; or it is no leader, who alone can want another
            # assignment for what no member's metadata shows (more partitions, say).
            group.state is _COMPLETING or (group.state is GroupState.STABLE and not leads)
        ):
            members = group.described_members() if leads else ()
            self._reply(event.ticket, self._joined(group, member, members=members))
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
        self._answer_join(group, member, ErrorCode.REBALANCE_IN_PROGRESS)  # it asked again
        group.await_join(member, event.ticket)

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
        self._reply(event.ticket, answer)

    def _answer_join(self, group: Group, member: Member, error: ErrorCode) -> None:
        if member.join_ticket is not None:
            self._reply(member.join_ticket, JoinAnswer(error, member.member_id))
            group.await_join(member, None)

    def _answer_sync(self, member: Member, answer: SyncAnswer) -> bool:
        if member.sync_ticket is None:
            return False
        self._reply(member.sync_ticket, answer)
        member.sync_ticket = None
        return True

    # ------------------------------------------------------------------ static members

    def _rejoin_as_static(self, group: Group, member: Member, event: Join) -> None:
        """A static member is back, and gets another id: whoever uses the old one is fenced.

        A stable group goes on as it is, if its strategy stays the same. Otherwise the old id may
        be in the leader's hands already, so that the assignment would miss the new one.
        """
        before = _Before(
            member.member_id, member.protocols, member.session_timeout_ms,
            member.rebalance_timeout_ms, group.leader or "",
        )  # fmt: skip
        self._answer_join(group, member, ErrorCode.FENCED_INSTANCE_ID)
        self._answer_sync(member, SyncAnswer(ErrorCode.FENCED_INSTANCE_ID))
        self._rename(group, member, event.fresh_member_id)
        self._update(group, member, event)
        self.heard(group, member, self._now.monotonic_ms)
        reason = _because(f"static member {event.group_instance_id} is back", event.reason)
        if group.state is _COMPLETING:
            self._rebalance(group, reason)
        elif group.state is GroupState.STABLE:
            if group.protocol == group.choose_protocol():
                assignments = {m.member_id: m.assignment for m in group.members.values()}
                self._store(group, assignments, _Replaced(group, member, event, before))
            else:
                self._rebalance(group, reason)

    def _rename(self, group: Group, member: Member, member_id: str) -> None:
        group.replace(member, member_id)
        member.timer_ms = None  # it went by the other name

    def _replacement_stored(self, replaced: "_Replaced", error: ErrorCode) -> None:
        group, member, join, before = (
            replaced.group, replaced.member, replaced.join, replaced.before,
        )  # fmt: skip
        if member.join_ticket is not join.ticket or group.state is not GroupState.STABLE:
            return  # it came once more, or waits for the next generation with all others
        group.await_join(member, None)
        if error is not _NONE:
            group.update(
                member,
                before.protocols,
                session_timeout_ms=before.session_timeout_ms,
                rebalance_timeout_ms=before.rebalance_timeout_ms,
            )
            self._rename(group, member, before.member_id)
            self._reply(join.ticket, JoinAnswer(error, ""))
        elif join.can_skip_assignment:
            # The leader goes on watching the metadata, but its assignment stays.
            leads = group.leader == member.member_id
            members = group.described_members() if leads else ()
            answer = self._joined(group, member, members=members, skip_assignment=leads)
            self._reply(join.ticket, answer)
        else:
            # Under its old id it is told to lead: so it does not take itself for the leader, and
            # computes no assignment that nobody would take from it.
            self._reply(join.ticket, self._joined(group, member, leader=before.leader))
        self.heard(group, member, self._now.monotonic_ms)

    # ------------------------------------------------------------------------- rebalances

    def _may_rebalance(self, group: Group, reason: str) -> None:
        if group.can_rebalance:
            self._rebalance(group, reason)

    def _rebalance(self, group: Group, reason: str) -> None:
        now_ms = self._now.monotonic_ms
        if group.state is _COMPLETING:
            self._give_up_assignment(group, ErrorCode.REBALANCE_IN_PROGRESS)
        group.sync_deadline_ms = None
        if group.state is GroupState.EMPTY:
            delay_ms = self.options.initial_rebalance_delay_ms
            joining = Joining(
                now_ms + delay_ms,
                is_initial=True,
                delay_ms=delay_ms,
                remaining_ms=max(group.rebalance_timeout_ms - delay_ms, 0),
            )
            group.member_added = False
        else:
            joining = Joining(now_ms + group.rebalance_timeout_ms)
        self._note(
            f"group {group.group_id} rebalances from {group.state.value}, "
            f"generation {group.generation}: {reason}"
        )
        group.rebalance_reason, group.rebalance_ms = reason, self._now.wall_ms
        group.enter(_PREPARING, wall_ms=self._now.wall_ms)
        self._wait_for_joins(group, joining)
        self._join_may_be_complete(group)

    def _wait_for_joins(self, group: Group, joining: Joining) -> None:
        group.joining = joining
        self._set_timer(joining.deadline_ms, group, joining)

    def _give_up_assignment(self, group: Group, error: ErrorCode) -> None:
        for member in group.members.values():
            member.assignment = b""
            if self._answer_sync(member, SyncAnswer(error)):
                self.heard(group, member, self._now.monotonic_ms)

    def _join_may_be_complete(self, group: Group) -> None:
        joining = group.joining
        if joining is not None and not joining.is_initial and group.has_all_joined:
            self._complete_join(group)

    def _joining_is_over(self, group: Group, joining: Joining) -> None:
        if group.joining is not joining:
            return
        if joining.is_initial and group.member_added and joining.remaining_ms:
            group.member_added = False
            delay_ms = min(self.options.initial_rebalance_delay_ms, joining.remaining_ms)
            prolonged = Joining(
                self._now.monotonic_ms + delay_ms,
                is_initial=True,
                delay_ms=delay_ms,
                remaining_ms=max(joining.remaining_ms - joining.delay_ms, 0),
            )
            self._wait_for_joins(group, prolonged)
            return
        self._complete_join(group)

    def _complete_join(self, group: Group) -> None:
        for member in list(group.members.values()):
            if member.join_ticket is None and member.group_instance_id is None:
                self._note(f"group {group.group_id}: {member.member_id} did not join in time")
                self._remove(group, member.member_id)
        if not group.elect_leader() and group.members:
            # Only static members that are not there: their sessions end this.
            self._wait_for_joins(
                group, Joining(self._now.monotonic_ms + group.rebalance_timeout_ms)
            )
            return
        group.joining = None
        group.next_generation(wall_ms=self._now.wall_ms)
        if not group.members:
            self._note(f"group {group.group_id} is empty in generation {group.generation}")
            self._store(group, {}, _Emptied(group))
            return
        self._note(
            f"group {group.group_id} begins generation {group.generation} "
            f"with {len(group.members)} members"
        )
        now_ms = self._now.monotonic_ms
        for member in group.members.values():
            if member.join_ticket is not None:
                leads = member.member_id == group.leader
                members = group.described_members() if leads else ()
                self._reply(member.join_ticket, self._joined(group, member, members=members))
                group.await_join(member, None)
            self.heard(group, member, now_ms)
            member.is_new = False
            group.pending_syncs.add(member.member_id)
        group.sync_deadline_ms = now_ms + group.rebalance_timeout_ms
        self._set_timer(group.sync_deadline_ms, group, group.generation)

    # -------------------------------------------------------------------------- SyncGroup

    def _sync(self, event: Sync) -> None:
        group = self.groups.get(event.group_id)
        error = ErrorCode.UNKNOWN_MEMBER_ID if group is None else _check_sync(group, event)
        if group is None or error is not _NONE:
            self._reply(event.ticket, SyncAnswer(error))
            return
        member = group.members[event.member_id]
        if group.state is _PREPARING:
            self._reply(event.ticket, SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS))
            return
        group.pending_syncs.discard(member.member_id)
        if not group.pending_syncs:
            group.sync_deadline_ms = None
        if group.state is GroupState.STABLE:
            self._reply(event.ticket, _part(group, member))
            return
        self._answer_sync(member, SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS))  # it asked again
        member.sync_ticket = event.ticket
        # A leader that lost its connection asks again, maybe with another assignment. Of two that
        # are stored the members would be given the first, and by the next coordinator the second.
        if member.member_id == group.leader and group.storing != group.generation:
            assignments = {
                member_id: event.assignments.get(member_id, b"") for member_id in group.members
            }
            group.storing = group.generation
            self._store(group, assignments, _Assigned(group, group.generation, assignments))

    def _store(self, group: Group, assignments: dict[str, bytes], purpose: object) -> None:
        record = (encode_group_key(group.group_id), encode_group_value(group.value(assignments)))
        self._effects.append(Store(group.group_id, (record,), purpose))

    def _stored(self, store: Store, error: ErrorCode) -> None:
        if error is not _NONE:
            self._note(f"group {store.group_id} could not be stored: {error.name}")
        match store.purpose:
            case _Assigned(group, generation, assignments):
                self._assignment_stored(group, generation, assignments, error)
            case _Replaced():
                self._replacement_stored(store.purpose, error)
            case _:
                pass  # nobody waits for a group that is empty

    def _assignment_stored(
        self, group: Group, generation: int, assignments: dict[str, bytes], error: ErrorCode
    ) -> None:
        if group.storing == generation:
            group.storing = None
        if group.state is not _COMPLETING or group.generation != generation:
            return  # somebody came or went meanwhile
        if error is not _NONE:
            self._give_up_assignment(group, error)
            self._may_rebalance(group, f"its assignment could not be stored: {error.name}")
            return
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        group.enter(GroupState.STABLE, wall_ms=self._now.wall_ms)
        for member in group.members.values():
            if self._answer_sync(member, _part(group, member)):
                self.heard(group, member, self._now.monotonic_ms)

    def _syncing_is_over(self, group: Group) -> None:
        group.sync_deadline_ms = None
        silent = sorted(group.pending_syncs)
        for member_id in silent:
            self._remove(group, member_id)
        self._may_rebalance(group, f"{', '.join(silent)} did not ask for an assignment in time")

    # ------------------------------------------------------------------------- LeaveGroup

    def _leave(self, event: Leave) -> None:
        group = self.groups.get(event.group_id)
        if group is None:
            errors = tuple(ErrorCode.UNKNOWN_MEMBER_ID for _ in event.members)
        else:
            errors = tuple(self._leave_one(group, leaving) for leaving in event.members)
        self._reply(event.ticket, LeaveAnswer(_NONE, errors))

    def _leave_one(self, group: Group, leaving: Leaving) -> ErrorCode:
        member_id, instance_id = leaving.member_id, leaving.group_instance_id
        if not member_id:
            # An administrator removes a static member, whatever its id is just now.
            member_id = group.static_members.get(instance_id or "", "")
            if not member_id:
                return ErrorCode.UNKNOWN_MEMBER_ID
        elif member_id in group.pending_joins:
            self._forget_pending(group, member_id)
            return _NONE
        else:
            error = group.check_member(member_id, instance_id)
            if error is not _NONE:
                return error
        self._removed(group, member_id, _because(f"member {member_id} left", leaving.reason))
        return _NONE

    def _forget_pending(self, group: Group, member_id: str) -> None:
        group.remove(member_id)
        self._join_may_be_complete(group)
        if group.is_blank and not group.members:
            del self.groups[group.group_id]

    def _remove(self, group: Group, member_id: str) -> None:
        """Let whoever asked in its name know that it is not in the group."""
        member = group.members.get(member_id)
        if member is not None:
            if member.join_ticket is not None:
                answer = JoinAnswer(ErrorCode.UNKNOWN_MEMBER_ID, "")
                self._reply(member.join_ticket, answer)
                group.await_join(member, None)
            self._answer_sync(member, SyncAnswer(ErrorCode.UNKNOWN_MEMBER_ID))
        group.remove(member_id)

    def _removed(self, group: Group, member_id: str, reason: str) -> None:
        self._remove(group, member_id)
        self._may_rebalance(group, reason)
        self._join_may_be_complete(group)

    # ------------------------------------------------------------------------------ time

    def _tick(self) -> None:
        now_ms = self._now.monotonic_ms
        while self._timers and self._timers[0][0] <= now_ms:
            deadline_ms, _, group_id, whose = heappop(self._timers)
            group = self.groups.get(group_id)
            if group is None:
                continue
            if isinstance(whose, Joining):
                self._joining_is_over(group, whose)
            elif isinstance(whose, int):
                if group.sync_deadline_ms == deadline_ms and group.generation == whose:
                    self._syncing_is_over(group)
            elif group.pending_joins.get(whose) == deadline_ms:
                self._forget_pending(group, whose)
            else:
                self._look_at(group, whose, deadline_ms)

    def _look_at(self, group: Group, member_id: str, timer_ms: int) -> None:
        member = group.members.get(member_id)
        if member is None or member.timer_ms != timer_ms:
            return
        member.timer_ms = None
        if member.deadline_ms > timer_ms:
            member.timer_ms = member.deadline_ms
            self._set_timer(member.deadline_ms, group, member_id)
        elif member.is_new or not member.is_waiting:
            self._removed(group, member_id, f"member {member_id} was silent for too long")

    # ------------------------------------------------------------------------- leadership

    def _loaded(self) -> None:
        now_ms = self._now.monotonic_ms
        for group in list(self.groups.values()):
            if len(group.members) > self.options.size_max:
                self._rebalance(group, f"{len(group.members)} are more than group.max.size")
            for member in list(group.members.values()):
                self.heard(group, member, now_ms)

    def _unloaded(self) -> None:
        for group in self.groups.values():
            for member in group.members.values():
                self._answer_join(group, member, ErrorCode.NOT_COORDINATOR)
                self._answer_sync(member, SyncAnswer(ErrorCode.NOT_COORDINATOR))
        self._timers.clear()

    # ---------------------------------------------------------------------------- effects

    def _reply(self, ticket: Ticket, answer: JoinAnswer | SyncAnswer | LeaveAnswer) -> None:
        self._effects.append(Reply(ticket, answer))

    def _note(self, text: str) -> None:
        self._effects.append(Note(text))


def _because(what: str, reason: str | None) -> str:
    """What happened, with the reason that the client gave, if it gave one (KIP-800)."""
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


def _part(group: Group, member: Member) -> SyncAnswer:
    return SyncAnswer(_NONE, group.protocol_type, group.protocol, member.assignment)
