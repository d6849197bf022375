"""What always holds of the controller's state, as code.

`check` holds after every event, step and outcome. `check_settled` holds besides when an external
event is settled, once everything is loaded: in between, a broker may be removed while its replicas
are not offline yet, or an assignment stored while its new replicas are not known yet.

The simulator, the golden texts and the property tests check both after each event. A broker that
runs checks each partition whose state it has changed (`Partition.check`).
"""

from odradek.controller.context import ControllerContext, Partition
from odradek.controller.machines import Machines
from odradek.controller.states import PartitionState, ReplicaState
from odradek.model.invariants import hold

_DELETION = frozenset(
    {
        ReplicaState.DELETION_STARTED,
        ReplicaState.DELETION_SUCCESSFUL,
        ReplicaState.DELETION_INELIGIBLE,
    }
)


def check(machines: Machines) -> None:
    """Check what holds after each event, step and outcome.

    Raises:
        InvariantError: something does not hold.
    """
    context, deletion = machines.context, machines.deletion
    for id_, broker in context.brokers.items():
        hold(broker.id == id_, "broker", "%s is registered as %s", broker.id, id_)
    for kind, brokers in (
        ("shut down", context.shutting_down),
        ("have failed log directories", context.offline_dirs.keys()),
    ):
        hold(brokers <= context.brokers.keys(), f"{[*brokers]}", f"{kind}, not all are registered")
    for kind, topics in (
        ("is being deleted", context.being_deleted),
        ("is waiting for its deletion", deletion.waiting.keys()),
    ):
        hold(topics <= context.topics.keys(), f"{[*topics]}", f"{kind}, and not known")
    hold(
        deletion.halted.keys() <= context.being_deleted,
        f"{[*deletion.halted]}",
        "halted, and not all are being deleted",
    )
    for name, topic in context.topics.items():
        hold(topic.name == name, name, "is kept as %s", topic.name)
        for number, partition in topic.partitions.items():
            hold(partition.name == (name, number), partition.name, "is kept as %s", number)
            partition.check()
            epoch = partition.controller_epoch
            own = context.controller_epoch
            hold(epoch <= own, partition.name, "is of controller epoch %s > %s", epoch, own)


def check_settled(machines: Machines) -> None:
    """Check what holds when all that follows from an external event has been done.

    Nothing is checked until everything is loaded.

    Raises:
        InvariantError: something does not hold.
    """
    context = machines.context
    if not context.is_loaded:
        return
    hold(not machines.election_errors, "ElectLeaders", "has not been answered")
    hold(not context.bounced, f"{context.bounced}", "restarted, and have not joined again")
    machines.batch.check_settled()
    machines.partitions.check_settled()
    for partition in context.partitions():
        _check_settled_partition(context, partition)


def _check_settled_partition(context: ControllerContext, partition: Partition) -> None:
    name, led, replicas = partition.name, partition.leader_and_isr, partition.replicas
    assigned = set(partition.assignment.replicas)
    hold(replicas.keys() == assigned, name, "states %s of replicas %s", replicas, assigned)
    for replica, state in replicas.items():
        if state is ReplicaState.ONLINE:
            online = context.is_online(replica, name)
            hold(online, name, "replica %s is %s on an offline broker", replica, state.value)
    if context.is_being_deleted(name):
        non_existent = partition.state is PartitionState.NON_EXISTENT
        hold(non_existent, name, "is being deleted, and %s", partition.state.value)
        return
    hold(_DELETION.isdisjoint(replicas.values()), name, "replicas are being deleted: %s", replicas)
    if led is None:
        hold(partition.state is PartitionState.NEW, name, "is %s", partition.state.value)
    elif partition.state is PartitionState.ONLINE:
        hold(assigned.issuperset(led.isr), name, "ISR %s of replicas %s", led.isr, assigned)
        online = context.is_online(led.leader, name)
        hold(online, name, "leader %s is offline", led.leader)
    else:
        hold(partition.state is PartitionState.OFFLINE, name, "is %s", partition.state.value)
        hold(not assigned.isdisjoint(led.isr), name, "ISR %s has none of %s", led.isr, assigned)
