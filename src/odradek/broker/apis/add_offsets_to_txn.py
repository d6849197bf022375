"""AddOffsetsToTxn (25), versions 0-4: a group's committed offsets join a transaction.

Behaviour:
    * Adds the partition of `__consumer_offsets` for the group, like AddPartitionsToTxn. The offsets
      themselves come in TxnOffsetCommit, to the group's coordinator.
    * COORDINATOR_LOAD_IN_PROGRESS while `__consumer_offsets` is being created: clients retry.
      (Apache Kafka uses its `offsets.topic.num.partitions` then; if the topic is created with
      another number, the offsets are in a partition that gets no marker.)

Versions:
    v2 PRODUCER_FENCED    v3 flexible    v4 TRANSACTION_ABORTABLE
"""

from collections.abc import Callable
from typing import Final

from odradek.broker.coordinators.txn_shell import TransactionShell
from odradek.broker.serving.session import Session
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
    partition_of: Callable[[str], int | None],
) -> AddOffsetsToTxnResponse:
    """Handle it; `partition_of` returns the partition of a group's offsets, None if not known."""
    name = request.transactional_id
    if not session.authorize(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, name):
        return _answer(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not session.authorize(AclOperation.READ, ResourceType.GROUP, request.group_id):
        return _answer(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not name:
        return _answer(ErrorCode.INVALID_REQUEST)
    partition = partition_of(request.group_id)
    if partition is None:
        return _answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    error = await transactions.add_partitions(
        name,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        partitions=[TopicPartition(GROUP_TOPIC, partition)],
        client_version=VERSION_1,
    )
    if error is ErrorCode.PRODUCER_FENCED and api_version < FENCED_SINCE:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return _answer(error)


def _answer(error: ErrorCode) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(error_code=error)
