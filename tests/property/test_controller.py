"""The controller keeps its invariants, whatever happens in whatever order.

Brokers come, go and bounce, topics are made, grown and deleted, leaders write behind the
controller's back, disks fail, answers are late or bad, and controllers follow one another in
the middle of it all.
"""

from dataclasses import replace
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from odradek.controller.answers import (
    ElectionsAnswer,
    IsrChangesAnswer,
    ReassignmentsAnswer,
    ShutdownAnswer,
)
from odradek.controller.causes import Verdict
from odradek.controller.controller import Controller
from odradek.controller.effects import (
    Answer,
    AskUnclean,
    Proceed,
    ReadTopics,
    RecordDecisions,
    RemoveDeletions,
    RemoveElections,
    RemoveReassignments,
    RemoveTopics,
    SendRequests,
    StoreStates,
    WriteAssignments,
)
from odradek.controller.events import (
    AssignmentsWritten,
    BrokersChanged,
    BrokersLoaded,
    ControlledShutdownRequested,
    DeletionsChanged,
    ElectionKind,
    ElectionsRequested,
    ElectionsSeen,
    IsrChange,
    IsrChangesRequested,
    LeaderAndIsrAnswered,
    LoadingFinished,
    ReassignmentsRequested,
    ReassignmentsSeen,
    ReplicasDeleted,
    Stored,
    TopicsChanged,
    TopicSeen,
    TopicsLoaded,
    TopicsRead,
    TopicsRemoved,
    UncleanAllowed,
)
from odradek.controller.proposals import NO_VERSION, Accepted, Conflicting, Purpose, StoredState
from odradek.controller.states import PartitionState, ReplicaState
from odradek.model.cluster import Broker
from odradek.model.errors import ErrorCode
from odradek.model.partition import NO_LEADER, RECOVERED, Assignment, TopicPartition
from odradek.model.trampoline import Trampoline

BROKERS = st.integers(1, 4)
TOPICS = st.sampled_from(["a", "b", "c"])
REPLICAS = st.lists(BROKERS, min_size=1, max_size=3, unique=True).map(tuple)
ASSIGNMENTS = st.lists(REPLICAS, min_size=1, max_size=3)
ELECTIONS = frozenset({Purpose.OFFLINE_ELECTION, Purpose.PREFERRED_ELECTION})


def led_by(led):
    return None if led is None else (led.leader, led.leader_epoch)


class Life(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        # What is stored, and what there is.
        self.live: dict[int, Broker] = {}
        self.topics: dict[str, TopicSeen] = {}
        self.states: dict[TopicPartition, StoredState] = {}
        self.deletions: set[str] = set()
        self.moves: dict[TopicPartition, tuple[int, ...]] = {}  # asked for by a node
        self.unclean: set[str] = set()
        self.births = 0
        # The requests that were sent, and when.
        self.leaders: dict[tuple[UUID, TopicPartition, int], int] = {}
        self.to_delete: list[tuple[int, int, tuple[TopicPartition, ...]]] = []
        self.meddlers: list[TopicPartition] = []
        self.answers: list[object] = []
        self.controller: Controller = Controller(controller_epoch=1)

    @initialize()
    def begin(self) -> None:
        self.load(1)

    # ------------------------------------------------------------------------- the shell

    def load(self, epoch: int) -> None:
        self.controller = Controller(controller_epoch=epoch)
        self.settle(BrokersLoaded(tuple(self.live.values())))
        self.settle(TopicsLoaded(tuple(self.topics.values()), dict(self.states)))
        self.settle(LoadingFinished(tuple(sorted(self.deletions)), dict(self.moves)))

    def settle(self, event) -> None:
        trampoline = Trampoline(self.controller.handle)
        for effect in trampoline.settle(event):
            self.controller.validate(is_settled=False)
            outcome = self.perform(effect)
            trampoline.report(*[outcome] if outcome else [])
        self.controller.validate(is_settled=True)

    def perform(self, effect):  # noqa: C901, PLR0911, PLR0912 - one case for each effect
        match effect:
            case Proceed(step):
                return step
            case StoreStates(proposals):
                return Stored(tuple(map(self.store, proposals)))
            case ReadTopics(names):
                return TopicsRead(tuple(self.topics[n] for n in names if n in self.topics))
            case AskUnclean(names):
                return UncleanAllowed({name: name in self.unclean for name in names})
            case RemoveTopics(names):
                self.remove(names)
                return TopicsRemoved(names)
            case RemoveDeletions(names):
                self.deletions -= set(names)
            case WriteAssignments(assignments):
                return AssignmentsWritten(self.write(assignments))
            case RemoveReassignments(names):
                for name in names:
                    del self.moves[name]
            case RemoveElections():
                self.answers.append(effect)
            case SendRequests(update, brokers, _):
                assert brokers == self.controller.context.brokers
                for result in update:
                    self.announce(result)
            case Answer(answer):
                self.answers.append(answer)
            case RecordDecisions(decisions):
                assert all(decision.cause for decision in decisions)
        return None

    def write(self, assignments):
        for name, assignment in assignments.items():
            seen = self.topics[name.topic]
            changed = {**seen.assignments, name.partition: assignment}
            self.topics[name.topic] = replace(seen, assignments=changed)
        return assignments

    def store(self, proposal):
        """Accept a proposal if the stored version is unchanged and it is valid."""
        name, wanted = proposal.partition, proposal.proposed
        if self.meddlers and self.meddlers[0] == name:
            self.meddlers.pop()
            self.meddle(name)
        stands = self.states.get(name)
        if stands is None and wanted.partition_epoch != NO_VERSION:
            return Conflicting(proposal, None)
        if stands is not None and stands.leader_and_isr.partition_epoch != wanted.partition_epoch:
            return Conflicting(proposal, stands)
        self.check_lawful(proposal, stands)
        accepted = replace(wanted, partition_epoch=wanted.partition_epoch + 1)
        self.states[name] = StoredState(accepted, self.controller.context.controller_epoch)
        return Accepted(proposal, accepted.partition_epoch)

    def check_lawful(self, proposal, stands) -> None:
        name, wanted = proposal.partition, proposal.proposed
        topic = self.topics[name.topic]
        replicas = topic.assignments[name.partition].replicas
        strays = set(wanted.isr) - set(replicas)
        assert strays <= set(stands.leader_and_isr.isr if stands else ()), proposal
        if stands is not None:
            self.check_succession(proposal, stands.leader_and_isr)
        # One leader for each leader epoch, over all controllers.
        assert self.leaders.setdefault((topic.id, name, wanted.leader_epoch), wanted.leader) == (
            wanted.leader
        ), proposal

    def check_succession(self, proposal, before) -> None:
        wanted, purpose = proposal.proposed, proposal.purpose
        quiet = purpose is Purpose.LEADER_REQUEST
        assert wanted.leader_epoch == before.leader_epoch + (not quiet), proposal
        is_clean = wanted.leader in {NO_LEADER, *before.isr}
        assert is_clean or purpose is Purpose.UNCLEAN_ELECTION, proposal
        assert purpose not in ELECTIONS or set(wanted.isr) <= set(before.isr), proposal

    def meddle(self, name: TopicPartition) -> None:
        """A leader writes its ISR itself, as before AlterPartition."""
        stands = self.states.get(name)
        if stands is None or stands.leader_and_isr.leader == NO_LEADER:
            return
        before = stands.leader_and_isr
        alone = replace(before, isr=(before.leader,), partition_epoch=before.partition_epoch + 1)
        self.states[name] = StoredState(alone, stands.controller_epoch)

    def remove(self, names) -> None:
        for name in names:
            del self.topics[name]
            self.deletions.discard(name)
            self.states = {p: s for p, s in self.states.items() if p.topic != name}

    def announce(self, result) -> None:
        assert result.broker in self.live or self.controller.context.is_going_down
        if result.broker not in self.live:
            return
        assert self.live[result.broker].broker_epoch == result.broker_epoch
        announced = [
            (update.leader_and_isr, self.states[update.partition].leader_and_isr)
            for update in (*(result.leader_and_isr or ()), *(result.metadata or ()))
            if update.partition.topic in self.topics
        ]
        assert all(sent == stored for sent, stored in announced), "announced before it was stored"
        doomed = tuple(stop.partition for stop in result.stop or () if stop.delete)
        if doomed:
            self.to_delete.append((result.broker, result.broker_epoch, doomed))

    # ------------------------------------------------------------------------ what happens

    def look_at_brokers(self) -> None:
        self.settle(BrokersChanged(tuple(self.live[id_] for id_ in sorted(self.live))))

    def birth(self, id_: int) -> Broker:
        self.births += 1
        return Broker(id=id_, end_points=(), broker_epoch=self.births)

    @rule(changed=st.dictionaries(BROKERS, st.booleans(), min_size=1))
    def brokers_register_and_fail(self, changed: dict[int, bool]) -> None:
        """Some at once: those that live go or (True) bounce, the others come."""
        for id_, bounces in changed.items():
            if id_ not in self.live or bounces:
                self.live[id_] = self.birth(id_)
            else:
                del self.live[id_]
        self.look_at_brokers()

    @rule(name=TOPICS, assignments=ASSIGNMENTS)
    def a_topic_is_made(self, name: str, assignments) -> None:
        if name not in self.topics:
            self.births += 1
            self.topics[name] = TopicSeen(
                name=name,
                id=UUID(int=self.births),
                assignments={n: Assignment(replicas=ids) for n, ids in enumerate(assignments)},
            )
            self.settle(TopicsChanged(tuple(sorted(self.topics))))

    @rule(name=TOPICS, replicas=REPLICAS)
    def a_topic_grows(self, name: str, replicas) -> None:
        seen = self.topics.get(name)
        if seen is not None and name not in self.deletions:
            more = {**seen.assignments, len(seen.assignments): Assignment(replicas=replicas)}
            self.topics[name] = replace(seen, assignments=more)
            self.settle(TopicsRead((self.topics[name],)))

    @rule(name=TOPICS)
    def a_topic_is_to_be_deleted(self, name: str) -> None:
        if name in self.topics:
            self.deletions.add(name)
        self.settle(DeletionsChanged(tuple(sorted(self.deletions))))

    @precondition(lambda self: self.to_delete)
    @rule(data=st.data(), error=st.sampled_from([ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR]))
    def a_broker_answers_that_it_deleted(self, data, error: ErrorCode) -> None:
        at = data.draw(st.integers(0, len(self.to_delete) - 1))
        broker, epoch, names = self.to_delete.pop(at)
        self.settle(ReplicasDeleted(broker, epoch, dict.fromkeys(names, error)))

    @precondition(lambda self: self.states)
    @rule(data=st.data())
    def another_client_will_have_written_first(self, data) -> None:
        self.meddlers = [data.draw(st.sampled_from(sorted(self.states)))]

    @precondition(lambda self: self.states)
    @rule(data=st.data(), isr=st.lists(BROKERS, min_size=1, unique=True))
    def a_leader_asks_for_an_isr(self, data, isr) -> None:
        name = data.draw(st.sampled_from(sorted(self.states)))
        stands = self.states[name].leader_and_isr
        leader = self.live.get(stands.leader)
        if leader is None:
            return
        wanted = replace(stands, isr=tuple(dict.fromkeys([leader.id, *isr])))
        change = IsrChange(name, wanted, {})
        self.settle(IsrChangesRequested(leader.id, leader.broker_epoch, (change,)))
        answer = self.answers.pop()
        assert isinstance(answer, IsrChangesAnswer)
        if isinstance(answer.partitions[name], ErrorCode):
            return
        assert answer.partitions[name] == self.states[name].leader_and_isr

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def a_broker_sends_controlled_shutdown(self, data) -> None:
        id_ = data.draw(st.sampled_from(sorted(self.live)))
        self.settle(ControlledShutdownRequested(id_, self.live[id_].broker_epoch))
        answer = self.answers.pop()
        assert isinstance(answer, ShutdownAnswer)
        assert all(self.states[name].leader_and_isr.leader == id_ for name in answer.remaining)

    @precondition(lambda self: self.live and self.states)
    @rule(data=st.data(), broken=st.booleans())
    def a_broker_answers_leader_and_isr(self, data, broken: bool) -> None:
        id_ = data.draw(st.sampled_from(sorted(self.live)))
        name = data.draw(st.sampled_from(sorted(self.states)))
        if id_ in self.topics[name.topic].assignments[name.partition].replicas:
            error = ErrorCode.KAFKA_STORAGE_ERROR if broken else ErrorCode.NONE
            epoch = self.live[id_].broker_epoch
            self.settle(LeaderAndIsrAnswered(id_, epoch, {name: error}))

    @rule(kind=st.sampled_from(ElectionKind))
    def elections_are_asked_for(self, kind: ElectionKind) -> None:
        self.settle(ElectionsRequested(kind, None))
        assert isinstance(self.answers.pop(), ElectionsAnswer)

    @precondition(lambda self: self.states)
    @rule(data=st.data(), wanted=st.none() | st.lists(BROKERS, max_size=3).map(tuple))
    def a_reassignment_is_asked_for(self, data, wanted) -> None:
        name = data.draw(st.sampled_from(sorted(self.states)))
        self.settle(ReassignmentsRequested({name: wanted}))
        answer = self.answers.pop()
        assert isinstance(answer, ReassignmentsAnswer)
        is_accepted = answer.refusals[name] is None and wanted is not None
        target = self.topics[name.topic].assignments[name.partition].target
        assert not is_accepted or target == wanted

    @precondition(lambda self: self.topics)
    @rule(data=st.data(), wanted=st.lists(BROKERS | st.just(-1), max_size=3).map(tuple))
    def a_node_asks_for_reassignments(self, data, wanted) -> None:
        names = [TopicPartition(t.name, n) for t in self.topics.values() for n in t.assignments]
        self.moves[data.draw(st.sampled_from(sorted(names)))] = wanted
        self.settle(ReassignmentsSeen(dict(self.moves)))

    @precondition(lambda self: self.states)
    @rule(data=st.data())
    def a_node_asks_for_elections(self, data) -> None:
        names = data.draw(st.lists(st.sampled_from(sorted(self.states)), min_size=1, unique=True))
        self.settle(ElectionsSeen(tuple(names)))
        assert isinstance(self.answers.pop(), RemoveElections)

    @rule(name=TOPICS, allowed=st.booleans())
    def unclean_election_is_configured(self, name: str, allowed: bool) -> None:
        (self.unclean.add if allowed else self.unclean.discard)(name)

    @rule(ids=st.sets(BROKERS))
    def another_controller_takes_over(self, ids: set[int]) -> None:
        """Meanwhile some brokers came and some went; it looks at what is stored only."""
        for id_ in ids:
            if self.live.pop(id_, None) is None:
                self.live[id_] = self.birth(id_)
        self.to_delete.clear()
        self.load(self.controller.context.controller_epoch + 1)

    # ------------------------------------------------------------------- what always holds

    @invariant()
    def its_state_is_what_is_stored(self) -> None:
        context = self.controller.context
        assert set(context.topics) == set(self.topics)
        # If all have requested a shutdown, the controller does not remove those that have ended.
        assert context.is_going_down or context.brokers == self.live
        for partition in context.partitions():
            stands = self.states.get(partition.name)
            # Another client may change the ISR; the controller finds out when it writes.
            assert led_by(partition.leader_and_isr) == led_by(stands and stands.leader_and_isr)

    @invariant()
    def its_replicas_are_those_that_are_stored(self) -> None:
        context = self.controller.context
        for partition in context.partitions():
            seen = self.topics[partition.name.topic]
            assert partition.assignment == seen.assignments[partition.name.partition]
            assert set(partition.replicas) == set(partition.assignment.replicas), partition
            led = partition.leader_and_isr
            assert led is None or set(led.isr) & set(partition.assignment.replicas), partition

    @invariant()
    def what_has_caught_up_is_moved(self) -> None:
        context = self.controller.context
        for partition in context.partitions():
            moving, led = partition.assignment, partition.leader_and_isr
            if not moving.is_being_reassigned or led is None:
                continue
            can_lead = set(context.electable(partition)) & set(moving.target) & set(led.isr)
            assert not (can_lead and set(moving.target) <= set(led.isr)), partition

    @invariant()
    def a_replica_that_can_lead_leads(self) -> None:
        context = self.controller.context
        for partition in context.partitions():
            if partition.name.topic in self.deletions:
                continue
            electable = set(context.electable(partition))
            led = partition.leader_and_isr
            if led is None:
                state, is_right = PartitionState.NEW, not electable
            elif led.leader == NO_LEADER:
                state, is_right = PartitionState.OFFLINE, not electable & set(led.isr)
            else:
                state = PartitionState.ONLINE
                is_right = context.is_online(led.leader, partition.name)
            assert (partition.state, is_right) == (state, True), partition

    @invariant()
    def a_topic_that_waits_has_a_reason(self) -> None:
        for name in self.controller.context.being_deleted:
            states = {
                state
                for partition in self.controller.context.topics[name].partitions.values()
                for state in partition.replicas.values()
            }
            waits = ReplicaState.DELETION_STARTED in states
            assert waits or name in self.controller.machines.deletion.halted

    def teardown(self) -> None:
        """In the end all brokers come back, all answers come: whatever can be done is done."""
        self.meddlers.clear()
        self.live = {id_: self.birth(id_) for id_ in range(1, 5)}
        self.to_delete.clear()
        self.look_at_brokers()
        for name in list(self.states):
            self.all_catch_up(name)
        for _ in range(len(self.topics) + 1):
            waiting, self.to_delete = self.to_delete, []
            for broker, epoch, names in waiting:
                self.settle(ReplicasDeleted(broker, epoch, dict.fromkeys(names, ErrorCode.NONE)))
        assert not self.deletions & set(self.topics)
        for partition in self.controller.context.partitions():
            assert partition.state is PartitionState.ONLINE, partition
            assert not partition.assignment.is_being_reassigned, partition
        assert not self.moves

    def all_catch_up(self, name: TopicPartition) -> None:
        stands = self.states[name].leader_and_isr
        leader = self.live.get(stands.leader)
        if leader is not None:
            replicas = self.topics[name.topic].assignments[name.partition].replicas
            caught_up = replace(stands, isr=replicas, leader_recovery_state=RECOVERED)
            change = IsrChange(name, caught_up, {})
            self.settle(IsrChangesRequested(leader.id, leader.broker_epoch, (change,)))


TestControllerLife = Life.TestCase
TestControllerLife.settings = settings(max_examples=150, stateful_step_count=30)


def test_each_verdict_has_a_sentence() -> None:
    assert len({verdict.value for verdict in Verdict}) == len(Verdict)
