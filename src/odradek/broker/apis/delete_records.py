"""DeleteRecords (21), versions 0-2: delete all records below an offset.

Behaviour:
    * -1 means the high watermark; an offset above it is OFFSET_OUT_OF_RANGE, one below the log
      start changes nothing.
    * A topic that is only compacted keeps its records: POLICY_VIOLATION.
    * Answered when every registered replica has deleted them, with the lowest of their log start
      offsets; REQUEST_TIMED_OUT if that takes longer than the request's time-out. A replica on a
      broker that is not registered is not waited for: it will truncate to the leader's log start.

Versions:
    v2  flexible
"""

import asyncio
from typing import Final

from odradek.broker.replication.partition import Led, Partition, led
from odradek.broker.replication.replica_manager import ReplicaManager
from odradek.broker.serving.session import Session
from odradek.log.disk import StorageError
from odradek.model.acl import AclOperation, ResourceType
from odradek.model.errors import ErrorCode
from odradek.model.names import INTERNAL_TOPICS
from odradek.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)

HIGH_WATERMARK: Final = -1
_UNKNOWN: Final = -1


class _Deletion:
    """The deletion in one partition, while it waits for the followers."""

    def __init__(self, index: int) -> None:
        self.done = False
        self.offset = 0
        self.result: asyncio.Future[DeleteRecordsPartitionResult] = (
            asyncio.get_running_loop().create_future()
        )
        self._index = index

    def deleted(self, low_watermark: int) -> None:
        """Every registered replica has deleted the records."""
        self.end(
            DeleteRecordsPartitionResult(partition_index=self._index, low_watermark=low_watermark)
        )

    def failed(self, error: ErrorCode) -> None:
        """The partition is not led here any more."""
        self.end(_result(self._index, error))

    def end(self, result: DeleteRecordsPartitionResult) -> None:
        """Set the result, unless there is one."""
        if not self.done:
            self.done = True
            self.result.set_result(result)


async def delete_records(
    replicas: ReplicaManager, session: Session, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    """Handle each partition on its own; answered when the last one has its result."""
    response = DeleteRecordsResponse()
    waiting: list[tuple[Partition, _Deletion]] = []
    deadline_s = asyncio.get_running_loop().time() + max(request.timeout_ms, 0) / 1000
    answers = [(topic, _begin(replicas, session, topic, waiting)) for topic in request.topics]
    for partition, deletion in waiting:
        left_s = deadline_s - asyncio.get_running_loop().time()
        await asyncio.wait([deletion.result], timeout=max(left_s, 0))
        if not deletion.done:
            timed_out = _result(partition.topic_partition.partition, ErrorCode.REQUEST_TIMED_OUT)
            timed_out.low_watermark = partition.low_watermark
            deletion.end(timed_out)
    for topic, deletions in answers:
        results = [deletion.result.result() for deletion in deletions]
        response.topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
    return response


def _begin(
    replicas: ReplicaManager,
    session: Session,
    topic: DeleteRecordsTopic,
    waiting: list[tuple[Partition, _Deletion]],
) -> list[_Deletion]:
    """Delete on this broker; `waiting` gets the partitions that wait for followers."""
    refusal = _topic_refusal(session, topic.name)
    deletions = []
    for asked in topic.partitions:
        deletion = _Deletion(asked.partition_index)
        deletions.append(deletion)
        if refusal is not ErrorCode.NONE:
            deletion.failed(refusal)
            continue
        partition = _delete(replicas, topic.name, asked, deletion)
        if partition is not None and not deletion.done:
            waiting.append((partition, deletion))
    return deletions


def _topic_refusal(session: Session, topic: str) -> ErrorCode:
    if not session.authorize(AclOperation.DELETE, ResourceType.TOPIC, topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if topic in INTERNAL_TOPICS:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return ErrorCode.NONE


def _delete(
    replicas: ReplicaManager, topic: str, asked: DeleteRecordsPartition, deletion: _Deletion
) -> Partition | None:
    found = led(replicas.find_led(topic, asked.partition_index))
    if isinstance(found, ErrorCode):
        deletion.failed(found)
        return None
    try:
        _advance(found, asked.offset, deletion)
    except StorageError as error:
        replicas.storage_failed(error)
        deletion.failed(ErrorCode.KAFKA_STORAGE_ERROR)
    return found.partition


def _advance(found: Led, offset: int, deletion: _Deletion) -> None:
    log = found.log
    if "delete" not in log.config.cleanup_policy:
        deletion.failed(ErrorCode.POLICY_VIOLATION)
        return
    if offset == HIGH_WATERMARK:
        offset = log.high_watermark
    if offset < 0 or offset > log.high_watermark:
        deletion.failed(ErrorCode.OFFSET_OUT_OF_RANGE)
        return
    deletion.offset = offset
    found.partition.delete_records(offset, deletion)


def _result(index: int, error: ErrorCode) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=index, low_watermark=_UNKNOWN, error_code=error
    )
