"""The group coordinator, case by case: joins, fencing and committed offsets."""

import re

import pytest

from odradek.group.effects import Answer, Append, AppendTombstones, PartitionsAnswer
from odradek.group.events import (
    Appended,
    CommitOffsets,
    Committer,
    DeadlineReached,
    DeleteGroup,
    DeleteOffsets,
    ExpirationDue,
    Heartbeat,
    Join,
    Leave,
    LeavingMember,
    Sync,
    TopicsDeleted,
    TransactionEnded,
)
from odradek.group.group import GroupState
from odradek.group.machine import GroupMachine
from odradek.group.membership import PENDING_JOINS_MAX
from odradek.group.options import GroupOptions
from odradek.group.records import CommittedOffset, encode_offset_key
from odradek.model.clock import Now
from odradek.model.errors import ErrorCode
from odradek.model.invariants import InvariantError
from odradek.model.partition import TopicPartition
from odradek.model.trampoline import Trampoline
from odradek.record.coordinator import Loaded, MarkerReplayed, Replayed, Resigned
from odradek.record.records import Record

NONE = ErrorCode.NONE
SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"  # to topic t
RANGE = (("range", SUBSCRIPTION),)
T0, T1, OTHER = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("other", 0)
SESSION_MS, REBALANCE_MS = 10_000, 30_000


class Member:
    """What a client has of its membership."""

    def __init__(self, name, instance=None):
        self.name, self.instance = name, instance
        self.id, self.generation = "", -1
        self.request = None


def replayed(log, producer_id, first=0):
    records = (Record(*each, offset=first + number) for number, each in enumerate(log))
    return Replayed(tuple(records), producer_id)


class Coordinator:
    """A machine and its log. A group is appended at once, unless it is to be `held`."""

    def __init__(self, log=(), **options):
        options = {"initial_rebalance_delay_ms": 0, **options}
        self.machine = GroupMachine(GroupOptions(**options))
        self.trampoline = Trampoline(lambda event: self.machine.handle(event, self.now))
        self.now = Now(0, 0)
        self.log = list(log)
        self.answers = {}
        self.held = None  # a list, while appends are to wait
        self.commits = []  # the appends of offsets
        self.requests = 1_000 if self.log else 0  # no member id is drawn twice
        if self.log:
            self.handle(replayed(self.log, -1))
            self.handle(Loaded())

    @property
    def group(self):
        return self.machine.groups.get("g")

    def handle(self, event):
        self.trampoline.run(event, self.perform)
        self.machine.validate()

    def perform(self, effect):
        match effect:
            case Answer(request, answer):
                self.answers[request] = answer
            case AppendTombstones(keys):
                self.log += [(key, None) for key in keys]
            case Append(base_sequence=0):
                self.commits.append(effect)
            case Append():
                self.log += effect.records
                if self.held is None:
                    self.outcome(effect, NONE)
                else:
                    self.held.append(effect)

    def outcome(self, append, error):
        self.handle(Appended(append.number, error))

    def ask(self, event, **fields):
        """Hand in a request of no member. Returns the answer, if there is one."""
        self.requests += 1
        self.handle(event(request=self.requests, group_id="g", **fields))
        return self.answers.get(self.requests)

    def later(self, ms):
        """Time passes."""
        end_ms = self.now.monotonic_ms + ms
        while (due_ms := self.machine.next_deadline_ms) is not None and due_ms <= end_ms:
            self.now = Now(max(due_ms, self.now.monotonic_ms), max(due_ms, self.now.wall_ms))
            self.handle(DeadlineReached())
        self.now = Now(end_ms, end_ms)

    def next_request(self, member):
        self.requests += 1
        member.request = self.requests
        return self.requests

    def answer(self, member):
        """The last answer to it; None if it waits."""
        return self.answers.get(member.request)

    def join(self, member, *, protocols=RANGE, protocol_type="consumer", **fields):
        """Ask to join, coming back with the id if it is given one. Returns the answer, if any."""
        for _ in range(2):
            self.handle(
                Join(
                    request=self.next_request(member),
                    group_id="g",
                    member_id=member.id,
                    fresh_member_id=f"{member.name}-{self.requests}",
                    group_instance_id=member.instance,
                    session_timeout_ms=fields.pop("session_timeout_ms", SESSION_MS),
                    rebalance_timeout_ms=REBALANCE_MS,
                    protocol_type=protocol_type,
                    protocols=protocols,
                    **fields,
                )
            )
            answer = self.answer(member)
            if answer is None or answer.error is not ErrorCode.MEMBER_ID_REQUIRED:
                break
            member.id = answer.member_id
        return answer

    def joined(self, member):
        """Take in what JoinGroup was answered."""
        answer = self.answer(member)
        assert answer.error is NONE, answer
        member.id, member.generation = answer.member_id, answer.generation
        return answer

    def sync(self, member, parts=None, *, generation=None):
        self.handle(
            Sync(
                request=self.next_request(member),
                group_id="g",
                generation=member.generation if generation is None else generation,
                member_id=member.id,
                group_instance_id=member.instance,
                assignments=parts or {},
            )
        )
        return self.answer(member)

    def beat(self, member, generation=None):
        return self.ask(
            Heartbeat,
            generation=member.generation if generation is None else generation,
            member_id=member.id,
            group_instance_id=member.instance,
        ).error

    def leave(self, member):
        leaving = LeavingMember(member_id=member.id, group_instance_id=member.instance)
        self.handle(Leave(request=self.next_request(member), group_id="g", members=(leaving,)))
        return self.answer(member).members[0]

    def prepare(self, member, offset, *, generation=None, producer=-1, metadata="", partition=T0):
        """A commit whose append is under way, or its error."""
        committer = Committer(producer_id=producer)
        if member is not None:
            committer = Committer(
                member_id=member.id,
                generation=member.generation if generation is None else generation,
                group_instance_id=member.instance,
                producer_id=producer,
            )
        offsets = {partition: CommittedOffset(offset, -1, metadata, self.now.wall_ms)}
        answer = self.ask(CommitOffsets, committer=committer, offsets=offsets)
        return self.commits.pop() if answer is None else answer.of(partition)

    def commit(self, member, offset, **fields):
        """Commit, and have it appended. Returns the error."""
        commit = self.prepare(member, offset, **fields)
        if not isinstance(commit, Append):
            return commit
        self.log += commit.records
        self.outcome(commit, NONE)
        return NONE

    def end_transaction(self, producer, *, committed):
        self.handle(TransactionEnded(producer, committed))

    def is_unstable(self, partition=T0):
        return self.machine.is_unstable("g", partition)

    def offsets(self):
        return self.machine.committed_offsets("g")

    def offset(self, partition=T0):
        found = self.offsets().get(partition)
        return None if found is None else found.offset

    def together(self, *members, **fields):
        """All join, and each gets an assignment."""
        for member in members:
            self.join(member, **fields)
        self.later(0)
        for member in members:
            self.joined(member)
        self.shared(*members)

    def shared(self, *members):
        for member in members:
            self.sync(member, {each.id: each.name.encode() for each in members})
        assert [self.answer(m).assignment for m in members] == [m.name.encode() for m in members]
        assert self.group.state is GroupState.STABLE


@pytest.fixture
def two():
    """A coordinator, and two members of a stable group; the first leads."""
    coordinator, a, b = Coordinator(), Member("a"), Member("b")
    coordinator.together(a, b)
    return coordinator, a, b


# ------------------------------------------------------------------------------ fencing


@pytest.mark.parametrize("off", [-1, 1])
def test_another_generation_is_illegal_whatever_is_asked(two, off):
    coordinator, a, _ = two
    other = a.generation + off
    assert coordinator.beat(a, other) is ErrorCode.ILLEGAL_GENERATION
    assert coordinator.sync(a, generation=other).error is ErrorCode.ILLEGAL_GENERATION
    assert coordinator.commit(a, 1, generation=other) is ErrorCode.ILLEGAL_GENERATION
    assert coordinator.commit(a, 1, generation=other, producer=7) is ErrorCode.ILLEGAL_GENERATION
    assert coordinator.offset() is None


def test_a_client_that_is_not_in_the_group_is_an_unknown_member(two):
    coordinator, a, _ = two
    stranger = Member("c")
    stranger.id, stranger.generation = "c-9", a.generation
    assert coordinator.beat(stranger) is ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.sync(stranger).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.commit(stranger, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.leave(stranger) is ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.join(stranger).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.commit(None, 1) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("reloaded", [False, True])
def test_two_processes_under_one_instance_id_are_one_member_and_the_first_is_fenced(reloaded):
    coordinator, first, other = Coordinator(), Member("s", "S"), Member("o")
    coordinator.together(first, other)
    generation = coordinator.group.generation
    if reloaded:
        coordinator = Coordinator(coordinator.log)
    second = Member("s", "S")
    coordinator.join(second)
    coordinator.joined(second)
    assert second.id != first.id
    assert coordinator.group.generation == generation  # without a rebalance
    assert coordinator.beat(first) is ErrorCode.FENCED_INSTANCE_ID
    assert coordinator.sync(first).error is ErrorCode.FENCED_INSTANCE_ID
    assert coordinator.commit(first, 1) is ErrorCode.FENCED_INSTANCE_ID
    assert coordinator.leave(first) is ErrorCode.FENCED_INSTANCE_ID
    assert coordinator.join(first).error is ErrorCode.FENCED_INSTANCE_ID
    assert coordinator.beat(second) is NONE
    assert coordinator.sync(second).assignment == b"s"


def test_a_static_member_that_waits_is_fenced_when_another_takes_its_name():
    coordinator, first, other = Coordinator(), Member("s", "S"), Member("o")
    coordinator.together(first, other)
    coordinator.join(Member("c"))  # so all have to join again
    coordinator.join(first)
    waiting = first.request
    assert coordinator.answer(first) is None
    coordinator.join(Member("s", "S"))
    assert coordinator.answers[waiting].error is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_waits_for_its_part_is_fenced_when_another_takes_its_name():
    coordinator, leader, static = Coordinator(), Member("a"), Member("s", "S")
    coordinator.join(leader)
    coordinator.join(static)
    coordinator.later(0)
    coordinator.joined(static)
    coordinator.sync(static)
    waiting = static.request
    coordinator.join(Member("s", "S"))
    assert coordinator.answers[waiting].error is ErrorCode.FENCED_INSTANCE_ID
    assert coordinator.group.state is GroupState.PREPARING_REBALANCE


@pytest.mark.parametrize("can_skip", [True, False])
def test_a_static_leader_that_restarts_is_not_asked_for_another_assignment(can_skip):
    coordinator, leader, other = Coordinator(), Member("s", "S"), Member("o")
    coordinator.together(leader, other)
    back = Member("s", "S")
    coordinator.join(back, can_skip_assignment=can_skip)
    result = coordinator.joined(back)
    assert result.skip_assignment is can_skip
    # An older client must not take itself for the leader, or it would compute in vain.
    assert (result.leader == back.id) is can_skip
    assert bool(result.members) is can_skip


def test_a_commit_waits_for_the_part_of_the_new_generation(two):
    coordinator, a, b = two
    coordinator.join(Member("c"))
    coordinator.join(a)
    coordinator.join(b)
    coordinator.joined(a)
    assert coordinator.group.state is GroupState.COMPLETING_REBALANCE
    assert coordinator.commit(a, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert coordinator.commit(a, 1, producer=7) is NONE  # as Kafka: it goes with its transaction


# --------------------------------------------------------------------- rebalances, by events


def test_heartbeats_are_answered_with_a_rebalance(two):
    coordinator, a, _ = two
    coordinator.join(Member("c"))
    assert coordinator.beat(a) is ErrorCode.REBALANCE_IN_PROGRESS
    assert coordinator.sync(a).error is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_member_that_does_not_join_in_time_is_removed(two):
    coordinator, a, b = two
    c = Member("c")
    coordinator.join(c)
    coordinator.join(a)
    for _ in range(4):  # it sends heartbeats, and does not join
        coordinator.later(REBALANCE_MS // 4 - 1)
        coordinator.beat(b)
    coordinator.later(SESSION_MS)
    assert set(coordinator.group.members) == {coordinator.joined(a).member_id, c.id}
    assert coordinator.beat(b) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_sends_no_sync_group_in_time_is_removed():
    coordinator, a, b = Coordinator(), Member("a"), Member("b")
    coordinator.join(a)
    coordinator.join(b)
    coordinator.later(0)
    coordinator.joined(a)
    coordinator.joined(b)
    coordinator.sync(a, {a.id: b"a"})
    for _ in range(4):
        coordinator.later(REBALANCE_MS // 4)
        coordinator.beat(a)
        coordinator.beat(b)
    assert set(coordinator.group.members) == {a.id}


def test_a_member_without_heartbeats_is_removed_and_a_commit_prolongs_its_session(two):
    coordinator, a, b = two
    coordinator.later(SESSION_MS - 1)
    assert coordinator.commit(a, 1) is NONE
    coordinator.later(SESSION_MS - 1)
    assert set(coordinator.group.members) == {a.id}
    assert coordinator.beat(b) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_waits_for_an_answer_needs_no_heartbeat(two):
    coordinator, a, _ = two
    coordinator.join(Member("c"))
    coordinator.join(a)
    coordinator.later(SESSION_MS + 1)
    assert a.id in coordinator.group.members


def test_no_member_gets_an_assignment_whose_append_failed():
    coordinator, a, b = Coordinator(), Member("a"), Member("b")
    coordinator.join(a)
    coordinator.join(b)
    coordinator.later(0)
    coordinator.joined(a)
    coordinator.joined(b)
    coordinator.held = []
    coordinator.sync(b)
    assert coordinator.sync(a, {a.id: b"a", b.id: b"b"}) is None  # not before it is stored
    (store,) = coordinator.held
    coordinator.outcome(store, ErrorCode.NOT_COORDINATOR)
    assert coordinator.answer(a).error is ErrorCode.NOT_COORDINATOR
    assert coordinator.answer(b).error is ErrorCode.NOT_COORDINATOR
    assert coordinator.group.state is GroupState.PREPARING_REBALANCE


def test_a_leader_that_asks_twice_gives_one_assignment_to_its_generation():
    """It lost its connection while the first was being stored."""
    coordinator, a, b = Coordinator(), Member("a"), Member("b")
    coordinator.join(a)
    coordinator.join(b)
    coordinator.later(0)
    coordinator.joined(a)
    coordinator.joined(b)
    coordinator.held = []
    coordinator.sync(b)
    coordinator.sync(a, {a.id: b"a", b.id: b"b"})
    coordinator.sync(a, {a.id: b"other a", b.id: b"other b"})
    for store in coordinator.held:
        coordinator.outcome(store, NONE)
    again = Coordinator(coordinator.log)
    for member, part in ((a, b"a"), (b, b"b")):
        assert coordinator.answer(member).assignment == part
        assert again.sync(member).assignment == part


def test_the_session_of_a_static_member_begins_when_its_replacement_is_appended():
    coordinator, static = Coordinator(session_timeout_ms_min=1_000), Member("s", "S")
    coordinator.together(static, session_timeout_ms=1_000)
    coordinator.held = []
    static.id = ""
    coordinator.join(static, session_timeout_ms=1_000)
    coordinator.later(2_000)
    coordinator.outcome(coordinator.held.pop(), NONE)
    assert coordinator.joined(static).generation == 1
    coordinator.later(999)
    assert list(coordinator.group.members) == [static.id]
    coordinator.later(2)
    assert not coordinator.group.members


def test_an_assignment_that_is_stored_too_late_is_of_a_generation_that_is_over():
    coordinator, a, b = Coordinator(), Member("a"), Member("b")
    coordinator.join(a)
    coordinator.later(0)
    coordinator.joined(a)
    coordinator.held = []
    coordinator.sync(a, {a.id: b"old"})
    (old,) = coordinator.held
    coordinator.join(b)
    coordinator.join(a)
    coordinator.joined(a)
    coordinator.joined(b)
    coordinator.sync(b)
    coordinator.outcome(old, NONE)
    assert coordinator.group.state is GroupState.COMPLETING_REBALANCE
    assert coordinator.answer(b) is None


def test_the_leader_may_rebalance_without_a_change_and_others_may_not(two):
    coordinator, a, b = two
    assert coordinator.join(b).generation == b.generation
    assert coordinator.group.state is GroupState.STABLE
    assert coordinator.join(a) is None
    assert coordinator.group.state is GroupState.PREPARING_REBALANCE


def test_if_the_leader_leaves_another_member_leads(two):
    coordinator, a, b = two
    assert coordinator.leave(a) is NONE
    assert coordinator.group.leader == b.id
    coordinator.join(b)
    assert [m.member_id for m in coordinator.joined(b).members] == [b.id]


def test_a_static_leader_that_has_not_joined_does_not_lead():
    coordinator, static, other = Coordinator(), Member("s", "S"), Member("o")
    coordinator.together(static, other, session_timeout_ms=1_000_000)
    coordinator.join(Member("c"), session_timeout_ms=1_000_000)
    coordinator.join(other, session_timeout_ms=1_000_000)
    coordinator.later(REBALANCE_MS)
    result = coordinator.joined(other)
    assert result.leader == other.id
    assert static.id in coordinator.group.members


def test_the_first_rebalance_waits_longer_while_more_come():
    coordinator, a, b = Coordinator(initial_rebalance_delay_ms=1_000), Member("a"), Member("b")
    coordinator.join(a)
    coordinator.later(900)
    coordinator.join(b)
    coordinator.later(900)
    assert coordinator.answer(a) is None
    coordinator.later(200)
    assert coordinator.joined(a).generation == 1


def test_the_protocol_is_one_that_all_support_and_most_prefer():
    coordinator = Coordinator()
    proposals = (("b", "a", "z"), ("b", "a"), ("a", "b"))
    members = [Member(name) for name in "xyz"]
    for member, names in zip(members, proposals, strict=True):
        coordinator.join(member, protocols=tuple((name, b"") for name in names))
    coordinator.later(0)
    assert coordinator.joined(members[0]).protocol == "b"


@pytest.mark.parametrize(
    ("protocol_type", "protocols"), [("consumer", (("other", b""),)), ("connect", RANGE)]
)
def test_a_member_without_a_common_protocol_is_refused(two, protocol_type, protocols):
    coordinator, _, _ = two
    answer = coordinator.join(Member("c"), protocol_type=protocol_type, protocols=protocols)
    assert answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert coordinator.group.state is GroupState.STABLE


def test_a_full_group_refuses_members():
    coordinator, a, b = Coordinator(size_max=2), Member("a"), Member("b")
    coordinator.together(a, b)
    assert coordinator.join(Member("c")).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert coordinator.beat(a) is NONE


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001])
def test_a_session_of_no_sensible_length_is_refused(session_ms):
    answer = Coordinator().join(Member("a"), session_timeout_ms=session_ms)
    assert answer.error is ErrorCode.INVALID_SESSION_TIMEOUT


def test_a_member_id_that_is_not_used_delays_a_rebalance_for_the_session_timeout():
    coordinator, a, b = Coordinator(), Member("a"), Member("b")
    coordinator.together(a)
    coordinator.handle(
        Join(
            request=coordinator.next_request(b), group_id="g", member_id="", fresh_member_id="b-1",
            session_timeout_ms=SESSION_MS, rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer", protocols=RANGE,
        )
    )  # fmt: skip
    assert coordinator.answer(b).error is ErrorCode.MEMBER_ID_REQUIRED
    coordinator.join(a)  # it leads, and wants another generation
    assert coordinator.answer(a) is None
    coordinator.later(SESSION_MS)
    assert coordinator.joined(a).generation == 2


def test_a_group_of_static_members_that_do_not_join_waits_for_their_sessions_and_is_then_empty():
    coordinator, static = Coordinator(), Member("s", "S")
    coordinator.together(static, session_timeout_ms=100_000)
    coordinator.join(Member("c"), session_timeout_ms=6_000)
    coordinator.handle(  # the member that caused the rebalance leaves again
        Leave(
            request=0,
            group_id="g",
            members=(LeavingMember(member_id=next(reversed(ids(coordinator)))),),
        )
    )
    coordinator.later(REBALANCE_MS)
    assert ids(coordinator) == [static.id]  # its place is kept,
    coordinator.later(100_000 - REBALANCE_MS)
    assert coordinator.group.state is GroupState.EMPTY  # for its session's time


def ids(coordinator):
    return list(coordinator.group.members)


def test_a_static_member_that_joins_again_with_another_protocol_rebalances_the_group():
    coordinator, static = Coordinator(), Member("s", "S")
    both = (("range", SUBSCRIPTION), ("sticky", SUBSCRIPTION))
    coordinator.together(static, protocols=both)
    back = Member("s", "S")
    coordinator.join(back, protocols=both[::-1])
    assert coordinator.group.state is not GroupState.STABLE
    coordinator.later(0)
    assert coordinator.joined(back).protocol == "sticky"


def test_an_administrator_removes_a_static_member_by_its_instance_id_alone():
    coordinator, static, other = Coordinator(), Member("s", "S"), Member("o")
    coordinator.together(static, other)
    for instance, error in (("S", NONE), ("S", ErrorCode.UNKNOWN_MEMBER_ID)):
        leaving = LeavingMember(member_id="", group_instance_id=instance)
        assert coordinator.ask(Leave, members=(leaving,)).members == (error,)
    assert ids(coordinator) == [other.id]


def test_a_member_id_that_is_not_used_yet_may_leave():
    coordinator, a = Coordinator(), Member("a")
    coordinator.handle(asking(coordinator, a))
    a.id = coordinator.answer(a).member_id
    assert coordinator.leave(a) is NONE
    assert coordinator.group is None


def asking(coordinator, member):
    """One JoinGroup without a member id; `join` sends the second, with the id."""
    return Join(
        request=coordinator.next_request(member), group_id="g", member_id="",
        fresh_member_id=f"{member.name}-{coordinator.requests}", session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=REBALANCE_MS, protocol_type="consumer", protocols=RANGE,
    )  # fmt: skip


def test_of_too_many_unused_member_ids_the_oldest_is_dropped():
    coordinator, first = Coordinator(), Member("a")
    coordinator.handle(asking(coordinator, first))
    first.id = coordinator.answer(first).member_id
    for _ in range(PENDING_JOINS_MAX):
        coordinator.handle(asking(coordinator, Member("b")))
    assert len(coordinator.group.pending_joins) == PENDING_JOINS_MAX
    assert coordinator.join(first).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_that_does_not_exist_has_no_members():
    coordinator, a = Coordinator(), Member("a")
    a.id, a.generation = "a-1", 1
    assert coordinator.beat(a) is ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.sync(a).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.leave(a) is ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.join(a).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.commit(a, 1) is ErrorCode.ILLEGAL_GENERATION


# ---------------------------------------------------------------------------------- offsets


@pytest.mark.parametrize("producer", [-1, 7])
def test_what_was_appended_later_counts_whichever_is_settled_first(producer):
    coordinator = Coordinator()
    first, second = coordinator.prepare(None, 1), coordinator.prepare(None, 2, producer=producer)
    coordinator.outcome(second, NONE)
    coordinator.end_transaction(7, committed=True)
    coordinator.outcome(first, NONE)
    assert coordinator.offset() == 2


@pytest.mark.parametrize("producer", [-1, 7])
@pytest.mark.parametrize("refused_first", [True, False])
def test_a_later_commit_that_is_refused_takes_no_earlier_one_with_it(producer, refused_first):
    """The ISR shrinks while the first waits for its followers, and grows again."""
    coordinator = Coordinator()
    first = coordinator.prepare(None, 1, producer=producer)
    second = coordinator.prepare(None, 2, producer=producer)
    settled = [(first, NONE), (second, ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    for commit, error in reversed(settled) if refused_first else settled:
        coordinator.outcome(commit, error)
    coordinator.end_transaction(7, committed=True)
    assert coordinator.offset() == 1
    assert not coordinator.is_unstable()


def test_an_offset_that_is_deleted_while_it_is_staged_stays_deleted():
    """Also if another commit for the same partition is staged behind the tombstone."""
    coordinator = Coordinator()
    first = coordinator.prepare(None, 1)
    coordinator.ask(DeleteOffsets, partitions=(T0,))
    second = coordinator.prepare(None, 2)
    coordinator.outcome(first, NONE)
    coordinator.outcome(second, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert coordinator.offset() is None
    assert not coordinator.is_unstable()


def test_an_offset_is_committed_when_it_is_appended_and_unstable_till_then():
    coordinator = Coordinator()
    commit = coordinator.prepare(None, 1)
    assert coordinator.offset() is None
    assert coordinator.is_unstable()
    coordinator.outcome(commit, NONE)
    assert coordinator.offset() == 1
    assert not coordinator.is_unstable()


@pytest.mark.parametrize("error", [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_COORDINATOR])
def test_an_offset_whose_append_failed_is_not_committed(error):
    coordinator = Coordinator()
    coordinator.outcome(coordinator.prepare(None, 1), error)
    assert coordinator.offset() is None
    assert coordinator.group is None


@pytest.mark.parametrize("committed", [True, False])
def test_an_offset_in_a_transaction_is_committed_with_it(committed):
    coordinator = Coordinator()
    assert coordinator.commit(None, 1) is NONE
    assert coordinator.commit(None, 2, producer=7) is NONE
    assert coordinator.offset() == 1
    assert coordinator.is_unstable()
    coordinator.end_transaction(7, committed=committed)
    assert coordinator.offset() == (2 if committed else 1)
    assert not coordinator.is_unstable()


def test_a_marker_does_not_bring_back_an_offset_of_a_deleted_topic():
    coordinator = Coordinator()
    coordinator.commit(None, 1)
    coordinator.commit(None, 2, producer=7)
    coordinator.commit(None, 3, producer=7, partition=OTHER)
    coordinator.handle(TopicsDeleted("g", frozenset({"t"})))
    coordinator.end_transaction(7, committed=True)
    assert coordinator.offsets().keys() == {OTHER}


def test_a_record_of_a_newer_kafka_is_skipped():
    coordinator = Coordinator()
    coordinator.commit(None, 1)
    newer = (b"\0\3whatever", b"\0\0")
    assert Coordinator([newer, *coordinator.log, newer]).offset() == 1


@pytest.mark.parametrize(
    ("error", "offset"), [(ErrorCode.REQUEST_TIMED_OUT, 2), (ErrorCode.NOT_COORDINATOR, 1)]
)
def test_an_offset_that_may_be_in_the_log_before_its_marker_is_committed_by_it(error, offset):
    coordinator = Coordinator()
    assert coordinator.commit(None, 1) is NONE
    coordinator.outcome(coordinator.prepare(None, 2, producer=7), error)
    coordinator.end_transaction(7, committed=True)
    assert coordinator.offset() == offset


def test_metadata_has_a_limit():
    coordinator = Coordinator(offset_metadata_chars_max=3)
    assert coordinator.commit(None, 1, metadata="abcd") is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert coordinator.commit(None, 1, metadata="abc") is NONE


def test_the_log_alone_gives_the_same_offsets_and_members(two):
    coordinator, a, _ = two
    assert coordinator.commit(a, 5) is NONE
    coordinator.commit(a, 6, partition=T1)
    coordinator.ask(DeleteOffsets, partitions=(T1,))  # consumers subscribe to t: it stays
    again = Coordinator(coordinator.log)
    assert again.offsets().keys() == {T0, T1}
    assert again.offset() == 5
    assert again.beat(a) is NONE
    assert again.sync(a).assignment == b"a"


@pytest.mark.parametrize("committed", [True, False])
def test_an_offset_whose_transaction_is_open_in_the_log_waits_for_its_marker(committed):
    coordinator = Coordinator()
    coordinator.commit(None, 1)
    coordinator.log += coordinator.prepare(None, 2, producer=7).records
    again = Coordinator()
    again.handle(replayed(coordinator.log[:1], -1))
    again.handle(replayed(coordinator.log[1:], 7, first=1))
    again.handle(Loaded())
    assert again.offset() == 1
    assert again.is_unstable()
    again.handle(MarkerReplayed(7, committed))
    assert again.offset() == (2 if committed else 1)


def test_sessions_time_out_after_a_failover_too(two):
    coordinator, a, b = two
    again = Coordinator(coordinator.log)
    again.later(SESSION_MS - 1)
    again.beat(a)
    again.later(2)
    assert set(again.group.members) == {a.id}
    assert again.beat(b) is ErrorCode.UNKNOWN_MEMBER_ID


def test_requests_that_wait_get_not_coordinator_after_a_resignation(two):
    coordinator, a, b = two
    coordinator.join(Member("c"))
    coordinator.join(a)
    coordinator.handle(Resigned())
    assert coordinator.answer(a).error is ErrorCode.NOT_COORDINATOR
    other, c, d = Coordinator(), Member("c"), Member("d")
    other.join(c)
    other.join(d)
    other.later(0)
    other.joined(d)
    other.sync(d)
    other.handle(Resigned())
    assert other.answer(d).error is ErrorCode.NOT_COORDINATOR
    assert other.machine.next_deadline_ms is None
    assert b.id


# ---------------------------------------------------------------------------------- removal


def test_a_group_that_is_deleted_leaves_nothing_in_the_log(two):
    coordinator, a, b = two
    coordinator.commit(a, 5)
    assert coordinator.ask(DeleteGroup).error is ErrorCode.NON_EMPTY_GROUP
    coordinator.leave(a)
    coordinator.leave(b)
    assert coordinator.ask(DeleteGroup).error is NONE
    assert coordinator.group is None
    assert Coordinator(coordinator.log).machine.groups == {}
    assert coordinator.ask(DeleteGroup).error is ErrorCode.GROUP_ID_NOT_FOUND


def test_deleted_offsets_are_deleted_in_the_log_and_subscribed_ones_stay(two):
    coordinator, a, _ = two
    coordinator.commit(a, 5)
    coordinator.commit(a, 6, partition=OTHER)
    answer = coordinator.ask(DeleteOffsets, partitions=(T0, OTHER))
    assert answer == PartitionsAnswer(NONE, {T0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, OTHER: NONE})
    for one in (coordinator, Coordinator(coordinator.log)):
        assert one.offsets().keys() == {T0}


def expired(coordinator, wall_ms):
    """The partitions whose offsets are left after the retention."""
    before = coordinator.now
    coordinator.now = before._replace(wall_ms=wall_ms)
    coordinator.handle(ExpirationDue("g"))
    coordinator.now = before
    left = coordinator.offsets().keys()
    assert Coordinator(coordinator.log).offsets().keys() == left
    return left


def test_offsets_expire_so_long_after_the_last_member_has_left():
    coordinator, a = Coordinator(offsets_retention_ms=1_000), Member("a")
    coordinator.together(a)
    coordinator.commit(a, 5)
    coordinator.later(5_000)
    coordinator.leave(a)
    assert expired(coordinator, 5_999) == {T0}
    assert expired(coordinator, 6_000) == set()
    assert coordinator.group is None


def test_offsets_of_subscribed_topics_do_not_expire_and_others_do():
    coordinator, a = Coordinator(offsets_retention_ms=1_000), Member("a")
    coordinator.together(a)
    coordinator.commit(a, 5)
    coordinator.commit(a, 5, partition=OTHER)
    assert expired(coordinator, 999) == {T0, OTHER}
    assert expired(coordinator, 5_000) == {T0}


def test_offsets_without_a_group_expire_so_long_after_their_commit():
    coordinator = Coordinator(offsets_retention_ms=1_000)
    coordinator.commit(None, 5)
    assert expired(coordinator, 999) == {T0}
    assert expired(coordinator, 1_000) == set()


def test_an_offset_whose_next_commit_is_pending_in_a_transaction_does_not_expire():
    coordinator = Coordinator(offsets_retention_ms=1_000)
    coordinator.commit(None, 5)
    coordinator.commit(None, 5, partition=OTHER)
    coordinator.later(1_000)
    coordinator.commit(None, 6, producer=7)
    before = len(coordinator.log)
    assert expired(coordinator, 1_000) == {T0}
    # A tombstone behind the record of the transaction would outlive it in a compaction.
    erased = [key for key, _ in coordinator.log[before:]]
    assert erased == [encode_offset_key("g", "other", 0)]
    coordinator.end_transaction(7, committed=True)
    assert coordinator.offset() == 6
    assert expired(coordinator, 1_999) == {T0}
    assert expired(coordinator, 2_000) == set()


def test_a_group_of_which_only_a_pending_offset_is_known_stays_until_the_transaction_ends():
    coordinator = Coordinator(offsets_retention_ms=1_000)
    coordinator.commit(None, 6, producer=7)
    coordinator.later(1_000_000)
    coordinator.handle(ExpirationDue("g"))
    assert coordinator.group is not None
    coordinator.end_transaction(7, committed=True)
    assert coordinator.offset() == 6


@pytest.mark.parametrize("producer", [-1, 7])
def test_an_offset_that_is_committed_to_an_empty_group_expires_so_long_after_its_commit(producer):
    coordinator, a = Coordinator(offsets_retention_ms=1_000), Member("a")
    coordinator.together(a)
    coordinator.commit(a, 5, partition=OTHER)
    coordinator.leave(a)
    coordinator.later(1_000)
    assert coordinator.commit(None, 5, producer=producer) is NONE
    coordinator.end_transaction(7, committed=True)
    assert expired(coordinator, 1_999) == {T0}
    assert expired(coordinator, 2_000) == set()


@pytest.mark.parametrize("whole_group", [True, False])
def test_an_offset_that_is_deleted_within_a_transaction_is_not_brought_back_by_the_log(whole_group):
    coordinator = Coordinator()
    coordinator.commit(None, 6, producer=7)
    if whole_group:
        coordinator.ask(DeleteGroup)
    else:
        coordinator.ask(DeleteOffsets, partitions=(T0,))
    again = Coordinator()
    for offset, each in enumerate(coordinator.log):
        again.handle(replayed([each], -1 if each[1] is None else 7, first=offset))
    again.handle(MarkerReplayed(7, committed=True))
    again.handle(Loaded())
    coordinator.end_transaction(7, committed=True)
    assert again.offsets() == coordinator.offsets() == {}


def test_offsets_of_a_deleted_topic_are_removed(two):
    coordinator, a, _ = two
    coordinator.commit(a, 5)
    coordinator.commit(a, 5, partition=OTHER)
    coordinator.handle(TopicsDeleted("g", frozenset({"other"})))
    assert coordinator.offsets().keys() == {T0}
    assert Coordinator(coordinator.log).offsets().keys() == {T0}


# ------------------------------------------------------------------------------- invariants


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("awaiting_join", 1, "0 members wait, not 1"),
        ("leader", "a stranger", "a stranger leads"),
        ("state", GroupState.EMPTY, "it has members"),
        ("protocol", None, "it has no protocol"),
        ("storing", 9, "generation 9 is stored"),
        ("static_members", {"S": "a stranger"}, "is not {'S': 'a stranger'}"),
    ],
)
def test_a_state_that_contradicts_itself_is_found(two, field, value, rule):
    coordinator, _, _ = two
    setattr(coordinator.group, field, value)
    with pytest.raises(InvariantError, match=re.escape(rule)):
        coordinator.machine.validate()
