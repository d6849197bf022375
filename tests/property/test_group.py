"""Groups under lost answers, duplicates, silence, failed writes and changing coordinators.

A few clients do what consumers do; their answers may get lost, their requests come twice, what is
appended may be confirmed late or never, and now and then another coordinator goes on with what is
committed and as much of the rest as happened to survive. In no order of all this

    * is a request answered twice, or left without an answer by a coordinator that gives up
    * are two members of one generation given parts of different assignments
    * is a commit taken from a generation before the last that was given to anybody
    * does a position that was confirmed go back, or expire in a transaction that is open
    * does a group stay unable to come together once nothing goes wrong any more
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from odradek.group.effects import (
    Erase,
    Join,
    JoinAnswer,
    Leave,
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
    Unloaded,
)
from odradek.group.group import GroupState
from odradek.group.machine import Commit, Committer, GroupMachine
from odradek.group.options import GroupOptions
from odradek.group.records import Committed
from odradek.model.errors import ErrorCode
from odradek.record.records import Record

PLACE = ("t", 0)
CLIENTS = st.integers(0, 3)
OPTIONS = GroupOptions(initial_rebalance_delay_ms=100)
PROTOCOLS = (("range", b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"),)


class Client:
    """What a consumer remembers. The last one of four is a static member."""

    def __init__(self, number: int) -> None:
        self.instance_id = "static" if number == 3 else None
        self.member_id = ""
        self.generation = -1
        self.leads = ()  # whom it has to give parts
        self.joined = False  # has a generation,
        self.synced = False  # and its part in it
        self.awaits = None  # a ticket


class GroupLife(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.machine = GroupMachine(OPTIONS)
        self.clients = [Client(number) for number in range(4)]
        self.now = Now(0, 0)
        self.log = []  # key, value, producer id; or producer id, committed
        self.waiting = []  # what was appended: log end, and who is to hear of it
        self.answers = {}  # ticket: client, or None where nobody listens any more
        self.answered = set()
        self.tickets = 0
        self.stamps = {}  # generation: the assignment that somebody was given in it
        self.newest_given = -1
        self.offset = 0
        self.confirmed = -1
        self.pending = {}  # producer: the newest offset that is confirmed in its transaction
        self.loses_answers = False
        self.past = []  # every member id and generation that somebody was given

    # ------------------------------------------------------------------------- effects

    def ticket(self, client):
        self.tickets += 1
        self.answers[self.tickets] = client
        if client.awaits is not None:
            self.answers[client.awaits] = None
        client.awaits = self.tickets
        return self.tickets

    def tell(self, event):
        for effect in self.machine.handle(event, self.now):
            self.perform(effect)

    def perform(self, effect):
        match effect:
            case Reply(ticket, answer):
                assert ticket not in self.answered, "answered twice"
                self.answered.add(ticket)
                client = self.answers.pop(ticket)
                if client is not None:
                    client.awaits = None
                if isinstance(answer, SyncAnswer) and not answer.error:
                    self.given(answer)
                if client is not None and not self.loses_answers:
                    self.hear(client, answer)
            case Store(_, records, _):
                self.log += [(key, value, -1) for key, value in records]
                self.waiting.append((len(self.log), effect))
            case Erase(keys):
                self.log += [(key, None, -1) for key in keys]
            case Note():
                pass

    def given(self, answer):
        """Every part is stamped with its assignment and generation, unless it is empty."""
        if answer.assignment:
            generation, stamp = map(int, answer.assignment.split(b":"))
            assert self.stamps.setdefault(generation, stamp) == stamp, "two assignments"
            assert generation == self.machine.groups["g"].generation, "an old assignment"
            self.newest_given = max(self.newest_given, generation)

    def hear(self, client, answer):
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
                self.mind(client, answer.error)
        elif isinstance(answer, SyncAnswer):
            client.synced = answer.error is ErrorCode.NONE
            self.mind(client, answer.error)

    def mind(self, client, error):
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            client.member_id = ""
        if error is not ErrorCode.NONE:
            client.joined = client.synced = False

    # ------------------------------------------------------------------------- clients

    @rule(number=CLIENTS)
    def join(self, number):
        client = self.clients[number]
        self.tell(
            Join(
                ticket=self.ticket(client),
                group_id="g",
                member_id=client.member_id,
                fresh_member_id=f"{number}-{self.tickets}",
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
        self.tell(
            Sync(
                ticket=self.ticket(client),
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
            error = self.machine.heartbeat(
                "g", client.generation, client.member_id, client.instance_id, self.now.monotonic_ms
            )
            if error:
                self.mind(client, error)

    @rule(number=CLIENTS, really=st.integers(0, 2))
    def leave(self, number, really):
        client = self.clients[number]
        if client.member_id and not really:
            leaving = Leaving(member_id=client.member_id, group_instance_id=client.instance_id)
            ticket = self.ticket(client)
            self.tell(Leave(ticket=ticket, group_id="g", members=[leaving]))
            assert ticket in self.answered
            client.member_id, client.joined, client.synced = "", False, False

    @rule(number=CLIENTS, producer=st.sampled_from([-1, -1, 7, 8]))
    def commit(self, number, producer):
        client = self.clients[number]
        if client.joined:
            who = (client.member_id, client.generation, client.instance_id)
            self.mind(client, self.commit_as(*who, producer))

    @precondition(lambda self: self.past)
    @rule(data=st.data(), producer=st.sampled_from([-1, 7]))
    def somebody_of_old_commits(self, data, producer):
        """It was paused, and believes in what it was told then."""
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
        self.offset += 1
        position = {PLACE: Committed(self.offset, -1, "", 0)}
        commit = self.machine.commit("g", who, position, self.now)
        if isinstance(commit, ErrorCode):
            return commit
        self.log += [(key, value, who.producer_id) for key, value in commit.records]
        self.waiting.append((len(self.log), commit))
        return ErrorCode.NONE

    @rule(producer=st.sampled_from([-1, 7, 8]))
    def somebody_without_a_group_commits(self, producer):
        """Which is taken while the group has no members, or in a transaction."""
        self.append_commit(Committer(producer_id=producer))

    @rule(producer=st.sampled_from([-1, 7, 8]))
    def a_commit_is_refused(self, producer):
        """There were too few replicas in sync: nothing was appended."""
        who = Committer(producer_id=producer)
        position = {PLACE: Committed(self.offset + 1_000, -1, "", 0)}
        commit = self.machine.commit("g", who, position, self.now)
        if isinstance(commit, Commit):
            self.machine.settle(commit, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    @rule()
    def offsets_expire(self):
        """After a year."""
        for effects in self.machine.expiring(1 << 36):
            for effect in effects:
                self.perform(effect)
        if self.confirmed >= 0 and not self.machine.positions("g"):
            assert not self.pending, "another is pending in a transaction"
            self.confirmed = -1

    @rule(producer=st.sampled_from([7, 8]), committed=st.booleans())
    def transaction_ends(self, producer, committed):
        self.confirm_all()  # a marker is told of when it is committed, and so is all before it
        self.log.append((producer, committed))
        self.machine.transaction_ended(producer, committed=committed)
        newest = self.pending.pop(producer, -1)
        if committed:
            self.confirmed = max(self.confirmed, newest)

    @rule(numbers=st.sets(CLIENTS, min_size=2))
    def some_go_on(self, numbers):
        """As consumers do when nothing is in their way."""
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
    def all_is_well_for_a_while(self, rounds):
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
        if isinstance(each, Store):
            self.tell(Stored(each, ErrorCode.NONE))
            return
        self.machine.settle(each, ErrorCode.NONE)
        newest = each.commits[PLACE].offset
        if each.producer_id < 0:
            self.confirmed = max(self.confirmed, newest)
        else:
            self.pending[each.producer_id] = newest

    def confirm_all(self):
        while self.waiting:
            self.confirm()

    @precondition(lambda self: self.waiting)
    @rule()
    def give_up_waiting(self):
        """It is in the log all the same."""
        _, each = self.waiting.pop(0)
        if isinstance(each, Store):
            self.tell(Stored(each, ErrorCode.REBALANCE_IN_PROGRESS))
        else:
            assert isinstance(each, Commit)
            self.machine.settle(each, ErrorCode.REQUEST_TIMED_OUT)

    @rule(ms=st.sampled_from([50, 100, 500, 500, 2_000, 12_000]))
    def time_passes(self, ms):
        end_ms = self.now.monotonic_ms + ms
        while (due_ms := self.machine.next_deadline_ms) is not None and due_ms <= end_ms:
            self.now = Now(max(due_ms, self.now.monotonic_ms), 0)
            self.tell(Tick())
        self.now = Now(end_ms, 0)

    @rule(kept=st.integers(0, 20))
    def another_coordinates(self, kept):
        """What is confirmed is there, and `kept` records more at most; mostly, nothing happens."""
        if kept > 5:
            return
        # What is given up was not confirmed either, but is taken to be on all replicas.
        first = self.waiting[0] if self.waiting else (len(self.log), None)
        records = 1 if first[1] is None or isinstance(first[1], Store) else len(first[1].records)
        confirmed = first[0] - (records if first[1] is not None else 0)
        del self.log[confirmed + kept :]
        self.tell(Unloaded())
        unanswered = [t for t in self.answers if t not in self.answered]
        assert unanswered == [], "left without an answer"
        self.waiting.clear()
        self.machine = GroupMachine(OPTIONS)
        for offset, entry in enumerate(self.log):
            if len(entry) == 2:
                self.machine.replay_marker(entry[0], committed=entry[1])
            else:
                key, value, producer = entry
                self.machine.replay(Record(key, value, offset=offset), producer)
        self.tell(Loaded())

    # ---------------------------------------------------------------------- invariants

    @invariant()
    def no_position_goes_back(self):
        position = self.machine.positions("g").get(PLACE)
        assert self.confirmed < 0 or position.offset >= self.confirmed

    @invariant()
    def a_group_counts_right(self):
        group = self.machine.groups.get("g")
        if group is None:
            return
        members = group.members.values()
        assert group.awaiting_join == sum(m.join_ticket is not None for m in members)
        assert group.leader is None or group.leader in group.members
        assert (group.state is GroupState.EMPTY) <= (not group.members)
        assert all(
            group.members[member_id].group_instance_id == instance_id
            for instance_id, member_id in group.static_members.items()
        )
        for member in members:
            assert member.timer_ms is None or member.timer_ms <= member.deadline_ms
            assert member.timer_ms is not None or member.is_waiting

    def teardown(self):
        """Nothing goes wrong any more: all four come together."""
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
