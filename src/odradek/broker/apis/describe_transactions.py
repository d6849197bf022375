"""DescribeTransactions (65), version 0: state and partitions of transactions, by id.

Behaviour:
    * Each id on its own: TRANSACTIONAL_ID_AUTHORIZATION_FAILED, NOT_COORDINATOR,
      COORDINATOR_LOAD_IN_PROGRESS, TRANSACTIONAL_ID_NOT_FOUND; an empty one INVALID_REQUEST.
    * Only partitions whose topic the client may describe are listed; while markers are being
      written, only those without a marker.
"""

from itertools import groupby
from operator import attrgetter

from odradek.broker.coordinators.txn_shell import TransactionShell
from odradek.broker.serving.session import Session
from odradek.model.acl import AclOperation, ResourceType
from odradek.model.errors import ErrorCode
from odradek.txn.transaction import STATE_NAMES, Transaction
from odradek.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)


def describe_transactions(
    transactions: TransactionShell, session: Session, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """Describe each transaction that the client may describe."""
    return DescribeTransactionsResponse(
        transaction_states=[
            _describe(transactions, session, name) for name in request.transactional_ids
        ]
    )


def _describe(transactions: TransactionShell, session: Session, name: str) -> TransactionState:
    if not session.authorize(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name):
        return _refusal(name, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not name:
        return _refusal(name, ErrorCode.INVALID_REQUEST)
    found = transactions.describe(name)
    if isinstance(found, ErrorCode):
        return _refusal(name, found)
    return TransactionState(
        transactional_id=name,
        transaction_state=STATE_NAMES[found.state],
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.started_ms,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        topics=_topics(found, session),
    )


def _topics(transaction: Transaction, session: Session) -> list[TopicData]:
    return [
        TopicData(topic=topic, partitions=[partition.partition for partition in group])
        for topic, group in groupby(sorted(transaction.partitions), key=attrgetter("topic"))
        if session.would_allow(AclOperation.DESCRIBE, ResourceType.TOPIC, topic)
    ]


def _refusal(name: str, error: ErrorCode) -> TransactionState:
    return TransactionState(transactional_id=name, error_code=error)
