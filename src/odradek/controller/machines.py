"""The state machines of one controller epoch, made together."""

from typing import NamedTuple

from odradek.controller.context import ControllerContext
from odradek.controller.handlers.reassignment import Reassignment
from odradek.controller.handlers.topic_deletion import TopicDeletion
from odradek.controller.partition_machine import PartitionMachine
from odradek.controller.replica_machine import ReplicaMachine
from odradek.controller.request_batch import RequestBatch
from odradek.model.errors import ErrorCode
from odradek.model.partition import TopicPartition


class Machines(NamedTuple):
    """They share one context and one batch of requests to brokers."""

    context: ControllerContext
    batch: RequestBatch
    partitions: PartitionMachine
    replicas: ReplicaMachine
    deletion: TopicDeletion
    reassignment: Reassignment
    # What ElectLeaders answers for each partition, while its elections are held.
    election_errors: dict[TopicPartition, ErrorCode]


def make_machines(controller_epoch: int, *, deletion_enabled: bool) -> Machines:
    """Without brokers and topics: these come with the events of the load."""
    context = ControllerContext(controller_epoch)
    batch = RequestBatch(context)
    partitions = PartitionMachine(context, batch)
    replicas = ReplicaMachine(context, batch, partitions)
    deletion = TopicDeletion(context, batch, partitions, enabled=deletion_enabled)
    reassignment = Reassignment(context, batch, partitions, replicas, deletion)
    return Machines(context, batch, partitions, replicas, deletion, reassignment, {})
