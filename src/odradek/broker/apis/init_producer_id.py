"""InitProducerId (22), versions 0-5: a producer id for an idempotent or transactional producer.

Behaviour:
    * Without a transactional id: a new id in epoch 0. It is not stored here; the partitions that
      the producer writes to will have it in their state.
    * A producer that lost track may name its present id and epoch (v3, KIP-360): without a
      transactional id it gets a new id nevertheless. One of the two alone is INVALID_REQUEST.
    * With a transactional id: the id that it has always had, in the next epoch, which fences the
      producer with the former epoch. An open transaction is aborted first, and the answer is
      CONCURRENT_TRANSACTIONS until it is (`odradek.txn.machine`). An empty id is INVALID_REQUEST; a
      time-out that is not positive or above `transaction.max.timeout.ms` is
      INVALID_TRANSACTION_TIMEOUT.

Versions:
    v2 flexible    v3 present id and epoch    v4 PRODUCER_FENCED    v5 TRANSACTION_ABORTABLE
"""

from typing import Final

from odradek.broker.coordinators.producer_ids import ProducerIds
from odradek.broker.coordinators.txn_shell import TransactionShell
from odradek.broker.serving.session import Session
from odradek.model.acl import CLUSTER_NAME, AclOperation, ResourceType
from odradek.model.errors import ApiError, ErrorCode
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

FENCED_SINCE: Final = 4  # earlier clients know PRODUCER_FENCED by another name


async def init_producer_id(
    ids: ProducerIds,
    transactions: TransactionShell,
    session: Session,
    request: InitProducerIdRequest,
    api_version: int,
) -> InitProducerIdResponse:
    """Have the coordinator answer, or allocate an id."""
    transactional_id = request.transactional_id
    refusal = _refusal_of(session, request)
    if refusal is not ErrorCode.NONE:
        return _refusal(refusal)
    if transactional_id is None:
        try:
            producer_id = await ids.next()
        except ApiError as error:
            return _refusal(error.code)
        return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
    answer = await transactions.init_producer_id(
        transactional_id,
        timeout_ms=request.transaction_timeout_ms,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
    )
    if answer.error is ErrorCode.PRODUCER_FENCED and api_version < FENCED_SINCE:
        return _refusal(ErrorCode.INVALID_PRODUCER_EPOCH)
    return InitProducerIdResponse(
        error_code=answer.error,
        producer_id=answer.producer_id,
        producer_epoch=answer.producer_epoch,
    )


def _refusal_of(session: Session, request: InitProducerIdRequest) -> ErrorCode:
    transactional_id = request.transactional_id
    if transactional_id is None:
        if not _may_be_idempotent(session):
            return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    elif not session.authorize(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not transactional_id and transactional_id is not None:
        return ErrorCode.INVALID_REQUEST
    if (request.producer_id < 0) is not (request.producer_epoch < 0):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def _may_be_idempotent(session: Session) -> bool:
    """Whether a client may write to any topic: then it may do so idempotently (KIP-679)."""
    right = (AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME)
    return (
        session.would_allow(*right)
        or session.authorize_any(AclOperation.WRITE, ResourceType.TOPIC)
        # Decided already: it records what the client lacks.
        or session.authorize(*right)
    )


def _refusal(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_id=-1, producer_epoch=-1)
