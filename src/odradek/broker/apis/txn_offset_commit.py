"""TxnOffsetCommit (28), versions 0-5: positions that become committed with their transaction.

Behaviour:
    * Appended within the producer's transaction; they count when its commit marker lands on the
      group's partition. Until then OffsetFetch with `require_stable` says UNSTABLE_OFFSET_COMMIT.
    * Member and generation are checked where they are told (v3, KIP-447).
    * A producer with an older epoch than one seen here: INVALID_PRODUCER_EPOCH. That its
      transaction includes the group is verified with the transaction coordinator (KIP-890).
    * Clients before v2 do not expect a coordinator that loads: COORDINATOR_NOT_AVAILABLE.
    * TransactionalId Write, Group Read, Topic Read; as in OffsetCommit for each position.

Versions:
    v2 leader epochs    v3 flexible, generation and member    v4 TRANSACTION_ABORTABLE
    v5 the group joins the transaction by itself (KIP-890)
"""

from collections.abc import Awaitable, Mapping
from typing import Final

from odradek.broker.apis.offset_commit import outcome, sort_positions
from odradek.broker.cluster.metadata_cache import MetadataCache
from odradek.broker.coordinators.group_shell import CommitCall, GroupShell, Led
from odradek.broker.serving.session import Session
from odradek.group.machine import Committer
from odradek.group.offsets import Place
from odradek.group.records import Committed
from odradek.model.acl import AclOperation, ResourceType
from odradek.model.errors import ErrorCode
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
    """Append within the transaction, and wait until it is on all replicas."""
    error = _refusal(session, request)
    if error is not ErrorCode.NONE:
        return _response(request, {}, error)
    refused: dict[Place, ErrorCode] = {}
    positions: dict[Place, Committed] = {}
    wall_ms = groups.now().wall_ms
    for topic in request.topics:
        sort_positions(
            cache, session, topic.name, topic.partitions,
            wall_ms=wall_ms, positions=positions, refused=refused,
        )  # fmt: skip
    if not positions:
        return _response(request, refused, None)
    led = groups.find(request.group_id)
    if isinstance(led, ErrorCode):
        if led is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and api_version < _KNOWS_LOADING_SINCE:
            led = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return _response(request, refused, led)
    if groups.transactions is None:
        call = _commit(groups, led, request, positions)
        if isinstance(call, ErrorCode) or call.error is not None:
            return _response(request, refused, call)
        return _when_done(request, refused, call)
    return _verified(groups, led, request, api_version, positions, refused)


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
    led: Led,
    request: TxnOffsetCommitRequest,
    positions: Mapping[Place, Committed],
) -> CommitCall | ErrorCode:
    who = Committer(
        member_id=request.member_id,
        generation=request.generation_id,
        group_instance_id=request.group_instance_id,
        producer_id=request.producer_id,
    )
    return groups.commit(
        led, who, positions, group_id=request.group_id, producer_epoch=request.producer_epoch
    )


async def _verified(
    groups: GroupShell,
    led: Led,
    request: TxnOffsetCommitRequest,
    api_version: int,
    positions: Mapping[Place, Committed],
    refused: Mapping[Place, ErrorCode],
) -> TxnOffsetCommitResponse:
    assert groups.transactions is not None
    may_append = await groups.transactions.verify(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        led.partition.topic_partition,
        add=api_version >= _ADDS_THE_GROUP_SINCE,
    )
    error = may_append()
    if error is ErrorCode.TRANSACTION_ABORTABLE and api_version < _KNOWS_ABORTABLE_SINCE:
        error = ErrorCode.INVALID_TXN_STATE
    if error is ErrorCode.NONE and led.is_over:
        error = ErrorCode.NOT_COORDINATOR
    if error is not ErrorCode.NONE:
        return _response(request, refused, error)
    call = _commit(groups, led, request, positions)
    if isinstance(call, ErrorCode):
        return _response(request, refused, call)
    return await _when_done(request, refused, call)


async def _when_done(
    request: TxnOffsetCommitRequest, refused: Mapping[Place, ErrorCode], call: CommitCall
) -> TxnOffsetCommitResponse:
    await call.done()
    return _response(request, refused, call)


def _response(
    request: TxnOffsetCommitRequest,
    refused: Mapping[Place, ErrorCode],
    rest: CommitCall | ErrorCode | None,
) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=part.partition_index,
                        error_code=outcome(refused, rest, (topic.name, part.partition_index)),
                    )
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
