"""InitProducerId (22), versions 0-5: a producer id for an idempotent producer.

Behaviour:
    * Without a transactional id: a fresh id in epoch 0. Nothing is remembered of it here; the
      partitions it writes to will know it.
    * A producer that lost track may name its present id and epoch (v3, KIP-360): without a
      transactional id it gets a fresh one all the same. One of the two alone is INVALID_REQUEST.
    * With a transactional id it is the transaction coordinator who answers; a broker that
      coordinates none is NOT_COORDINATOR, and an empty id is INVALID_REQUEST.

Versions:
    v2 flexible    v3 present id and epoch    v4 PRODUCER_FENCED    v5 TRANSACTION_ABORTABLE
"""

from collections.abc import Iterable

from odradek.broker.producer_ids import ProducerIds
from odradek.broker.session import Session
from odradek.model.acl import CLUSTER_NAME, AclOperation, ResourceType
from odradek.model.errors import ApiError, ErrorCode
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


async def init_producer_id(
    ids: ProducerIds,
    session: Session,
    request: InitProducerIdRequest,
    *,
    topics: Iterable[str],
) -> InitProducerIdResponse:
    """Draw an id from this broker's block. `topics` are all there are, for the authorization."""
    transactional_id = request.transactional_id
    if transactional_id is not None:
        return _refusal(_why_not_transactional(session, transactional_id))
    if not _may_be_idempotent(session, topics):
        return _refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if (request.producer_id < 0) is not (request.producer_epoch < 0):
        return _refusal(ErrorCode.INVALID_REQUEST)
    try:
        producer_id = await ids.next()
    except ApiError as error:
        return _refusal(error.code)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _why_not_transactional(session: Session, transactional_id: str) -> ErrorCode:
    if not session.authorize(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not transactional_id:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NOT_COORDINATOR


def _may_be_idempotent(session: Session, topics: Iterable[str]) -> bool:
    """Who may write anywhere may do it idempotently (KIP-679)."""
    return session.authorize(
        AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME
    ) or any(session.authorize(AclOperation.WRITE, ResourceType.TOPIC, topic) for topic in topics)


def _refusal(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_id=-1, producer_epoch=-1)
