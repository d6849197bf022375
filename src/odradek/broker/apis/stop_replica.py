"""StopReplica (5), versions 0-4, from the controller: hold these partitions no longer.

Behaviour:
    * An older controller, or an order for an earlier life of this broker: refused whole.
    * Without `delete_partition` the replica stops serving and stays on disk; with it the log's
      directory is renamed at once and removed later.
    * A leader epoch older than the replica's is FENCED_LEADER_EPOCH; -2, the deletion of the
      topic, overrules every epoch.

Versions:
    v1 broker epoch    v2 flexible    v3 by partition, with leader epochs    v4 KRaft controllers
"""

from odradek.broker.replication.replica_manager import ReplicaManager, StopReplicaPartition
from odradek.model.errors import ErrorCode
from odradek.model.partition import TopicPartition
from odradek.wire.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)


async def stop_replica(
    replicas: ReplicaManager, request: StopReplicaRequest
) -> StopReplicaResponse:
    """Carry out the order; the caller has checked the controller's and the broker's epoch."""
    outcome = await replicas.stop(
        [
            StopReplicaPartition(
                TopicPartition(topic.topic_name, state.partition_index),
                state.leader_epoch,
                state.delete_partition,
            )
            for topic in request.topic_states
            for state in topic.partition_states
        ]
    )
    return StopReplicaResponse(
        error_code=ErrorCode.NONE,
        partition_errors=[
            StopReplicaPartitionError(
                topic_name=partition.topic, partition_index=partition.partition, error_code=error
            )
            for partition, error in outcome.items()
        ],
    )
