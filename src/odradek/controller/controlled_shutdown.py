"""Controlled shutdown: a broker gives up its leaderships before it leaves.

Where it leads, the next replica in sync takes over and the ISR goes on without it; where it
follows, it is told to stop and leaves the ISR. What nobody else can lead it keeps leading: the
answer names those partitions, and the broker asks again or goes. Partitions with one replica
are left alone, for there is nobody to move them to.

When every registered broker leaves, nothing is moved: leaders and ISRs stay as they are stored, so
that each replica that is in sync now may lead when the cluster starts again. A broker that says
that it stops together with all others gets its answer when all of them have asked. Until then each
goes on replicating, and has taken no more records since before it asked: so no in-sync replica ends
before its leader's log does.
"""

from functools import partial

from odradek.controller.broker_changes import fence
from odradek.controller.causes import Cause, CauseKind
from odradek.controller.context import Partition
from odradek.controller.effects import Answer, Effect, Proceed, ShutdownAnswer
from odradek.controller.events import ControlledShutdownRequested
from odradek.controller.machines import Machines
from odradek.controller.proposals import Purpose
from odradek.model.errors import ErrorCode
from odradek.model.partition import TopicPartition


def requested(machines: Machines, event: ControlledShutdownRequested) -> list[Effect]:
    """Move what can be moved, then say what is left."""
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
    cause = Cause(CauseKind.BROKER_LEAVING, (event.broker,))
    leaving = frozenset({event.broker})

    def move(partition: Partition) -> None:
        if partition.leader == event.broker:
            machines.partitions.propose(partition, Purpose.SHUTDOWN_ELECTION, cause)
        else:
            machines.batch.stop(partition, event.broker, delete=False)
            machines.replicas.go_offline(partition, leaving, cause)

    movable = [
        name
        for name in machines.replicas.on_brokers(leaving)
        if (partition := context.partition(name)) is not None and _is_movable(machines, partition)
    ]
    return [
        *machines.each(movable, move),
        # The new leaders first: who has the answer goes, and it may be the controller's own broker.
        Proceed(machines.batch.flush),
        Proceed(partial(_answer, machines, event.broker, tuple(movable))),
    ]


def _is_movable(machines: Machines, partition: Partition) -> bool:
    return (
        len(partition.assignment.replicas) > 1
        and partition.leader_and_isr is not None
        and not machines.context.is_being_deleted(partition.name)
    )


def _answer(machines: Machines, broker: int, moved: tuple[TopicPartition, ...]) -> list[Effect]:
    remaining = tuple(p.name for p in machines.context.known(moved) if p.leader == broker)
    return [Answer(ShutdownAnswer(ErrorCode.NONE, remaining))]
