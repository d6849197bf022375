"""Groups under lost answers, duplicates, missing heartbeats, failed appends and failovers.

A few clients do what consumers do; their answers may get lost, their requests come twice, what is
appended may be confirmed late or never, and now and then another coordinator goes on with what is
committed and as much of the rest as happened to survive. In no order of all this

    * is a request answered twice, or left without an answer by a coordinator that resigns
    * do two members of one generation get parts of different assignments
    * is a commit accepted from a generation before the last whose assignments were answered
    * does a confirmed offset go back, or expire in a transaction that is open
    * does a group not become stable once nothing fails any more
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from odradek.group.effects import (
    Answer,
    Append,
    AppendTombstones,
    HeartbeatAnswer,
    JoinAnswer,
    PartitionsAnswer,
    SyncAnswer,
)
from odradek.group.events import (
    Appended,
    CommitOffsets,
    Committer,
    DeadlineReached,
    ExpirationDue,
    Heartbeat,
    Join,
    Leave,
    LeavingMember,
    Sync,
    TransactionEnded,
)
from odradek.group.group import GroupState
from odradek.group.machine import GroupMachine
from odradek.group.options import GroupOptions
from odradek.group.records import CommittedOffset, decode_offset_value
from odradek.model.clock import Now
from odradek.model.errors import ErrorCode
from odradek.model.partition import TopicPartition
from odradek.model.trampoline import Trampoline
from odradek.record.coordinator import Loaded, MarkerReplayed, Note, Replayed, Resigned
from odradek.record.records import Record

PARTITION = TopicPartition("t", 0)
CLIENTS = st.integers(0, 3)
OPTIONS = GroupOptions(initial_rebalance_delay_ms=100)
PROTOCOLS = (("range", b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"),)


class Client:
    """What a consumer has of its membership. The last one of four is a static member."""

    def __init__(self, number: int) -> None:
        self.instance_id = "static" if number == 3 else None
        self.member_id = ""
        self.generation = -1
        self.leads = ()  # the members that it assigns to
        self.joined = False  # has a generation,
        self.synced = False  # and its part in it
        self.awaits = None  # the number of a request


class GroupLife(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = Now(0, 0)
        self.start()
        self.clients = [Client(number) for number in range(4)]
        self.log = []  # key, value, producer id; or producer id, committed
        self.waiting = []  # appends under way, each with the log end
        self.answers = {}  # request: client, or None where its answer is dropped
        self.answered = set()
        self.requests = 0
        self.errors = {}  # request: the error, when it is answered
        self.stamps = {}  # generation: the assignment that a member got in it
        self.newest_given = -1
        self.offset = 0
        self.confirmed = -1
        self.pending = {}  # producer: the newest offset that is confirmed in its transaction
        self.loses_answers = False
        self.past = []  # every member id and generation that a member got

    # ------------------------------------------------------------------------- effects

    def start(self):
        self.machine = GroupMachine(OPTIONS)
        self.trampoline = Trampoline(lambda event: self.machine.handle(event, self.now))

    def request(self, client):
        self.requests += 1
        self.answers[self.requests] = client
        if client is not None:
            if client.awaits is not None:
                self.answers[client.awaits] = None
            client.awaits = self.requests
        return self.requests

    def handle(self, event):
        self.trampoline.run(event, self.perform)
        if "g" not in self.machine.groups:  # a group that was removed begins again at generation 1
            self.stamps.clear()
            self.newest_given = -1
        self.machine.validate()

    def perform(self, effect):
        match effect:
            case Answer(request, answer):
                assert request not in self.answered, "answered twice"
                self.answered.add(request)
                client = self.answers.pop(request)
                if client is not None:
                    client.awaits = None
                if isinstance(answer, PartitionsAnswer | HeartbeatAnswer):
                    self.errors[request] = answer.error
                if isinstance(answer, SyncAnswer) and answer.assignment and not answer.error:
                    self.given(*map(int, answer.assignment.split(b":")))
                if client is not None and not self.loses_answers:
                    self.take_answer(client, answer)
            case Append():
                self.log += [(key, value, effect.producer_id) for key, value in effect.records]
                self.waiting.append((len(self.log), effect))
            case AppendTombstones(keys):
                self.log += [(key, None, -1) for key in keys]
            case Note():
                pass

    def given(self, generation, stamp):
        """A member gets its part: each has its generation and the number of its assignment."""
        assert self.stamps.setdefault(generation, stamp) == stamp, "two assignments"
        assert generation == self.machine.groups["g"].generation, "an old assignment"
        self.newest_given = max(self.newest_given, generation)

    def take_answer(self, client, answer):
        if isinstance(answer, JoinAnswer):
            client.joined = client.synced = False
            if answer.error is ErrorCode.NONE:
                client.member_id, client.generation = answer.member_id, answer.generation
                client.joined = True
                self.past.append((client.member_id, client.generation, client.instance_id))
                client.leads = tuple(member.member_id for member in answer.members)
                if answer.skip_assignment:
                    client.leads = ()
            elif answer.error is ErrorCode.MEMBER_ID_REQUIRED:
                client.member_id = answer.member_id
            else:
                self.failed(client, answer.error)
        elif isinstance(answer, SyncAnswer):
            client.synced = answer.error is ErrorCode.NONE
            self.failed(client, answer.error)

    def failed(self, client, error):
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            client.member_id = ""
        if error is not ErrorCode.NONE:
            client.joined = client.synced = False

    # ------------------------------------------------------------------------- clients

    @rule(number=CLIENTS)
    def join(self, number):
        client = self.clients[number]
        self.handle(
            Join(
                request=self.request(client),
                group_id="g",
                member_id=client.member_id,
                fresh_member_id=f"{number}-{self.requests}",
                group_instance_id=client.instance_id,
                session_timeout_ms=6_000,
                rebalance_timeout_ms=10_000,
                protocol_type="consumer",
                protocols=PROTOCOLS,
            )
        )

    @rule(number=CLIENTS)
    def sync(self, number):
        client = self.clients[number]
        if not client.joined:
            return
        self.offset += 1
        part = b"%d:%d" % (client.generation, self.offset)
        self.handle(
            Sync(
                request=self.request(client),
                group_id="g",
                generation=client.generation,
                member_id=client.member_id,
                group_instance_id=client.instance_id,
                assignments=dict.fromkeys(client.leads, part),
            )
        )

    @rule(number=CLIENTS)
    def heartbeat(self, number):
        client = self.clients[number]
        if client.joined:
            request = self.request(None)
            self.handle(
                Heartbeat(
                    request=request,
                    group_id="g",
                    generation=client.generation,
                    member_id=client.member_id,
                    group_instance_id=client.instance_id,
                )
            )
            error = self.errors.pop(request)
            if error:
                self.failed(client, error)

    @rule(number=CLIENTS, really=st.integers(0, 2))
    def leave(self, number, really):
        client = self.clients[number]
        if really or not client.member_id:
            return
        leaving = LeavingMember(member_id=client.member_id, group_instance_id=client.instance_id)
        request = self.request(client)
        self.handle(Leave(request=request, group_id="g", members=(leaving,)))
        assert request in self.answered
        client.member_id, client.joined, client.synced = "", False, False

    @rule(number=CLIENTS, producer=st.sampled_from([-1, -1, 7, 8]))
    def commit(self, number, producer):
        client = self.clients[number]
        if client.joined:
            who = (client.member_id, client.generation, client.instance_id)
            self.failed(client, self.commit_as(*who, producer))

    @precondition(lambda self: self.past)
    @rule(data=st.data(), producer=st.sampled_from([-1, 7]))
    def a_former_member_commits(self, data, producer):
        """It was paused, and continues with the member id and generation of before."""
        self.commit_as(*data.draw(st.sampled_from(self.past)), producer)

    def commit_as(self, member_id, generation, instance_id, producer):
        who = Committer(
            member_id=member_id,
            generation=generation,
            group_instance_id=instance_id,
            producer_id=producer,
        )
        error = self.append_commit(who)
        assert error or generation >= self.newest_given, "an old generation commits"
        return error

    def append_commit(self, who):
        """The error that is answered before anything is appended."""
        self.offset += 1
        request = self.request(None)
        offsets = {PARTITION: CommittedOffset(self.offset, -1, "", 0)}
        self.handle(CommitOffsets(request=request, group_id="g", committer=who, offsets=offsets))
        return self.errors.pop(request, ErrorCode.NONE)

    @rule(producer=st.sampled_from([-1, 7, 8]))
    def a_client_without_a_group_commits(self, producer):
        """This is accepted while the group has no members, or in a transaction."""
        self.append_commit(Committer(producer_id=producer))

    @rule(producer=st.sampled_from([-1, 7, 8]))
    def a_commit_is_refused(self, producer):
        """There are too few in-sync replicas: nothing is appended."""
        self.offset += 1_000
        before = len(self.waiting), len(self.log)
        error = self.append_commit(Committer(producer_id=producer))
        self.offset -= 1_001
        for _, append in self.waiting[before[0] :]:
            self.handle(Appended(append.number, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        assert error or self.errors.popitem()[1] is ErrorCode.COORDINATOR_NOT_AVAILABLE
        del self.waiting[before[0] :], self.log[before[1] :]

    @rule()
    def offsets_expire(self):
        """After a year."""
        before, self.now = self.now, self.now._replace(wall_ms=1 << 36)
        self.handle(ExpirationDue("g"))
        self.now = before
        has_expired = self.confirmed >= 0 and not self.machine.committed_offsets("g")
        assert not (has_expired and self.pending), "another is pending in a transaction"
        if has_expired:
            self.confirmed = -1

    @rule(producer=st.sampled_from([7, 8]), committed=st.booleans())
    def transaction_ends(self, producer, committed):
        self.confirm_all()  # a marker counts when it is committed, and so is all before it
        self.log.append((producer, committed))
        self.handle(TransactionEnded(producer, committed))
        newest = self.pending.pop(producer, -1)
        if committed:
            self.confirmed = max(self.confirmed, newest)

    @rule(numbers=st.sets(CLIENTS, min_size=2))
    def some_go_on(self, numbers):
        """As consumers do when nothing fails."""
        for number in sorted(numbers):
            client = self.clients[number]
            if client.awaits is not None:
                continue
            if not client.joined:
                self.join(number)
            elif not client.synced:
                self.sync(number)
            else:
                self.heartbeat(number)

    @rule(rounds=st.integers(1, 8))
    def nothing_fails_for_a_while(self, rounds):
        for _ in range(rounds):
            self.some_go_on({0, 1, 2, 3})
            self.confirm_all()
            self.time_passes(100)

    @rule()
    def answers_get_lost(self):
        self.loses_answers = not self.loses_answers

    # --------------------------------------------------------------------- log and time

    @precondition(lambda self: self.waiting)
    @rule()
    def confirm(self):
        _, each = self.waiting.pop(0)
        self.handle(Appended(each.number, ErrorCode.NONE))
        if each.base_sequence < 0:
            return  # of a group
        newest = decode_offset_value(each.records[0][1], 0).offset
        if each.producer_id < 0:
            self.confirmed = max(self.confirmed, newest)
        else:
            self.pending[each.producer_id] = newest

    def confirm_all(self):
        while self.waiting:
            self.confirm()

    @precondition(lambda self: self.waiting)
    @rule()
    def an_append_times_out(self):
        """The records are in the log all the same."""
        _, each = self.waiting.pop(0)
        self.handle(Appended(each.number, ErrorCode.REQUEST_TIMED_OUT))

    @rule(ms=st.sampled_from([50, 100, 500, 500, 2_000, 12_000]))
    def time_passes(self, ms):
        end_ms = self.now.monotonic_ms + ms
        while (due_ms := self.machine.next_deadline_ms) is not None and due_ms <= end_ms:
            self.now = Now(max(due_ms, self.now.monotonic_ms), 0)
            self.handle(DeadlineReached())
        self.now = Now(end_ms, 0)

    @rule(kept=st.integers(0, 20))
    def fail_over(self, kept):
        """Confirmed records are there, and `kept` more at most; mostly, nothing happens."""
        if kept > 5:
            return
        # Records whose append timed out are taken to be on all replicas.
        first = self.waiting[0] if self.waiting else (len(self.log), None)
        confirmed = first[0] - (len(first[1].records) if first[1] is not None else 0)
        del self.log[confirmed + kept :]
        self.handle(Resigned())
        for _, each in self.waiting:
            self.handle(Appended(each.number, ErrorCode.NOT_COORDINATOR))
        unanswered = [each for each in self.answers if each not in self.answered]
        assert unanswered == [], "left without an answer"
        self.waiting.clear()
        self.start()
        for offset, entry in enumerate(self.log):
            if len(entry) == 2:
                self.handle(MarkerReplayed(*entry))
            else:
                key, value, producer = entry
                self.handle(Replayed((Record(key, value, offset=offset),), producer))
        self.handle(Loaded())

    # ---------------------------------------------------------------------- invariants

    @invariant()
    def no_confirmed_offset_goes_back(self):
        found = self.machine.committed_offsets("g").get(PARTITION)
        assert self.confirmed < 0 or found.offset >= self.confirmed

    @invariant()
    def each_session_has_a_timer(self):
        group = self.machine.groups.get("g")
        members = [] if group is None else group.members.values()
        assert all(member.timer_ms is not None or member.is_waiting for member in members)

    def teardown(self):
        """Nothing fails any more: all four become members of one generation."""
        self.loses_answers = False
        self.confirm_all()
        for _ in range(40):
            self.some_go_on({0, 1, 2, 3})
            self.confirm_all()
            self.time_passes(500)
        group = self.machine.groups["g"]
        assert group.state is GroupState.STABLE
        assert [client.synced for client in self.clients] == [True] * 4
        assert {client.member_id for client in self.clients} <= set(group.members)
        assert len({client.generation for client in self.clients}) == 1


TestGroupLife = GroupLife.TestCase
TestGroupLife.settings = settings(settings.default, stateful_step_count=60)
