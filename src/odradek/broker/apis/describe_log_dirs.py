"""DescribeLogDirs (35), versions 0-4: the replicas in each log directory, and their sizes.

Behaviour:
    * No topics (null) means all that this broker holds.
    * `offset_lag` is how far a replica's LEO is behind the high watermark; of a copy that is
      being made in another directory, how far it is behind the present one.
    * A failed directory: KAFKA_STORAGE_ERROR. A client without Cluster Describe gets an empty list
      and (v3) CLUSTER_AUTHORIZATION_FAILED.

Versions:
    v2 flexible    v3 top-level error    v4 size and free space of the volume
"""

from collections.abc import Iterable

from odradek.broker.serving.session import Session
from odradek.log.disk import StorageError
from odradek.log.logs import Logs
from odradek.model.acl import CLUSTER_NAME, AclOperation, ResourceType
from odradek.model.errors import ErrorCode
from odradek.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


def describe_log_dirs(
    logs: Logs, session: Session, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    """Answer from memory; only the free space is read from the disk."""
    if not session.authorize(AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    asked = None if request.topics is None else _asked(logs, request.topics)
    return DescribeLogDirsResponse(
        results=[_describe(logs, path, asked) for path in logs.directories]
    )


def _asked(logs: Logs, topics: Iterable[DescribableLogDirTopic]) -> dict[str, set[int]]:
    """The partitions of a request by topic, without the topics that have no replica here."""
    here = {log.partition.topic for log in logs} | {name.topic for name in logs.futures}
    asked: dict[str, set[int]] = {}
    for topic in topics:
        if topic.topic in here:
            asked.setdefault(topic.topic, set()).update(topic.partitions)
    return asked


def _describe(logs: Logs, path: str, asked: dict[str, set[int]] | None) -> DescribeLogDirsResult:
    if logs.is_offline(path):
        return DescribeLogDirsResult(
            log_dir=path,
            error_code=ErrorCode.KAFKA_STORAGE_ERROR,
            total_bytes=-1,
            usable_bytes=-1,
        )
    topics: dict[str, DescribeLogDirsTopic] = {}
    for held in logs.held_in(path):
        name = held.partition
        if asked is not None and name.partition not in asked.get(name.topic, ()):
            continue
        topic = topics.setdefault(name.topic, DescribeLogDirsTopic(name=name.topic))
        topic.partitions.append(
            DescribeLogDirsPartition(
                partition_index=name.partition,
                partition_size=held.size_bytes,
                offset_lag=held.offset_lag,
                is_future_key=held.is_future,
            )
        )
    try:
        total_bytes, usable_bytes = logs.space(path)
    except StorageError as error:
        logs.failed(error)
        return DescribeLogDirsResult(log_dir=path, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
    return DescribeLogDirsResult(
        log_dir=path,
        topics=list(topics.values()),
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
    )
