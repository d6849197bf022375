"""Brokers register and fail, and their log directories fail.

A broker that registers is sent the whole metadata, then LeaderAndIsr for its replicas; partitions
that waited for it get a leader, deletions that waited for it resume. It becomes a follower: it does
not lead again what it led before. When the registration of a broker ends, leaders are elected where
it led, and the ISR shrinks where it followed. A broker that restarted before the controller read
the nodes - the same id with another broker epoch - goes through both, in this order.
"""

from collections.abc import Mapping

from odradek.controller.causes import Cause, CauseKind, Decision, Verdict
from odradek.controller.effects import (
    Connect,
    Disconnect,
    Effect,
    Proceed,
    in_slices,
    then_store,
)
from odradek.controller.events import BrokersChanged, LeaderAndIsrAnswered, LogDirsFailed
from odradek.controller.machines import Machines
from odradek.controller.states import PartitionState
from odradek.controller.steps import (
    JoinBrokers,
    LoseReplicas,
    RestoreReplicas,
    ResumeDeletions,
    ResumeReassignments,
    SendStates,
)
from odradek.model.cluster import Broker
from odradek.model.errors import ErrorCode
from odradek.model.partition import TopicPartition


def brokers_changed(machines: Machines, event: BrokersChanged) -> list[Effect]:
    """Compare the registered brokers with those that are known, by id and broker epoch."""
    known = machines.context.brokers
    present = {broker.id: broker for broker in event.brokers}
    failed = frozenset(
        id_
        for id_, broker in known.items()
        if id_ not in present or present[id_].broker_epoch != broker.broker_epoch
    )
    joined = tuple(broker for id_, broker in present.items() if id_ not in known or id_ in failed)
    for id_ in known.keys() & present.keys() - failed:
        if known[id_] != present[id_]:
            machines.batch.brokers_changed()  # its listeners changed
            known[id_] = present[id_]
    effects: list[Effect] = [Disconnect(id_) for id_ in sorted(failed)]
    if machines.context.is_going_down and not joined:
        return effects  # no broker can take over: the stored state stays for the next start
    if failed:
        effects += _fail(machines, failed)
    if joined:
        effects.append(Proceed(JoinBrokers(joined, is_connected=False)))
    return effects


def _fail(machines: Machines, failed: frozenset[int]) -> list[Effect]:
    context, batch = machines.context, machines.batch
    cause = Cause(CauseKind.BROKER_FAILED, tuple(sorted(failed)))
    for broker in sorted(failed):
        del context.brokers[broker]
        context.shutting_down.discard(broker)
        context.offline_dirs.pop(broker, None)
        batch.decided(Decision(Verdict.BROKER_GONE, broker, cause))
    batch.brokers_changed()
    lost = machines.replicas.on_brokers(failed)
    return then_store(in_slices(lambda names: LoseReplicas(names, failed, cause), lost))


def lose_replicas(machines: Machines, step: LoseReplicas) -> None:
    """Elect new leaders and shrink ISRs; a deletion is halted."""
    for partition in machines.context.known(step.partitions):
        if machines.context.is_being_deleted(partition.name):
            machines.deletion.go_offline(partition, step.brokers)
        else:
            machines.replicas.go_offline(partition, step.brokers, step.cause)


def join(machines: Machines, step: JoinBrokers) -> list[Effect]:
    """SendRequests the brokers, send them everything, and elect where there was no leader."""
    context, batch, joined = machines.context, machines.batch, step.brokers
    connect: list[Effect] = [] if step.is_connected else [Connect(broker) for broker in joined]
    ids = frozenset(broker.id for broker in joined)
    cause = Cause(CauseKind.BROKER_STARTED, tuple(sorted(ids)))
    for broker in joined:
        context.brokers[broker.id] = broker
        batch.decided(Decision(Verdict.BROKER_JOINED, broker.id, cause))
        _empty(machines, broker)
    batch.brokers_changed()
    # The registered brokers are sent first: a new one that is to follow must know its leader.
    announce = batch.flush()
    batch.send_everything(ids)
    affected = dict.fromkeys(machines.replicas.on_brokers(ids))
    # A leaderless partition is tried whichever broker joined: its election may have been refused.
    leaderless = (PartitionState.NEW, PartitionState.OFFLINE)
    affected |= dict.fromkeys(p.name for p in context.partitions() if p.state in leaderless)
    restore = in_slices(lambda names: RestoreReplicas(names, ids, cause), affected)
    return [
        *connect,
        *announce,
        *then_store(restore),
        Proceed(ResumeReassignments(ids)),
        Proceed(ResumeDeletions(ids)),
    ]


def _empty(machines: Machines, broker: Broker) -> None:
    """Enter in the journal that a broker lost its logs, if it had replicas."""
    if broker.empty_since != broker.broker_epoch:
        return
    held = machines.context.known(machines.replicas.on_brokers({broker.id}))
    count = sum(partition.leader_and_isr is not None for partition in held)
    if count:
        detail = f"replicas there: {count}"
        cause = Cause(CauseKind.LOGS_LOST, (broker.id,))
        machines.batch.decided(Decision(Verdict.BROKER_EMPTY, broker.id, cause, detail=detail))


def restore_replicas(machines: Machines, step: RestoreReplicas) -> None:
    """Replicas are online again; elect a leader where there is none."""
    for partition in machines.context.known(step.partitions):
        if not machines.context.is_being_deleted(partition.name):
            machines.replicas.come_online(partition, step.brokers)
            machines.partitions.bring_online(partition, step.cause)


def log_dirs_failed(machines: Machines, event: LogDirsFailed) -> list[Effect]:
    """Send these brokers every replica they should have: their response names those they lost."""
    brokers = tuple(id_ for id_ in event.brokers if id_ in machines.context.brokers)
    held = machines.replicas.on_brokers(brokers)
    return then_store(in_slices(lambda names: SendStates(names, brokers), held))


def send_states(machines: Machines, step: SendStates) -> None:
    """Send LeaderAndIsr once more."""
    for partition in machines.context.known(step.partitions):
        if partition.leader_and_isr and not machines.context.is_being_deleted(partition.name):
            held = [id_ for id_ in step.brokers if id_ in partition.assignment.replicas]
            machines.batch.leader_and_isr(partition, held)


def leader_and_isr_answered(machines: Machines, event: LeaderAndIsrAnswered) -> list[Effect]:
    """A replica that its broker cannot serve for its disk is offline, until it can."""
    broker = machines.context.brokers.get(event.broker)
    if broker is None or broker.broker_epoch != event.broker_epoch:
        return []  # of an earlier registration
    before = machines.context.offline_dirs.get(broker.id, set())
    broken = _broken(event.errors)
    now = (before - event.errors.keys()) | broken
    if now == before:
        return []
    machines.context.offline_dirs[broker.id] = now
    if not now:
        del machines.context.offline_dirs[broker.id]
    ids = frozenset({broker.id})
    lost = Cause(CauseKind.LOG_DIR_FAILED, (broker.id,))
    found = Cause(CauseKind.LOG_DIR_REPAIRED, (broker.id,))
    lose = in_slices(lambda names: LoseReplicas(names, ids, lost), sorted(broken - before))
    restore = in_slices(lambda names: RestoreReplicas(names, ids, found), sorted(before - now))
    return [*then_store(lose), *then_store(restore)]


def fence(machines: Machines, broker: int, broker_epoch: int) -> None:
    """Enter once that a request came from another registration of a broker than the present one."""
    context = machines.context
    registered = context.brokers.get(broker)
    if registered is None or context.fenced.get(broker) == broker_epoch:
        return
    context.fenced[broker] = broker_epoch
    detail = f"its request has broker epoch {broker_epoch}, registered is {registered.broker_epoch}"
    cause = Cause(CauseKind.BROKER_OUTLIVED, (broker,))
    machines.batch.decided(Decision(Verdict.BROKER_FENCED, broker, cause, detail=detail))


def _broken(errors: Mapping[TopicPartition, ErrorCode]) -> set[TopicPartition]:
    return {name for name, error in errors.items() if error is ErrorCode.KAFKA_STORAGE_ERROR}
