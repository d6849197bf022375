"""ListTransactions (66): the transactions that a broker coordinates.

Versions:
    v1  filtered by duration
"""

from odradek.wire.schema import (
    Message,
    array,
    int16,
    int32,
    int64,
    int64_array,
    string,
    string_array,
)


class ListTransactionsRequest(Message, api_key=66, versions="0-1", flexible="0+"):
    state_filters: list[str] = string_array()
    producer_id_filters: list[int] = int64_array()
    duration_filter: int = int64("1+", default=-1)


class TransactionState(Message):
    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


class ListTransactionsResponse(Message, api_key=66, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: list[str] = string_array()
    transaction_states: list[TransactionState] = array(TransactionState)
