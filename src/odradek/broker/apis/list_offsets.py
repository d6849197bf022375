"""ListOffsets (2), versions 0-9: the first or last offset of a partition, or that of a time.

Behaviour:
    * v0: a list of offsets at which segments begin (`odradek.broker.replication.segment_offsets`);
      a consumer gets none above the high watermark.
    * timestamp >= 0: the first record stamped at or after it, and its stamp; -1, -1 if none.
    * -1 latest: the high watermark; the last stable offset for read_committed; the log end offset
      for a follower. Right after an election the high watermark may still be below the epoch's
      first offset, so that records seem to be missing: OFFSET_NOT_AVAILABLE (KIP-207);
      LEADER_NOT_AVAILABLE before v5.
    * -2 earliest, -4 earliest local (KIP-405; every log is local here).
    * -3 the record with the largest timestamp (v7).
    * -5 last tiered offset (v9): nothing is tiered, so offset -1.
    * A partition that is named twice is INVALID_REQUEST.
    * Replica id -2, "debugging": the log end offset of this replica and its last leader epoch,
      also on a follower. Apache Kafka has it for kafka-replica-verification; here a controller
      uses it if every in-sync replica may have lost records.

Versions:
    v0 lists of offsets    v2 isolation level    v4 leader epochs    v6 flexible
    v7 -3    v8 -4    v9 -5
"""

import asyncio
from collections import Counter
from typing import Final

from odradek.broker.replication.partition import Led, led
from odradek.broker.replication.replica_manager import ReplicaManager
from odradek.broker.replication.segment_offsets import EARLIEST, LATEST, offsets_before, up_to
from odradek.broker.serving.session import Session
from odradek.log.disk import StorageError
from odradek.log.log import Log
from odradek.log.logs import Logs
from odradek.log.slices import ColdRead
from odradek.log.timestamps import StampedOffset
from odradek.model.acl import CLUSTER_NAME, AclOperation, ResourceType
from odradek.model.clock import WallMs
from odradek.model.errors import ApiError, ErrorCode
from odradek.model.partition import TopicPartition
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
# The first version in which a special timestamp is allowed.
_SINCE: Final = {LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
LEADER_EPOCH_SINCE: Final = 4
_NOT_AVAILABLE_SINCE: Final = 5
READ_COMMITTED: Final = 1
CONSUMER: Final = -1
DEBUGGING_REPLICA: Final = -2
_UNKNOWN: Final = -1
SLICE: Final = 500  # partitions answered before others may run


async def list_offsets(
    replicas: ReplicaManager,
    session: Session,
    request: ListOffsetsRequest,
    api_version: int,
    wall_ms: WallMs,
) -> ListOffsetsResponse:
    """Answer each partition on its own. A search by time may have to wait for the disk."""
    if api_version == 0:
        return await _lists_of_offsets(replicas, session, request, wall_ms)
    if request.replica_id == DEBUGGING_REPLICA and session.authorize(
        AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
    ):
        response = log_ends(replicas.logs, request)
        for topic_answer in response.topics:
            _leave_out_epochs(topic_answer.partitions, api_version)
        return response
    response = ListOffsetsResponse()
    times = Counter((t.name, p.partition_index) for t in request.topics for p in t.partitions)
    for topic in request.topics:
        allowed = session.authorize(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name)
        answers = []
        for number, asked in enumerate(topic.partitions, 1):
            if number % SLICE == 0:
                await asyncio.sleep(0)
            if not allowed:
                answers.append(_refusal(asked, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
                continue
            if times[topic.name, asked.partition_index] > 1:
                answers.append(_refusal(asked, ErrorCode.INVALID_REQUEST))
                continue
            index, leader_epoch = asked.partition_index, asked.current_leader_epoch
            found = led(replicas.find_led(topic.name, index, leader_epoch))
            if isinstance(found, ErrorCode):
                answers.append(_refusal(asked, found))
            else:
                answers.append(await _answer(replicas, found, asked, request, api_version))
        _leave_out_epochs(answers, api_version)
        response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return response


async def _lists_of_offsets(
    replicas: ReplicaManager, session: Session, request: ListOffsetsRequest, wall_ms: WallMs
) -> ListOffsetsResponse:
    response = ListOffsetsResponse()
    for topic in request.topics:
        allowed = session.authorize(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name)
        answers = []
        for asked in topic.partitions:
            await asyncio.sleep(0)  # the times of all segments may be read
            if allowed:
                answers.append(
                    _list_of_offsets(replicas, topic.name, asked, request.replica_id, wall_ms)
                )
            else:
                answers.append(_refusal(asked, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return response


def _list_of_offsets(
    replicas: ReplicaManager,
    topic: str,
    asked: ListOffsetsPartition,
    replica_id: int,
    wall_ms: WallMs,
) -> ListOffsetsPartitionResponse:
    if asked.timestamp < 0 and asked.timestamp not in {LATEST, EARLIEST}:
        return _refusal(asked, ErrorCode.UNSUPPORTED_VERSION)
    if asked.max_num_offsets < 0:
        return _refusal(asked, ErrorCode.UNKNOWN_SERVER_ERROR)  # as in Kafka
    if replica_id == DEBUGGING_REPLICA:
        found = replicas.find(topic, asked.partition_index)
    else:
        found = replicas.find_led(topic, asked.partition_index)
    if isinstance(found, ErrorCode):
        return _refusal(asked, found)
    if found.log is None:
        return _refusal(asked, ErrorCode.KAFKA_STORAGE_ERROR)
    try:
        offsets = offsets_before(found.log, asked.timestamp, asked.max_num_offsets, wall_ms=wall_ms)
    except StorageError as error:
        if not found.log.removed:
            replicas.storage_failed(error)
        return _refusal(asked, found.error or ErrorCode.KAFKA_STORAGE_ERROR)
    if replica_id == CONSUMER:
        offsets = up_to(offsets, found.log.high_watermark)
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index, old_style_offsets=offsets
    )


def _leave_out_epochs(answers: list[ListOffsetsPartitionResponse], api_version: int) -> None:
    if api_version < LEADER_EPOCH_SINCE:
        for answer in answers:
            answer.leader_epoch = _UNKNOWN


def log_ends(logs: Logs, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """The log end offsets of replicas here; the caller has checked the requester's rights."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[_log_end(logs, topic.name, asked) for asked in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _log_end(logs: Logs, topic: str, asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
    log = logs.get(TopicPartition(topic, asked.partition_index))
    if log is not None:
        return _found(asked, _UNKNOWN, log.leo, log.epochs.latest_epoch)
    if logs.has_offline_dir:
        return _refusal(asked, ErrorCode.KAFKA_STORAGE_ERROR)  # the log may be in that directory
    return _refusal(asked, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


async def _answer(
    replicas: ReplicaManager,
    leading: Led,
    asked: ListOffsetsPartition,
    request: ListOffsetsRequest,
    api_version: int,
) -> ListOffsetsPartitionResponse:
    try:
        return await _search(replicas, leading, asked, request, api_version)
    except StorageError as error:
        if not leading.log.removed:
            replicas.storage_failed(error)
    except ApiError as error:
        return _refusal(asked, error.code)
    # It was deleted meanwhile, or its log directory has failed.
    return _refusal(asked, leading.partition.error or ErrorCode.KAFKA_STORAGE_ERROR)


async def _search(
    replicas: ReplicaManager,
    leading: Led,
    asked: ListOffsetsPartition,
    request: ListOffsetsRequest,
    api_version: int,
) -> ListOffsetsPartitionResponse:
    log, when = leading.log, asked.timestamp
    if when < 0 and api_version < _SINCE.get(when, 1 << 15):
        return _refusal(asked, ErrorCode.UNSUPPORTED_VERSION)
    if when in {EARLIEST, EARLIEST_LOCAL}:
        start = log.log_start_offset
        return _found(asked, _UNKNOWN, start, log.epochs.epoch_at(start))
    if request.replica_id == CONSUMER and leading.high_watermark_is_behind_epoch():
        return _refusal(
            asked,
            ErrorCode.OFFSET_NOT_AVAILABLE
            if api_version >= _NOT_AVAILABLE_SINCE
            else ErrorCode.LEADER_NOT_AVAILABLE,
        )
    end = _readable_end(log, request)
    if when == LATEST:
        return _found(asked, _UNKNOWN, end, leading.partition.leader_epoch)
    place = await _place_in_time(replicas, log, when)
    if place is None or place.offset >= end:
        return _found(asked, _UNKNOWN, _UNKNOWN, _UNKNOWN)
    return _found(asked, place.timestamp, place.offset, log.epochs.epoch_at(place.offset))


async def _place_in_time(replicas: ReplicaManager, log: Log, when: int) -> StampedOffset | None:
    """The record that a timestamp refers to; None if there is none."""
    if when == LATEST_TIERED:
        return None
    wait = False
    while True:
        place = (
            log.max_timestamp_offset(wait=wait)
            if when == MAX_TIMESTAMP
            else log.offset_for_timestamp(when, wait=wait)
        )
        if not isinstance(place, ColdRead):
            return place
        await replicas.loaded(place)
        wait = True


def _readable_end(log: Log, request: ListOffsetsRequest) -> int:
    if request.replica_id != CONSUMER:
        return log.leo
    if request.isolation_level == READ_COMMITTED:
        return log.last_stable_offset
    return log.high_watermark


def _found(
    asked: ListOffsetsPartition, timestamp: int, offset: int, leader_epoch: int
) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=leader_epoch,
    )


def _refusal(asked: ListOffsetsPartition, error: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        error_code=error,
        timestamp=_UNKNOWN,
        offset=_UNKNOWN,
        leader_epoch=_UNKNOWN,
    )
