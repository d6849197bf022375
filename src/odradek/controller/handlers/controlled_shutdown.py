"""Controlled shutdown: a broker gives up its leaderships before it stops.

Where it leads, the next in-sync replica is elected and the ISR goes on without it; where it
follows, it gets StopReplica and leaves the ISR. A partition without another replica that can lead
stays with it: the response names those, and the broker sends the request again or stops. Partitions
with one replica are not moved.

When all registered brokers shut down, nothing is moved: leaders and ISRs stay as they are stored,
so that each in-sync replica may lead when the cluster starts again. A broker that stops together
with all others (it names them in its request) gets its response when all of them have sent theirs.
Until then each goes on replicating, and has appended no records since before its request: so no
in-sync replica ends before its leader's log does.
"""

from odradek.controller.answers import ShutdownAnswer
from odradek.controller.causes import Cause, CauseKind
from odradek.controller.context import Partition
from odradek.controller.effects import Answer, Effect, Proceed, in_slices, then_store
from odradek.controller.events import ControlledShutdownRequested
from odradek.controller.handlers.brokers import fence
from odradek.controller.machines import Machines
from odradek.controller.proposals import Purpose
from odradek.controller.steps import AnswerShutdown, FlushRequests, MoveOffBroker
from odradek.model.errors import ErrorCode


def requested(machines: Machines, event: ControlledShutdownRequested) -> list[Effect]:
    """Move what can be moved, then answer with the rest."""
    context = machines.context
    registered = context.brokers.get(event.broker)
    if registered is None:
        return [Answer(ShutdownAnswer(ErrorCode.BROKER_NOT_AVAILABLE))]
    if event.broker_epoch not in (-1, registered.broker_epoch):
        fence(machines, event.broker, event.broker_epoch)
        return [Answer(ShutdownAnswer(ErrorCode.STALE_BROKER_EPOCH))]
    context.shutting_down.add(event.broker)
    present = context.brokers.keys()
    if context.is_going_down or present <= context.shutting_down.union(event.together_with):
        all_asked = context.is_going_down
        error = ErrorCode.NONE if all_asked else ErrorCode.OPERATION_NOT_ATTEMPTED
        return [Answer(ShutdownAnswer(error))]
    movable = tuple(
        name
        for name in machines.replicas.on_brokers({event.broker})
        if (partition := context.partition(name)) is not None and _is_movable(machines, partition)
    )
    return [
        *then_store(in_slices(lambda names: MoveOffBroker(names, event.broker), movable)),
        # New leaders are announced before the answer: a broker stops when it has it, and it may be
        # the controller's own.
        Proceed(FlushRequests()),
        Proceed(AnswerShutdown(movable, event.broker)),
    ]


def move_off_broker(machines: Machines, step: MoveOffBroker) -> None:
    """Elect another leader, or stop the follower and take it out of the ISR."""
    cause = Cause(CauseKind.BROKER_LEAVING, (step.broker,))
    for partition in machines.context.known(step.partitions):
        if partition.leader == step.broker:
            machines.partitions.propose(partition, Purpose.SHUTDOWN_ELECTION, cause)
        else:
            machines.batch.stop(partition, step.broker, delete=False)
            machines.replicas.go_offline(partition, {step.broker}, cause)


def _is_movable(machines: Machines, partition: Partition) -> bool:
    return (
        len(partition.assignment.replicas) > 1
        and partition.leader_and_isr is not None
        and not machines.context.is_being_deleted(partition.name)
    )


def answer(machines: Machines, step: AnswerShutdown) -> list[Effect]:
    """Name the partitions that the broker still leads."""
    known = machines.context.known(step.partitions)
    remaining = tuple(partition.name for partition in known if partition.leader == step.broker)
    return [Answer(ShutdownAnswer(ErrorCode.NONE, remaining))]
