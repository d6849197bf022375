"""OffsetCommit (8), versions 2-9: a group's positions.

Behaviour:
    * From a member of the present generation, or without any (generation -1) while the group
      has no members: UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, FENCED_INSTANCE_ID otherwise, and
      REBALANCE_IN_PROGRESS between JoinGroup and SyncGroup.
    * Answered when committed, or after `offsets.commit.timeout.ms`: REQUEST_TIMED_OUT.
    * Metadata longer than `offset.metadata.max.bytes`: OFFSET_METADATA_TOO_LARGE, for that
      position alone; more of it than a batch takes: INVALID_COMMIT_OFFSET_SIZE.
    * A retention time (v2-4) keeps a position for so long after the commit; -1 as all others.
    * Group Read and Topic Read, or GROUP_ and TOPIC_AUTHORIZATION_FAILED; topics and partitions
      that are not there are UNKNOWN_TOPIC_OR_PARTITION.

Versions:
    v5 no retention time    v6 leader epochs    v7 static members    v8 flexible
"""

from collections.abc import Awaitable, Iterable, Mapping
from typing import Final, Protocol

from odradek.broker.cluster.metadata_cache import MetadataCache
from odradek.broker.coordinators.group_shell import CommitCall, GroupShell
from odradek.broker.serving.session import Session
from odradek.group.machine import Committer
from odradek.group.offsets import Place
from odradek.group.records import NO_TIMESTAMP, Committed
from odradek.model.acl import AclOperation, ResourceType
from odradek.model.errors import ErrorCode
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

_NO_RETENTION: Final = -1
_LATEST_MS: Final = (1 << 63) - 1  # a retention may be as long as that


class PositionPart(Protocol):
    """One position, as both OffsetCommit and TxnOffsetCommit have it."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None


def offset_commit(
    groups: GroupShell, cache: MetadataCache, session: Session, request: OffsetCommitRequest
) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    """Commit, and wait until it is."""
    if not session.authorize(AclOperation.READ, ResourceType.GROUP, request.group_id):
        return _all(request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    refused: dict[Place, ErrorCode] = {}
    positions: dict[Place, Committed] = {}
    now = groups.now()
    expires_ms = NO_TIMESTAMP
    if request.retention_time_ms != _NO_RETENTION:
        expires_ms = min(now.wall_ms + request.retention_time_ms, _LATEST_MS)
    for topic in request.topics:
        sort_positions(
            cache, session, topic.name, topic.partitions,
            wall_ms=now.wall_ms, expires_ms=expires_ms, positions=positions, refused=refused,
        )  # fmt: skip
    if not positions:
        return _response(request, refused, None)
    led = groups.find(request.group_id, may_be_empty=True)
    if isinstance(led, ErrorCode):
        return _response(request, refused, led)
    who = Committer(
        member_id=request.member_id,
        generation=request.generation_id_or_member_epoch,
        group_instance_id=request.group_instance_id,
    )
    call = groups.commit(led, who, positions, group_id=request.group_id)
    if isinstance(call, ErrorCode) or call.error is not None:
        return _response(request, refused, call)

    async def later() -> OffsetCommitResponse:
        await call.done()
        return _response(request, refused, call)

    return later()


def sort_positions(  # noqa: PLR0913 - what a position is judged by, and where it goes
    cache: MetadataCache,
    session: Session,
    topic_name: str,
    parts: Iterable[PositionPart],
    *,
    wall_ms: int,
    expires_ms: int = NO_TIMESTAMP,
    positions: dict[Place, Committed],
    refused: dict[Place, ErrorCode],
) -> None:
    """Which of these may be committed at all, and why the others may not."""
    known = cache.topic(topic_name)
    error = ErrorCode.NONE
    if not session.authorize(AclOperation.READ, ResourceType.TOPIC, topic_name):
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif known is None:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for part in parts:
        place = (topic_name, part.partition_index)
        if error is not ErrorCode.NONE:
            refused[place] = error
        elif known is not None and part.partition_index not in known.partitions:
            refused[place] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            positions[place] = Committed(
                part.committed_offset,
                part.committed_leader_epoch,
                part.committed_metadata or "",
                wall_ms,
                expires_ms,
            )


def outcome(
    refused: Mapping[Place, ErrorCode], rest: CommitCall | ErrorCode | None, place: Place
) -> ErrorCode:
    """What became of one position."""
    error = refused.get(place)
    if error is not None:
        return error
    assert rest is not None
    return rest if isinstance(rest, ErrorCode) else rest.of(place)


def _response(
    request: OffsetCommitRequest,
    refused: Mapping[Place, ErrorCode],
    rest: CommitCall | ErrorCode | None,
) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=part.partition_index,
                        error_code=outcome(refused, rest, (topic.name, part.partition_index)),
                    )
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _all(request: OffsetCommitRequest, error: ErrorCode) -> OffsetCommitResponse:
    return _response(request, {}, error)
