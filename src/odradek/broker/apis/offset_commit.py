"""OffsetCommit (8), versions 0-9: commits offsets of a group.

Behaviour:
    * From a member of the current generation, or without any (generation -1) while the group
      has no members: UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, FENCED_INSTANCE_ID otherwise, and
      REBALANCE_IN_PROGRESS between JoinGroup and SyncGroup.
    * Answered when committed, or after `offsets.commit.timeout.ms`: REQUEST_TIMED_OUT.
    * Metadata longer than `offset.metadata.max.bytes`: OFFSET_METADATA_TOO_LARGE, for that
      partition only; too much for a batch in all: INVALID_COMMIT_OFFSET_SIZE.
    * The offsets of v0 are written to the coordination store, for any group id and without a
      member's generation (`odradek.broker.coordinators.stored_offsets`).
    * A time of the commit (v1) is its age when it expires, whatever the clock says.
    * A retention time (v2-4) keeps an offset for so long after the commit; -1 for the default.
    * Group Read and Topic Read, or GROUP_ and TOPIC_AUTHORIZATION_FAILED; topics and partitions
      that do not exist are UNKNOWN_TOPIC_OR_PARTITION.

Versions:
    v0 in the store    v1 generation, member, time of the commit    v2 retention time
    v5 no retention time    v6 leader epochs    v7 static members    v8 flexible
"""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from typing import Final, Protocol

from odradek.broker.cluster.metadata_cache import MetadataCache
from odradek.broker.coordinators.group_shell import GroupShell
from odradek.broker.coordinators.stored_offsets import StoredOffsets
from odradek.broker.serving.session import Session
from odradek.group.effects import PartitionsAnswer
from odradek.group.events import CommitOffsets, Committer
from odradek.group.records import NO_TIMESTAMP, CommittedOffset
from odradek.model.acl import AclOperation, ResourceType
from odradek.model.clock import WallMs
from odradek.model.errors import ErrorCode
from odradek.model.partition import TopicPartition
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

_NO_RETENTION: Final = -1
_LATEST_MS: Final = (1 << 63) - 1  # a retention time may be this long


class RequestedCommit(Protocol):
    """The commit for one partition, of OffsetCommit or TxnOffsetCommit."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None


def offset_commit(
    groups: GroupShell,
    stored: StoredOffsets,
    cache: MetadataCache,
    session: Session,
    request: OffsetCommitRequest,
    api_version: int,
) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    """Commit, and answer when the offsets are on all in-sync replicas, or in the store (v0)."""
    if not session.authorize(AclOperation.READ, ResourceType.GROUP, request.group_id):
        return _response(request, PartitionsAnswer(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    refused: dict[TopicPartition, ErrorCode] = {}
    offsets: dict[TopicPartition, CommittedOffset] = {}
    now = groups.now()
    expires_ms = NO_TIMESTAMP
    if request.retention_time_ms != _NO_RETENTION:
        expires_ms = min(now.wall_ms + request.retention_time_ms, _LATEST_MS)
    for topic in request.topics:
        sort_commits(
            cache, session, topic.name, topic.partitions,
            wall_ms=now.wall_ms, expires_ms=expires_ms, offsets=offsets, refused=refused,
        )  # fmt: skip
    if not offsets:
        return _response(request, PartitionsAnswer(ErrorCode.NONE, refused))
    if api_version == 0:
        return _in_store(stored, request, offsets, refused)
    if api_version == 1:
        _set_commit_times(request, offsets)
    coordinator = groups.find(request.group_id, may_be_empty=True)
    if isinstance(coordinator, ErrorCode):
        return _response(request, PartitionsAnswer(coordinator, refused))
    committer = Committer(
        member_id=request.member_id,
        generation=request.generation_id_or_member_epoch,
        group_instance_id=request.group_instance_id,
    )
    answer = groups.ask(
        coordinator,
        lambda number: CommitOffsets(
            request=number, group_id=request.group_id, committer=committer, offsets=offsets
        ),
    )
    if not isinstance(answer, asyncio.Future):
        return _response(request, with_refused(answer, refused))

    async def later() -> OffsetCommitResponse:
        return _response(request, with_refused(await answer, refused))

    return later()


async def _in_store(
    stored: StoredOffsets,
    request: OffsetCommitRequest,
    offsets: Mapping[TopicPartition, CommittedOffset],
    refused: Mapping[TopicPartition, ErrorCode],
) -> OffsetCommitResponse:
    errors = await stored.commit(request.group_id, offsets)
    return _response(request, PartitionsAnswer(ErrorCode.NONE, {**errors, **refused}))


def _set_commit_times(
    request: OffsetCommitRequest, offsets: dict[TopicPartition, CommittedOffset]
) -> None:
    """Use the times of the request (v1) instead of the clock's."""
    for topic in request.topics:
        for part in topic.partitions:
            partition = TopicPartition(topic.name, part.partition_index)
            if part.commit_timestamp != NO_TIMESTAMP and partition in offsets:
                offsets[partition] = offsets[partition]._replace(
                    commit_timestamp_ms=part.commit_timestamp
                )


def sort_commits(  # noqa: PLR0913 - what a commit is checked by, and where it goes
    cache: MetadataCache,
    session: Session,
    topic_name: str,
    parts: Iterable[RequestedCommit],
    *,
    wall_ms: WallMs,
    expires_ms: int = NO_TIMESTAMP,
    offsets: dict[TopicPartition, CommittedOffset],
    refused: dict[TopicPartition, ErrorCode],
) -> None:
    """Put valid commits into `offsets`, and the errors of the others into `refused`."""
    known = cache.topic(topic_name)
    error = ErrorCode.NONE
    if not session.authorize(AclOperation.READ, ResourceType.TOPIC, topic_name):
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif known is None:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for part in parts:
        partition = TopicPartition(topic_name, part.partition_index)
        if error is not ErrorCode.NONE:
            refused[partition] = error
        elif known is not None and part.partition_index not in known.partitions:
            refused[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            offsets[partition] = CommittedOffset(
                part.committed_offset,
                part.committed_leader_epoch,
                part.committed_metadata or "",
                wall_ms,
                expires_ms,
            )


def with_refused(answer: object, refused: Mapping[TopicPartition, ErrorCode]) -> PartitionsAnswer:
    """The coordinator's answer, with the partitions that were refused before."""
    assert isinstance(answer, PartitionsAnswer), answer
    return answer._replace(partitions={**answer.partitions, **refused}) if refused else answer


def _response(request: OffsetCommitRequest, answer: PartitionsAnswer) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=part.partition_index,
                        error_code=answer.of(TopicPartition(topic.name, part.partition_index)),
                    )
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
