"""ListTransactions (66), versions 0-1: the transactions that this broker coordinates.

Behaviour:
    * Only transactions whose id the client may describe. While a coordinator loads:
      COORDINATOR_LOAD_IN_PROGRESS.
    * Filters: states by name, of which unknown ones are returned; producer ids; and a duration in
      milliseconds, for transactions that are open for longer.

Versions:
    v1 filter by duration
"""

from odradek.broker.coordinators.txn_shell import TransactionShell
from odradek.broker.serving.session import Session
from odradek.model.acl import AclOperation, ResourceType
from odradek.model.clock import WallMs
from odradek.txn.transaction import STATE_NAMES, Transaction
from odradek.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)


def list_transactions(
    transactions: TransactionShell, session: Session, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    """List the transactions that match."""
    listed = transactions.transactions()
    wall_ms = transactions.wall_ms()
    names = set(STATE_NAMES.values())
    unknown = [name for name in request.state_filters if name not in names]
    return ListTransactionsResponse(
        error_code=listed.error,
        unknown_state_filters=[] if listed.error else unknown,
        transaction_states=[
            TransactionState(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=STATE_NAMES[transaction.state],
            )
            for transaction in listed.transactions
            if _is_wanted(transaction, request, wall_ms)
            and session.would_allow(
                AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transaction.transactional_id
            )
        ],
    )


def _is_wanted(transaction: Transaction, request: ListTransactionsRequest, wall_ms: WallMs) -> bool:
    ids, states = request.producer_id_filters, request.state_filters
    if ids and transaction.producer_id not in ids:
        return False
    if states and STATE_NAMES[transaction.state] not in states:
        return False
    return request.duration_filter < 0 or wall_ms - transaction.started_ms > request.duration_filter
