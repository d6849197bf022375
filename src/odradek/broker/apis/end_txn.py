"""EndTxn (26), versions 0-5: commit or abort.

Behaviour:
    * Answered when the decision is written on all in-sync replicas; the markers are sent then.
    * From v5 on the transaction is one of version 2: its end raises the epoch, and the response has
      the id and epoch with which the producer continues (KIP-890, `odradek.txn.machine`).

Versions:
    v2 PRODUCER_FENCED    v3 flexible    v4 TRANSACTION_ABORTABLE    v5 epoch in the response
"""

from typing import Final

from odradek.broker.coordinators.txn_shell import TransactionShell
from odradek.broker.serving.session import Session
from odradek.model.acl import AclOperation, ResourceType
from odradek.model.errors import ErrorCode
from odradek.txn.transaction import VERSION_1, VERSION_2
from odradek.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

FENCED_SINCE: Final = 2
VERSION_2_SINCE: Final = 5


async def end_txn(
    transactions: TransactionShell, session: Session, request: EndTxnRequest, api_version: int
) -> EndTxnResponse:
    name = request.transactional_id
    if not session.authorize(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, name):
        return EndTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not name:
        return EndTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    answer = await transactions.end(
        name,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        commit=request.committed,
        client_version=VERSION_2 if api_version >= VERSION_2_SINCE else VERSION_1,
    )
    error = answer.error
    if error is ErrorCode.PRODUCER_FENCED and api_version < FENCED_SINCE:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return EndTxnResponse(
        error_code=error,
        producer_id=answer.producer_id,
        producer_epoch=answer.producer_epoch,
    )
