"""DeleteRecords (21), versions 0-2: everything before an offset goes.

Behaviour:
    * -1 means the high watermark; an offset above it is OFFSET_OUT_OF_RANGE, one below the log
      start changes nothing.
    * A topic that is only compacted keeps its records: POLICY_VIOLATION.
    * Answered at once, with the leader's log start offset.

Versions:
    v2  flexible
"""

from typing import Final

from odradek.broker.partition import Partition
from odradek.broker.replica_manager import ReplicaManager
from odradek.broker.session import Session
from odradek.log.disk import StorageError
from odradek.model.acl import AclOperation, ResourceType
from odradek.model.errors import ErrorCode
from odradek.model.names import INTERNAL_TOPICS
from odradek.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

HIGH_WATERMARK: Final = -1
_UNKNOWN: Final = -1


def delete_records(
    replicas: ReplicaManager, session: Session, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    """Answer every partition on its own."""
    response = DeleteRecordsResponse()
    for topic in request.topics:
        refusal = _topic_refusal(session, topic.name)
        response.topics.append(
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    _result(asked.partition_index, refusal)
                    if refusal is not ErrorCode.NONE
                    else _delete(replicas, topic.name, asked.partition_index, asked.offset)
                    for asked in topic.partitions
                ],
            )
        )
    return response


def _topic_refusal(session: Session, topic: str) -> ErrorCode:
    if not session.authorize(AclOperation.DELETE, ResourceType.TOPIC, topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if topic in INTERNAL_TOPICS:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return ErrorCode.NONE


def _delete(
    replicas: ReplicaManager, topic: str, index: int, offset: int
) -> DeleteRecordsPartitionResult:
    found = replicas.find_led(topic, index)
    if isinstance(found, ErrorCode):
        return _result(index, found)
    try:
        return _advance(found, index, offset)
    except StorageError as error:
        replicas.storage_failed(error)
        return _result(index, ErrorCode.KAFKA_STORAGE_ERROR)


def _advance(partition: Partition, index: int, offset: int) -> DeleteRecordsPartitionResult:
    log = partition.log
    assert log is not None
    if "delete" not in log.config.cleanup_policy:
        return _result(index, ErrorCode.POLICY_VIOLATION)
    if offset == HIGH_WATERMARK:
        offset = log.high_watermark
    if offset < 0 or offset > log.high_watermark:
        return _result(index, ErrorCode.OFFSET_OUT_OF_RANGE)
    log.advance_log_start(offset)
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=log.log_start_offset)


def _result(index: int, error: ErrorCode) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=index, low_watermark=_UNKNOWN, error_code=error
    )
