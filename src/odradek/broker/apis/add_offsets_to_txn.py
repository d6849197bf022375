"""AddOffsetsToTxn (25), versions 0-4: a group's committed offsets join a transaction.

Behaviour:
    * The partition of `__consumer_offsets` that minds the group joins, as AddPartitionsToTxn would
      let it. The offsets themselves come by TxnOffsetCommit, to the group's coordinator.

Versions:
    v2 PRODUCER_FENCED    v3 flexible    v4 TRANSACTION_ABORTABLE
"""

from collections.abc import Callable
from typing import Final

from odradek.broker.session import Session
from odradek.broker.txn_shell import TransactionShell
from odradek.model.acl import AclOperation, ResourceType
from odradek.model.errors import ErrorCode
from odradek.model.names import GROUP_TOPIC
from odradek.model.partition import TopicPartition
from odradek.txn.transaction import VERSION_1
from odradek.wire.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)

FENCED_SINCE: Final = 2


async def add_offsets_to_txn(
    transactions: TransactionShell,
    session: Session,
    request: AddOffsetsToTxnRequest,
    api_version: int,
    *,
    partition_of: Callable[[str], int],
) -> AddOffsetsToTxnResponse:
    """Ask the coordinator. `partition_of` tells which partition minds a group."""
    name = request.transactional_id
    if not session.authorize(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, name):
        return _answer(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not session.authorize(AclOperation.READ, ResourceType.GROUP, request.group_id):
        return _answer(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not name:
        return _answer(ErrorCode.INVALID_REQUEST)
    error = await transactions.add_partitions(
        name,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        partitions=[TopicPartition(GROUP_TOPIC, partition_of(request.group_id))],
        client_version=VERSION_1,
    )
    if error is ErrorCode.PRODUCER_FENCED and api_version < FENCED_SINCE:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return _answer(error)


def _answer(error: ErrorCode) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(error_code=error)
