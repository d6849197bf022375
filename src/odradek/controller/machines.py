"""The parts of the controller's mind, made together for one reign, and how they share work."""

from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from odradek.controller.context import ControllerContext, Partition
from odradek.controller.effects import Effect, Proceed
from odradek.controller.partition_machine import PartitionMachine
from odradek.controller.replica_machine import ReplicaMachine
from odradek.controller.request_batch import RequestBatch
from odradek.controller.topic_deletion import TopicDeletion
from odradek.model.partition import TopicPartition

# Partitions worked on before others may run: 5 to 10 us each, so a few milliseconds.
SLICE: Final = 250


class Machines(NamedTuple):
    """What one reign thinks with."""

    context: ControllerContext
    batch: RequestBatch
    partitions: PartitionMachine
    replicas: ReplicaMachine
    deletion: TopicDeletion

    def each(
        self, names: Iterable[TopicPartition], do: Callable[[Partition], None]
    ) -> list[Effect]:
        """Do something with each of these partitions, in slices, then store what came of it."""
        effects: list[Effect] = []
        left = iter(names)
        while chunk := tuple(islice(left, SLICE)):
            effects.append(Proceed(partial(self._do, chunk, do)))
        effects.append(Proceed(self.partitions.store))
        return effects

    def _do(
        self, names: tuple[TopicPartition, ...], do: Callable[[Partition], None]
    ) -> list[Effect]:
        for partition in self.context.known(names):
            do(partition)
        return []


def make_machines(controller_epoch: int, *, deletion_enabled: bool) -> Machines:
    """An empty mind, for one controller epoch."""
    context = ControllerContext(controller_epoch)
    batch = RequestBatch(context)
    partitions = PartitionMachine(context, batch)
    replicas = ReplicaMachine(context, batch, partitions)
    deletion = TopicDeletion(context, batch, partitions, enabled=deletion_enabled)
    return Machines(context, batch, partitions, replicas, deletion)
