"""What a new controller loads, and repairs first.

    1  the brokers: a channel to each, and each is told who is alive
    2  the topics with the states of their partitions, some at a time
    3  brokers that were restarted while nobody reigned are taken for gone, and then for back
    4  every live replica is told what the store says of it; replicas that died meanwhile leave
       the ISR; partitions whose leader is dead, or which never had one, get one
    5  reassignments go on, then deletions that were asked for, or begun
    6  elections that were asked for by a node are held

An earlier controller may have stopped anywhere; what it had stored stands, what it had only
wanted is decided anew.
"""

from collections.abc import Collection, Iterable

from odradek.controller.causes import Cause, CauseKind, Decision, Verdict
from odradek.controller.context import ControllerContext, Partition, Topic
from odradek.controller.effects import (
    Connect,
    Effect,
    Proceed,
    WriteTopics,
    in_slices,
    then_store,
)
from odradek.controller.events import BrokersLoaded, LoadingFinished, TopicSeen, TopicsLoaded
from odradek.controller.machines import Machines
from odradek.controller.proposals import StoredState
from odradek.controller.states import PartitionState, ReplicaState
from odradek.controller.steps import HoldElections, JoinBrokers, LoadReassignments, TakeOver
from odradek.controller.topic_changes import topic_of, with_id
from odradek.model.partition import NO_LEADER, Assignment, TopicPartition

CAUSE = Cause(CauseKind.CONTROLLER_ELECTED)


def brokers_loaded(machines: Machines, event: BrokersLoaded) -> list[Effect]:
    """Know the brokers, and let them know each other."""
    machines.context.brokers = {broker.id: broker for broker in event.brokers}
    machines.batch.brokers_changed()
    _gone(machines, event.gone)
    return [Connect(broker) for broker in event.brokers]


def topics_loaded(machines: Machines, event: TopicsLoaded) -> list[Effect]:
    """Believe what is stored."""
    for seen in event.topics:
        topic = machines.context.topics[seen.name] = topic_of(seen)
        for number, assignment in seen.assignments.items():
            name = TopicPartition(seen.name, number)
            state = event.states.get(name)
            if state is not None:
                state = _note_bounced(machines.context, state)
            topic.partitions[number] = _believe(machines.context, name, assignment, state)
    without_id = _without_id(event.topics, machines.context.topics)
    return [WriteTopics(without_id)] if without_id else []


def _without_id(topics: tuple[TopicSeen, ...], known: dict[str, Topic]) -> tuple[TopicSeen, ...]:
    return tuple(with_id(seen, known[seen.name]) for seen in topics if seen.id is None)


def _believe(
    context: ControllerContext,
    name: TopicPartition,
    assignment: Assignment,
    state: StoredState | None,
) -> Partition:
    if state is None:
        replicas = dict.fromkeys(assignment.replicas, ReplicaState.NEW)
        return Partition(name, assignment, PartitionState.NEW, replicas)
    led = state.leader_and_isr.leader != NO_LEADER
    replicas = {
        r: ReplicaState.ONLINE if r in context.brokers else ReplicaState.OFFLINE
        for r in assignment.replicas
    }
    return Partition(
        name,
        assignment,
        PartitionState.ONLINE if led else PartitionState.OFFLINE,
        replicas,
        state.leader_and_isr,
        state.controller_epoch,
        state.modified_id,
        state.history,
    )


def _note_bounced(context: ControllerContext, state: StoredState) -> StoredState:
    """A member of the ISR that has registered since is in another life, and may lack its tail.

    So may one whose life nobody had noted when the state was written: who wrote it did not know.
    Then the state is no word about anybody beyond the moment in which that life began.
    """
    sure_until = state.modified_id
    for member in state.leader_and_isr.isr:
        broker = context.brokers.get(member)
        if broker is not None and max(broker.broker_epoch, broker.noted_id) > state.modified_id:
            context.bounced.add(member)
            sure_until = min(sure_until, broker.broker_epoch - 1)
    return state._replace(modified_id=sure_until)


def loading_finished(machines: Machines, event: LoadingFinished) -> list[Effect]:
    """Everything is known: repair it, and tell everybody."""
    context = machines.context
    context.is_loaded = True
    # Those in another life are taken for gone first, and for back when that is stored: else one
    # would lead in the same epoch in two lives, or be in sync without having what it once had.
    back = tuple(context.brokers.pop(id_) for id_ in sorted(context.bounced))
    _gone(machines, [broker.id for broker in back])
    context.bounced.clear()
    deletions = machines.deletion.asked(event.deletions)
    machines.batch.tell_everything(context.brokers)
    everything = [partition.name for partition in context.partitions()]
    return [
        *then_store(in_slices(TakeOver, everything)),
        *((Proceed(JoinBrokers(back, is_connected=True)),) if back else ()),
        Proceed(LoadReassignments(event.reassignments)),
        *deletions,
        Proceed(HoldElections(event.elections)),
    ]


def take_over(machines: Machines, step: TakeOver) -> None:
    """Send what is stored to the replicas that are online; shrink ISRs, elect leaders."""
    registered = frozenset(machines.context.brokers)
    for partition in machines.context.known(step.partitions):
        if machines.context.is_being_deleted(partition.name):
            continue
        machines.replicas.come_online(partition, registered)
        missing = set(partition.assignment.replicas) - registered
        has_no_leader = partition.state is not PartitionState.ONLINE
        cause = _cause(partition, missing)
        if missing:
            machines.replicas.go_offline(partition, missing, cause)
        if has_no_leader:
            machines.partitions.bring_online(partition, cause)


def _gone(machines: Machines, brokers: Iterable[int]) -> None:
    """Enter that these went away while there was no controller."""
    for broker in brokers:
        cause = Cause(CauseKind.BROKER_FAILED, (broker,))
        detail = "a new controller found it gone"
        machines.batch.decided(Decision(Verdict.BROKER_GONE, broker, cause, detail=detail))


def _cause(partition: Partition, dead: Collection[int]) -> Cause:
    """Why a partition changes: members of the ISR have gone, or a controller had not come to it."""
    state = partition.leader_and_isr
    missing = tuple(sorted(set(dead).intersection(state.isr))) if state is not None else ()
    return Cause(CauseKind.BROKER_FAILED, missing) if missing else CAUSE
