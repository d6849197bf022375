"""AlterReplicaLogDirs (34), versions 0-2: move replicas to other log directories (KIP-113).

Behaviour:
    * A move is a copy that follows the log in its present directory; when it has caught up it
      replaces the log. Answered when the copy has begun.
    * A directory that is not one of `log.dirs` is LOG_DIR_NOT_FOUND, one that failed
      KAFKA_STORAGE_ERROR; a partition not held here UNKNOWN_TOPIC_OR_PARTITION or
      NOT_LEADER_OR_FOLLOWER as in other requests. If the log is in that directory already, a copy
      in another directory is dropped.

Versions:
    v2 flexible
"""

from odradek.broker.replication.log_dir_moves import LogDirMoves
from odradek.broker.serving.session import Session
from odradek.model.acl import CLUSTER_NAME, AclOperation, ResourceType
from odradek.model.errors import ApiError, ErrorCode
from odradek.model.partition import TopicPartition
from odradek.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


def alter_replica_log_dirs(
    moves: LogDirMoves, session: Session, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """Begin each move on its own."""
    allowed = session.authorize(AclOperation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    for wanted in request.dirs:
        for topic in wanted.topics:
            result = results.setdefault(
                topic.name, AlterReplicaLogDirTopicResult(topic_name=topic.name)
            )
            for index in topic.partitions:
                error = (
                    _begin(moves, TopicPartition(topic.name, index), wanted.path)
                    if allowed
                    else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                )
                result.partitions.append(
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error)
                )
    return AlterReplicaLogDirsResponse(results=list(results.values()))


def _begin(moves: LogDirMoves, partition: TopicPartition, path: str) -> ErrorCode:
    try:
        moves.begin(partition, path)
    except ApiError as error:
        return error.code
    return ErrorCode.NONE
