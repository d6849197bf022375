"""Keys and values in `__transaction_state`, each preceded by its version as an int16."""

from odradek.wire.schema import Message, array, int8, int16, int32, int32_array, int64, string


class TransactionLogKey(Message, versions="0"):
    """The key of a transaction's state: its transactional id."""

    transactional_id: str = string("0")


class PartitionsSchema(Message):
    topic: str = string()
    partition_ids: list[int] = int32_array()


class TransactionLogValue(Message, versions="0-1", flexible="1+"):
    """The state of the transaction; an empty value is a tombstone."""

    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: list[PartitionsSchema] | None = array(PartitionsSchema, nullable="0+")
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
