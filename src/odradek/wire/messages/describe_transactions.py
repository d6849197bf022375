"""DescribeTransactions (65): state and partitions of transactions."""

from odradek.wire.schema import (
    Message,
    array,
    int16,
    int32,
    int32_array,
    int64,
    string,
    string_array,
)


class DescribeTransactionsRequest(Message, api_key=65, versions="0", flexible="0+"):
    transactional_ids: list[str] = string_array()


class TopicData(Message):
    topic: str = string()
    partitions: list[int] = int32_array()


class TransactionState(Message):
    error_code: int = int16()
    transactional_id: str = string()
    transaction_state: str = string()
    transaction_timeout_ms: int = int32()
    transaction_start_time_ms: int = int64()
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: list[TopicData] = array(TopicData)


class DescribeTransactionsResponse(Message, api_key=65, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    transaction_states: list[TransactionState] = array(TransactionState)
