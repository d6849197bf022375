"""AlterPartition: a leader requests another ISR, and the controller checks it.

A leader whose epoch or partition epoch is older than the stored one is refused. One with a *newer*
one has requests of a newer controller: NOT_CONTROLLER sends it there. A follower may join the ISR
in the registration in which it caught up only: its broker must be registered with the broker epoch
that the leader saw in its fetches (KIP-841, KIP-903).
"""

from odradek.controller.answers import IsrChangesAnswer
from odradek.controller.causes import Cause, CauseKind
from odradek.controller.context import ControllerContext, Partition
from odradek.controller.effects import Answer, Effect, Proceed
from odradek.controller.events import IsrChange, IsrChangesRequested
from odradek.controller.handlers.brokers import fence
from odradek.controller.machines import Machines
from odradek.controller.steps import AnswerIsrChanges
from odradek.model.errors import ErrorCode
from odradek.model.partition import RECOVERED, RECOVERING, LeaderAndIsr, TopicPartition


def requested(machines: Machines, event: IsrChangesRequested) -> list[Effect]:
    """Judge each change on its own, store those in order, then answer all."""
    broker = machines.context.brokers.get(event.broker)
    if broker is None or broker.broker_epoch != event.broker_epoch:
        fence(machines, event.broker, event.broker_epoch)
        return [Answer(IsrChangesAnswer(ErrorCode.STALE_BROKER_EPOCH, {}))]
    cause = Cause(CauseKind.LEADER_ASKED, (event.broker,))
    answers: dict[TopicPartition, LeaderAndIsr | ErrorCode] = {}
    wanted: dict[TopicPartition, LeaderAndIsr] = {}
    for change in event.changes:
        verdict = judge(machines.context, event.broker, change)
        if isinstance(verdict, tuple):
            machines.partitions.request(*verdict, cause)
            wanted[change.partition] = change.wanted
        else:
            answers[change.partition] = verdict
    return [*machines.partitions.store(), Proceed(AnswerIsrChanges(answers, wanted))]


def answer(machines: Machines, step: AnswerIsrChanges) -> list[Effect]:
    """Answer with the states that stand; a leader that another write overtook asks again."""
    answers = dict(step.answers)
    for name, asked in step.wanted.items():
        partition = machines.context.partition(name)
        stands = partition.leader_and_isr if partition else None
        answers[name] = ErrorCode.INVALID_UPDATE_VERSION
        if stands and stands.leader_epoch == asked.leader_epoch and _is_same(stands, asked):
            answers[name] = stands
    return [Answer(IsrChangesAnswer(ErrorCode.NONE, answers))]


def judge(
    context: ControllerContext, broker: int, change: IsrChange
) -> tuple[Partition, LeaderAndIsr] | LeaderAndIsr | ErrorCode:
    """A change to be stored; or what stands already and is what was wanted; or why not."""
    partition = context.partition(change.partition)
    stored, wanted = partition.leader_and_isr if partition else None, change.wanted
    if partition is None or stored is None or context.is_being_deleted(change.partition):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    error = _judge_epochs(stored, wanted)
    if error is ErrorCode.NONE and _is_same(stored, wanted):
        return stored  # its answer was lost, and it asks again: whatever version it knows
    if error is ErrorCode.NONE:
        error = judge_isr(context, broker, partition, change)
    return (partition, wanted) if error is ErrorCode.NONE else error


def _judge_epochs(stored: LeaderAndIsr, wanted: LeaderAndIsr) -> ErrorCode:
    if wanted.partition_epoch > stored.partition_epoch or wanted.leader_epoch > stored.leader_epoch:
        return ErrorCode.NOT_CONTROLLER
    if wanted.leader_epoch < stored.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.NONE


def judge_isr(
    context: ControllerContext, broker: int, partition: Partition, change: IsrChange
) -> ErrorCode:
    """The error for an ISR that the leader `broker` asks for in its present leader epoch."""
    stored, wanted = partition.stored, change.wanted
    if wanted.partition_epoch != stored.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    if wanted.leader_recovery_state == RECOVERING and (
        len(wanted.isr) > 1 or stored.leader_recovery_state == RECOVERED
    ):
        return ErrorCode.INVALID_REQUEST
    # KAFKA-9672: the ISR is never more than the replicas.
    if broker != stored.leader or not set(wanted.isr) <= set(partition.assignment.replicas):
        return ErrorCode.INVALID_REQUEST
    for member in wanted.isr:
        registered = context.brokers.get(member)
        seen_epoch = change.broker_epochs.get(member, -1)
        if registered is None or seen_epoch not in (-1, registered.broker_epoch):
            return ErrorCode.INELIGIBLE_REPLICA
        if member in context.shutting_down and member not in stored.isr:
            return ErrorCode.INELIGIBLE_REPLICA  # it was just taken out, to leave without a gap
    return ErrorCode.NONE


def _is_same(stored: LeaderAndIsr, wanted: LeaderAndIsr) -> bool:
    return (
        stored.leader == wanted.leader
        and set(stored.isr) == set(wanted.isr)
        and stored.leader_recovery_state == wanted.leader_recovery_state
    )
