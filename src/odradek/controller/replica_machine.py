"""The replica state machine: which replicas are online, offline, or being deleted.

A replica that comes online is sent the stored state of its partition. One that goes offline leaves
the ISR, in a new leader epoch; if it led, the partition goes offline and a leader is elected, in
whose first ISR it is not - one proposal for each partition, however many replicas it lost.
Replicas of topics that are being deleted are `topic_deletion`'s.
"""

from collections.abc import Collection, Iterable

from odradek.controller.causes import Cause
from odradek.controller.context import ControllerContext, Partition
from odradek.controller.partition_machine import PartitionMachine
from odradek.controller.proposals import Purpose
from odradek.controller.request_batch import RequestBatch
from odradek.controller.states import PartitionState, ReplicaState
from odradek.model.partition import TopicPartition


class ReplicaMachine:
    """All replicas of the cluster, and their states."""

    def __init__(
        self, context: ControllerContext, batch: RequestBatch, partitions: PartitionMachine
    ) -> None:
        self._context = context
        self._batch = batch
        self._partitions = partitions

    def created(self, partition: Partition) -> None:
        """A partition was created: its replicas are new until it has a leader."""
        for replica in partition.assignment.replicas:
            partition.enter_replica(replica, ReplicaState.NEW)

    def come_online(self, partition: Partition, brokers: Collection[int]) -> None:
        """The replicas on these brokers are online: send them the stored state."""
        online = []
        for replica in self._context.online_replicas(partition):
            if replica in brokers:
                partition.enter_replica(replica, ReplicaState.ONLINE)
                online.append(replica)
        if online and partition.leader_and_isr is not None:
            self._batch.leader_and_isr(partition, online)

    def go_offline(self, partition: Partition, brokers: Collection[int], cause: Cause) -> None:
        """The replicas on these brokers are offline: shrink the ISR, or elect a leader."""
        for replica in partition.assignment.replicas:
            if replica in brokers:
                partition.enter_replica(replica, ReplicaState.OFFLINE)
        if partition.leader in brokers:
            partition.enter(PartitionState.OFFLINE)
            self._partitions.propose(partition, Purpose.OFFLINE_ELECTION, cause)
        elif partition.state is PartitionState.ONLINE:
            self._partitions.propose(partition, Purpose.SHRINK, cause)
        self._batch.metadata(partition)

    def leave(self, partition: Partition, brokers: Collection[int], cause: Cause) -> None:
        """These are removed from the replicas: shrink the ISR, or elect a leader."""
        for replica in brokers:
            if replica in partition.replicas:
                partition.enter_replica(replica, ReplicaState.OFFLINE)
        if partition.leader in brokers:
            partition.enter(PartitionState.OFFLINE)
            self._partitions.propose(partition, Purpose.OFFLINE_ELECTION, cause)
        elif partition.state is PartitionState.ONLINE:
            self._partitions.propose(partition, Purpose.SHRINK, cause)

    def delete(self, partition: Partition, brokers: Iterable[int]) -> None:
        """Send StopReplica with deletion, and drop the replicas before there is a response."""
        for replica in sorted(brokers):
            if replica in partition.replicas:
                partition.enter_replica(replica, ReplicaState.DELETION_STARTED)
                partition.enter_replica(replica, ReplicaState.DELETION_SUCCESSFUL)
                partition.enter_replica(replica, ReplicaState.NON_EXISTENT)
                del partition.replicas[replica]
            if partition.leader_and_isr is not None:
                self._batch.stop(partition, replica, delete=True)

    def on_brokers(self, brokers: Collection[int]) -> list[TopicPartition]:
        wanted = frozenset(brokers)
        return [
            partition.name
            for partition in self._context.partitions()
            if not wanted.isdisjoint(partition.assignment.replicas)
        ]
