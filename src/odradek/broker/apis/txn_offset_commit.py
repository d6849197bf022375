"""TxnOffsetCommit (28), versions 0-5: commits offsets with a transaction.

Behaviour:
    * Appended within the producer's transaction; committed by its commit marker in the group's
      partition. Until then OffsetFetch with `require_stable` gets UNSTABLE_OFFSET_COMMIT.
    * Member id and generation are checked if the request has them (v3, KIP-447).
    * A producer with an older epoch than one seen here: INVALID_PRODUCER_EPOCH. That its
      transaction includes the group is verified with the transaction coordinator (KIP-890).
    * Clients before v2 cannot handle a loading coordinator: COORDINATOR_NOT_AVAILABLE.
    * TransactionalId Write, Group Read, Topic Read; as in OffsetCommit for each partition.

Versions:
    v2 leader epochs    v3 flexible, generation and member    v4 TRANSACTION_ABORTABLE
    v5 the group joins the transaction by itself (KIP-890)
"""

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Final

from odradek.broker.apis.offset_commit import sort_commits, with_refused
from odradek.broker.cluster.metadata_cache import MetadataCache
from odradek.broker.coordinators.group_shell import Coordinator, GroupShell
from odradek.broker.serving.session import Session
from odradek.group.effects import AnyAnswer, PartitionsAnswer
from odradek.group.events import CommitOffsets, Committer
from odradek.group.records import CommittedOffset
from odradek.model.acl import AclOperation, ResourceType
from odradek.model.errors import ErrorCode
from odradek.model.partition import TopicPartition
from odradek.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

_KNOWS_LOADING_SINCE: Final = 2
_KNOWS_ABORTABLE_SINCE: Final = 4
_ADDS_THE_GROUP_SINCE: Final = 5


def txn_offset_commit(
    groups: GroupShell,
    cache: MetadataCache,
    session: Session,
    request: TxnOffsetCommitRequest,
    api_version: int,
) -> TxnOffsetCommitResponse | Awaitable[TxnOffsetCommitResponse]:
    """Append the offsets, and answer when they are on all in-sync replicas."""
    error = _refusal(session, request)
    if error is not ErrorCode.NONE:
        return _response(request, PartitionsAnswer(error))
    refused: dict[TopicPartition, ErrorCode] = {}
    offsets: dict[TopicPartition, CommittedOffset] = {}
    wall_ms = groups.now().wall_ms
    for topic in request.topics:
        sort_commits(
            cache, session, topic.name, topic.partitions,
            wall_ms=wall_ms, offsets=offsets, refused=refused,
        )  # fmt: skip
    if not offsets:
        return _response(request, PartitionsAnswer(ErrorCode.NONE, refused))
    coordinator = groups.find(request.group_id)
    if isinstance(coordinator, ErrorCode):
        if (
            coordinator is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            and api_version < _KNOWS_LOADING_SINCE
        ):
            coordinator = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return _response(request, PartitionsAnswer(coordinator, refused))
    if groups.transactions is None:
        answer = _commit(groups, coordinator, request, offsets)
        if isinstance(answer, asyncio.Future):
            return _when_answered(request, refused, answer)
        return _response(request, with_refused(answer, refused))
    return _verified(groups, coordinator, request, api_version, offsets, refused)


def _refusal(session: Session, request: TxnOffsetCommitRequest) -> ErrorCode:
    if not session.authorize(
        AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id
    ):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not session.authorize(AclOperation.READ, ResourceType.GROUP, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return ErrorCode.NONE


def _commit(
    groups: GroupShell,
    coordinator: Coordinator,
    request: TxnOffsetCommitRequest,
    offsets: Mapping[TopicPartition, CommittedOffset],
) -> AnyAnswer | asyncio.Future[AnyAnswer]:
    committer = Committer(
        member_id=request.member_id,
        generation=request.generation_id,
        group_instance_id=request.group_instance_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
    )
    return groups.ask(
        coordinator,
        lambda number: CommitOffsets(
            request=number, group_id=request.group_id, committer=committer, offsets=offsets
        ),
    )


async def _verified(
    groups: GroupShell,
    coordinator: Coordinator,
    request: TxnOffsetCommitRequest,
    api_version: int,
    offsets: Mapping[TopicPartition, CommittedOffset],
    refused: Mapping[TopicPartition, ErrorCode],
) -> TxnOffsetCommitResponse:
    assert groups.transactions is not None
    may_append = await groups.transactions.verify(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        coordinator.partition.topic_partition,
        add=api_version >= _ADDS_THE_GROUP_SINCE,
    )
    error = may_append()
    if error is ErrorCode.TRANSACTION_ABORTABLE and api_version < _KNOWS_ABORTABLE_SINCE:
        error = ErrorCode.INVALID_TXN_STATE
    if error is ErrorCode.NONE and coordinator.is_over:
        error = ErrorCode.NOT_COORDINATOR
    if error is not ErrorCode.NONE:
        return _response(request, PartitionsAnswer(error, refused))
    answer = _commit(groups, coordinator, request, offsets)
    if isinstance(answer, asyncio.Future):
        return await _when_answered(request, refused, answer)
    return _response(request, with_refused(answer, refused))


async def _when_answered(
    request: TxnOffsetCommitRequest,
    refused: Mapping[TopicPartition, ErrorCode],
    answer: Awaitable[AnyAnswer],
) -> TxnOffsetCommitResponse:
    return _response(request, with_refused(await answer, refused))


def _response(request: TxnOffsetCommitRequest, answer: PartitionsAnswer) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=part.partition_index,
                        error_code=answer.of(TopicPartition(topic.name, part.partition_index)),
                    )
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
