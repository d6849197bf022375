"""What transactions of version 2 (KIP-890) add in `__transaction_state`, beyond Kafka 3.9.

3.9 reads this version of a value too, and skips the tagged fields that it does not have.
The newer versions of requests (Produce 12, TxnOffsetCommit 5, EndTxn 5) are with their APIs.
"""

from odradek.wire.messages.transaction_state import PartitionsSchema
from odradek.wire.schema import Message, array, int8, int16, int32, int64


class TaggedTransactionLogValue(Message, versions="1", flexible="1+"):
    """`TransactionLogValue` version 1, as Kafka 4 writes it."""

    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: list[PartitionsSchema] | None = array(PartitionsSchema, nullable="1+")
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    previous_producer_id: int = int64(default=-1, tag=0, ignorable=True)
    next_producer_id: int = int64(default=-1, tag=1, ignorable=True)
    client_transaction_version: int = int16(default=0, tag=2, ignorable=True)
