"""One group: its state, its members, its generation.

States and the states they may be entered from:

    EMPTY                  <- PREPARING_REBALANCE           no members; maybe offsets
    PREPARING_REBALANCE    <- EMPTY, STABLE,                members are asked to join again
                              COMPLETING_REBALANCE
    COMPLETING_REBALANCE   <- PREPARING_REBALANCE           the leader is asked for the assignment
    STABLE                 <- COMPLETING_REBALANCE          every member has its assignment
    DEAD                   <- all                           removed

This module has the members of a group and what they share. `odradek.group.membership` decides when
the state changes.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from odradek.group.effects import JoinedMember
from odradek.group.offsets import Offsets
from odradek.group.protocols import (
    CONSUMER_PROTOCOL,
    Protocols,
    choose_protocol,
    subscribed_topics,
)
from odradek.model.clock import WallMs
from odradek.model.errors import ErrorCode
from odradek.model.invariants import hold
from odradek.wire.messages.consumer_offsets import GroupMetadataValue, MemberMetadata


class GroupState(Enum):
    """The state of a group, by Kafka's names."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


UNKNOWN_MS: Final = WallMs(-1)
_ALL: Final = frozenset(GroupState)
_WITHOUT_MEMBERS: Final = frozenset({GroupState.EMPTY, GroupState.DEAD})
_WITH_PROTOCOL: Final = frozenset({GroupState.COMPLETING_REBALANCE, GroupState.STABLE})
VALID_PREVIOUS: Final[Mapping[GroupState, frozenset[GroupState]]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.EMPTY, GroupState.STABLE, GroupState.COMPLETING_REBALANCE}
    ),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: _ALL,
}


@dataclass(slots=True, kw_only=True)
class Member:
    """One member, with the number of its JoinGroup or SyncGroup request that waits."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    join_request: int | None = None
    sync_request: int | None = None
    is_new: bool = False  # has not been in a generation yet
    deadline_ms: int = 0  # when its session times out
    timer_ms: int | None = None  # the timer that checks its session, if it is set

    def metadata(self, protocol: str) -> bytes:
        return next(data for name, data in self.protocols if name == protocol)

    @property
    def is_waiting(self) -> bool:
        """For an answer: meanwhile it sends no heartbeats."""
        return self.join_request is not None or self.sync_request is not None


@dataclass(slots=True, eq=False)
class Joining:
    """A rebalance that waits for members to join, until a deadline.

    The first rebalance of a group waits for more members than the first one, and is extended while
    more join, by no more than `remaining_ms` in all (`group.initial.rebalance.delay.ms`).
    """

    deadline_ms: int
    is_initial: bool = False
    delay_ms: int = 0
    remaining_ms: int = 0


class Group:
    """One group, its members and its offsets."""

    __slots__ = (
        "_supporters", "awaiting_join", "generation", "group_id", "joining", "leader",
        "member_added", "members", "offsets", "pending_joins", "pending_syncs", "protocol",
        "protocol_type", "rebalance_ms", "rebalance_reason", "state", "state_timestamp_ms",
        "static_members", "storing", "subscribed", "sync_deadline_ms",
    )  # fmt: skip

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.state_timestamp_ms = UNKNOWN_MS  # of the last change of the state
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}  # in the order in which they joined
        self.static_members: dict[str, str] = {}  # instance id: member id
        self.pending_joins: dict[
            str, int
        ] = {}  # member ids that were given and not used yet: until when
        self.pending_syncs: set[str] = (
            set()
        )  # have joined the generation, and not sent SyncGroup yet
        self.awaiting_join = 0
        self.joining: Joining | None = None
        self.member_added = False  # since the first rebalance began, or was extended
        self.sync_deadline_ms: int | None = None
        self.storing: int | None = None  # the generation whose assignment is being stored
        self.rebalance_reason = ""  # of the last rebalance; "": there was none since loading
        self.rebalance_ms = UNKNOWN_MS  # when it began
        self.subscribed: frozenset[str] | None = None  # None: unknown
        self.offsets = Offsets()
        self._supporters: Counter[str] = Counter()  # how many members support a protocol

    # ------------------------------------------------------------------------- state

    def enter(self, state: GroupState, *, wall_ms: WallMs) -> None:
        """Change to a state that is allowed after the present one."""
        assert self.state in VALID_PREVIOUS[state], (self.group_id, self.state, state)
        self.state = state
        self.state_timestamp_ms = wall_ms

    @property
    def can_rebalance(self) -> bool:
        """Whether a rebalance can begin; not while one waits for members."""
        return self.state in VALID_PREVIOUS[GroupState.PREPARING_REBALANCE]

    @property
    def is_blank(self) -> bool:
        """Whether it has no generation, no offsets and no pending members."""
        return (
            self.state is GroupState.EMPTY
            and not self.generation
            and not self.offsets
            and not self.pending_joins
        )

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long members may take to join: the longest of their time-outs."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def has_all_joined(self) -> bool:
        """Whether all members wait for the next generation, and no member id is unused."""
        return len(self.members) == self.awaiting_join and not self.pending_joins

    def next_generation(self, *, wall_ms: WallMs) -> None:
        """Begin a generation with the members that there are."""
        self.generation += 1
        self.pending_syncs.clear()
        self.protocol = self.choose_protocol() if self.members else None
        self.subscribed = self._subscribed()
        self.enter(
            GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY, wall_ms=wall_ms
        )

    def _subscribed(self) -> frozenset[str] | None:
        if self.protocol_type != CONSUMER_PROTOCOL:
            return None
        if not self.members:
            return frozenset()
        if self.protocol is None:
            return None
        return subscribed_topics(m.metadata(self.protocol) for m in self.members.values())

    # ----------------------------------------------------------------------- members

    def add(self, member: Member, request: int | None) -> None:
        """Add a member; the first one leads."""
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self.static_members, member
            self.static_members[member.group_instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self._supporters.update(name for name, _ in member.protocols)
        self.pending_joins.pop(member.member_id, None)
        self.await_join(member, request)

    def remove(self, member_id: str) -> None:
        """Remove a member; if it led, the next one does."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self.await_join(member, None)
            self._supporters.subtract(name for name, _ in member.protocols)
            instance_id = member.group_instance_id
            if instance_id is not None and self.static_members.get(instance_id) == member_id:
                del self.static_members[instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending_joins.pop(member_id, None)
        self.pending_syncs.discard(member_id)

    def replace(self, member: Member, member_id: str) -> None:
        """Give a static member another member id."""
        old = member.member_id
        # It keeps its place in the order: assignors depend on it.
        self.members = {
            (member_id if key == old else key): known for key, known in self.members.items()
        }
        member.member_id = member_id
        assert member.group_instance_id is not None
        self.static_members[member.group_instance_id] = member_id
        if self.leader == old:
            self.leader = member_id
        if old in self.pending_syncs:
            self.pending_syncs.remove(old)
            self.pending_syncs.add(member_id)

    def update(
        self,
        member: Member,
        protocols: Protocols,
        *,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
    ) -> None:
        """Set the protocols and time-outs of a member."""
        self._supporters.subtract(name for name, _ in member.protocols)
        self._supporters.update(name for name, _ in protocols)
        member.protocols = protocols
        member.session_timeout_ms = session_timeout_ms
        member.rebalance_timeout_ms = rebalance_timeout_ms

    def await_join(self, member: Member, request: int | None) -> None:
        """The number of the JoinGroup request that waits; None: there is none."""
        self.awaiting_join += (request is not None) - (member.join_request is not None)
        member.join_request = request

    def check_member(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """The error for a request of this member; NONE if it is in the group under this name."""
        if group_instance_id is not None:
            known = self.static_members.get(group_instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        if member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE

    def elect_leader(self) -> bool:
        """Have a member lead that has joined; False if none has."""
        if self.leader is None:
            return False
        if self.members[self.leader].join_request is not None:
            return True
        joined = next((m for m in self.members.values() if m.join_request is not None), None)
        if joined is None:
            return False
        self.leader = joined.member_id
        return True

    # --------------------------------------------------------------------- protocols

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether a member with these protocols can join."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and any(True for _ in names)
        if protocol_type != self.protocol_type:
            return False
        return any(self._supporters[name] == len(self.members) for name in names)

    def choose_protocol(self) -> str:
        """The protocol of the next generation."""
        return choose_protocol([[name for name, _ in m.protocols] for m in self.members.values()])

    def described_members(self) -> tuple[JoinedMember, ...]:
        """The members, as JoinGroup describes them to the leader."""
        assert self.protocol is not None
        return tuple(
            JoinedMember(member.member_id, member.group_instance_id, member.metadata(self.protocol))
            for member in self.members.values()
        )

    # -------------------------------------------------------------------- invariants

    def validate(self) -> None:
        """Check what holds after every event.

        Raises:
            InvariantError: something does not hold.
        """
        state, members = self.state, self.members
        name = f"group {self.group_id}, {state.value}"
        hold(self.generation >= 0, name, f"generation {self.generation}")
        hold(not members or state not in _WITHOUT_MEMBERS, name, "it has members")
        if state in _WITH_PROTOCOL:
            hold(bool(members), name, "it has no members")
            hold(self.protocol is not None, name, "it has no protocol")
        waits = self.joining is not None
        hold(waits is (state is GroupState.PREPARING_REBALANCE), name, f"waits for joins: {waits}")
        leader = self.leader
        hold(leader in members if members else leader is None, name, f"{leader} leads {[*members]}")
        storing = self.storing
        hold(storing is None or storing <= self.generation, name, f"generation {storing} is stored")
        hold(self.pending_syncs <= members.keys(), name, "SyncGroup of a former member is awaited")
        hold(self.pending_joins.keys().isdisjoint(members), name, "the id of a member is unused")
        joined = sum(member.join_request is not None for member in members.values())
        hold(joined == self.awaiting_join, name, f"{joined} members wait, not {self.awaiting_join}")
        supporters = Counter(each for m in members.values() for each, _ in m.protocols)
        hold(supporters == self._supporters, name, "%s is not %s", supporters, self._supporters)
        instances = [(m.group_instance_id, m.member_id) for m in members.values()]
        static = {instance: id_ for instance, id_ in instances if instance is not None}
        hold(static == self.static_members, name, "%s is not %s", static, self.static_members)
        for member_id, member in members.items():
            hold(member.member_id == member_id, name, f"{member.member_id} is under {member_id}")
            completing = state is GroupState.COMPLETING_REBALANCE
            hold(member.sync_request is None or completing, name, f"SyncGroup of {member_id} waits")
            in_time = member.timer_ms is None or member.timer_ms <= member.deadline_ms
            hold(in_time, name, f"the session of {member_id} is checked too late")
        self.offsets.validate(name)

    # ----------------------------------------------------------------------- storage

    def value(self, assignments: Mapping[str, bytes]) -> GroupMetadataValue:
        """The record of the group, with these assignments."""
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            current_state_timestamp=self.state_timestamp_ms,
            members=[
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.metadata(self.protocol or ""),
                    assignment=assignments.get(member.member_id, b""),
                )
                for member in self.members.values()
            ],
        )

    def restore(self, value: GroupMetadataValue | None) -> None:
        """Take over a record of the group; None: a tombstone, the offsets stay."""
        self.members.clear()
        self.static_members.clear()
        self._supporters.clear()
        self.leader = None
        if value is None:
            value = GroupMetadataValue(protocol_type="", generation=0, protocol=None, leader=None)
        self.state = GroupState.STABLE if value.members else GroupState.EMPTY
        self.state_timestamp_ms = WallMs(value.current_state_timestamp)
        self.generation = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol = value.protocol or "" if value.members else value.protocol
        for written in value.members:
            rebalance_ms = written.rebalance_timeout
            member = Member(
                member_id=written.member_id,
                group_instance_id=written.group_instance_id,
                client_id=written.client_id,
                client_host=written.client_host,
                session_timeout_ms=written.session_timeout,
                rebalance_timeout_ms=rebalance_ms if rebalance_ms >= 0 else written.session_timeout,
                protocols=((value.protocol or "", bytes(written.subscription)),),
                assignment=bytes(written.assignment),
            )
            self.members[member.member_id] = member
            self._supporters.update(name for name, _ in member.protocols)
            if member.group_instance_id is not None:
                self.static_members[member.group_instance_id] = member.member_id
        if value.leader in self.members:
            self.leader = value.leader
        else:
            self.leader = next(iter(self.members), None)
        self.subscribed = self._subscribed()
