"""StopReplica (5), versions 0-4, from the controller: stop serving replicas, or delete them.

Behaviour:
    * A former controller, or a request for an earlier registration of this broker: refused.
    * Without `delete_partition` the replica stops serving and stays on disk; with it the log's
      directory is renamed at once and deleted later.
    * A leader epoch below the replica's is FENCED_LEADER_EPOCH; -2, the deletion of the
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
    """Stop the replicas; the caller has checked controller epoch and broker epoch."""
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
