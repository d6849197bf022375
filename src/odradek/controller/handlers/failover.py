"""What a new controller loads, and what it fixes first.

    1  the brokers: a channel to each, and UpdateMetadata with the registered brokers
    2  the topics with the states of their partitions, some at a time
    3  brokers that restarted while there was no controller are removed, and then join
    4  each online replica is sent the stored state of its partition; replicas on brokers that are
       not registered leave the ISR; partitions whose leader is offline, or that never had one,
       get a leader
    5  reassignments resume, then topic deletions
    6  the elections of `/admin/preferred_replica_election` are held

An earlier controller may have stopped at any point: what it stored holds, what it had decided and
not stored is decided again.
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
from odradek.controller.handlers.topics import topic_of, with_id
from odradek.controller.machines import Machines
from odradek.controller.proposals import StoredState
from odradek.controller.states import PartitionState, ReplicaState
from odradek.controller.steps import HoldElections, JoinBrokers, LoadReassignments, TakeOver
from odradek.model.partition import NO_LEADER, Assignment, TopicPartition

CAUSE = Cause(CauseKind.CONTROLLER_ELECTED)


def brokers_loaded(machines: Machines, event: BrokersLoaded) -> list[Effect]:
    """Take the brokers in, open channels, and send them the registered brokers."""
    machines.context.brokers = {broker.id: broker for broker in event.brokers}
    machines.context.restored_epoch = event.restored_epoch
    machines.batch.brokers_changed()
    _unregistered(machines, event.unregistered)
    return [Connect(broker) for broker in event.brokers]


def topics_loaded(machines: Machines, event: TopicsLoaded) -> list[Effect]:
    """Take in what is stored, and give an id to topics that have none."""
    for seen in event.topics:
        topic = machines.context.topics[seen.name] = topic_of(seen)
        for number, assignment in seen.assignments.items():
            name = TopicPartition(seen.name, number)
            state = event.states.get(name)
            if state is not None:
                state = _note_bounced(machines.context, state)
            topic.partitions[number] = _partition(machines.context, name, assignment, state)
    without_id = _without_id(event.topics, machines.context.topics)
    return [WriteTopics(without_id)] if without_id else []


def _without_id(topics: tuple[TopicSeen, ...], known: dict[str, Topic]) -> tuple[TopicSeen, ...]:
    return tuple(with_id(seen, known[seen.name]) for seen in topics if seen.id is None)


def _partition(
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
    """Note the ISR members that registered after the state was written: their logs may be shorter.

    So may that of a member whose registration no controller had noted when the state was written:
    the controller that wrote it had not read the registration. Then the state proves what the
    replicas hold up to that registration only.
    """
    sure_until = state.modified_id
    for member in state.leader_and_isr.isr:
        broker = context.brokers.get(member)
        if broker is not None and max(broker.broker_epoch, broker.noted_id) > state.modified_id:
            context.bounced.add(member)
            sure_until = min(sure_until, broker.broker_epoch - 1)
    return state._replace(modified_id=sure_until)


def loading_finished(machines: Machines, event: LoadingFinished) -> list[Effect]:
    """Everything is loaded: send it to the brokers, and fix what changed in between."""
    context = machines.context
    context.is_loaded = True
    # A restarted broker is removed first, and joins when that is stored: else it could lead in one
    # leader epoch in two registrations, or be in sync without the records that it had before.
    back = tuple(context.brokers.pop(id_) for id_ in sorted(context.bounced))
    _unregistered(machines, [broker.id for broker in back])
    context.bounced.clear()
    deletions = machines.deletion.asked(event.deletions)
    machines.batch.send_everything(context.brokers)
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


def _unregistered(machines: Machines, brokers: Iterable[int]) -> None:
    """Enter in the journal that the registration of these ended while there was no controller."""
    for broker in brokers:
        cause = Cause(CauseKind.BROKER_FAILED, (broker,))
        detail = "a new controller found that it was not registered"
        machines.batch.decided(Decision(Verdict.BROKER_GONE, broker, cause, detail=detail))


def _cause(partition: Partition, dead: Collection[int]) -> Cause:
    """Why a partition changes: ISR members are not registered, or there is a new controller."""
    state = partition.leader_and_isr
    missing = tuple(sorted(set(dead).intersection(state.isr))) if state is not None else ()
    return Cause(CauseKind.BROKER_FAILED, missing) if missing else CAUSE
