"""The parts of the controller's mind, made together for one reign, and how they share work."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from odradek.controller.context import ControllerContext, Partition
from odradek.controller.effects import Effect, Proceed, in_slices
from odradek.controller.partition_machine import PartitionMachine
from odradek.controller.reassignment import Reassignment
from odradek.controller.replica_machine import ReplicaMachine
from odradek.controller.request_batch import RequestBatch
from odradek.controller.topic_deletion import TopicDeletion
from odradek.model.partition import TopicPartition


class Machines(NamedTuple):
    """What one reign thinks with."""

    context: ControllerContext
    batch: RequestBatch
    partitions: PartitionMachine
    replicas: ReplicaMachine
    deletion: TopicDeletion
    reassignment: Reassignment

    def each(
        self, names: Iterable[TopicPartition], do: Callable[[Partition], None]
    ) -> list[Effect]:
        """Do something with each of these partitions, in slices, then store what came of it."""
        steps = in_slices(self.context.known(names), do)
        return [*steps, Proceed(self.partitions.store)]


def make_machines(controller_epoch: int, *, deletion_enabled: bool) -> Machines:
    """An empty mind, for one controller epoch."""
    context = ControllerContext(controller_epoch)
    batch = RequestBatch(context)
    partitions = PartitionMachine(context, batch)
    replicas = ReplicaMachine(context, batch, partitions)
    deletion = TopicDeletion(context, batch, partitions, enabled=deletion_enabled)
    reassignment = Reassignment(context, batch, partitions, replicas, deletion)
    return Machines(context, batch, partitions, replicas, deletion, reassignment)
