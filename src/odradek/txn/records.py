"""Keys and values in `__transaction_state`, as Apache Kafka writes and reads them.

    key     int16 0, transactional id
    value   int16 version, then producer id and epoch, time-out, state, partitions by topic
            (null while EMPTY), and when it was written and begun. Null: a tombstone

A value has version 0, byte for byte as Kafka 3.9 writes it. Version 1 adds the producer ids and
the client version that a transaction of version 2 needs.
"""

from typing import Final, NamedTuple

from odradek.model.errors import MalformedRequestError
from odradek.model.partition import TopicPartition, by_topic
from odradek.record.records import InvalidRecordError
from odradek.txn.transaction import NO_PRODUCER_ID, VERSION_2, State, Transaction
from odradek.wire.codec import decoder, encoder
from odradek.wire.messages.transaction_state import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from odradek.wire.messages.transaction_version_2 import TaggedTransactionLogValue

_VERSION_BYTES: Final = 2
_TAGGED: Final = 1
# All but the two that are never written.
_STORED: Final = {int(s): s for s in State if s not in (State.DEAD, State.PREPARE_EPOCH_FENCE)}


class StoredTransaction(NamedTuple):
    """A decoded record of `__transaction_state`."""

    transactional_id: str
    transaction: Transaction | None  # None: a tombstone


def encode_key(transactional_id: str) -> bytes:
    key = TransactionLogKey(transactional_id=transactional_id)
    return bytes(_VERSION_BYTES) + encoder(TransactionLogKey, 0)(key)


def encode_value(transaction: Transaction) -> bytes:
    assert transaction.state in _STORED, transaction
    partitions = None if transaction.state is State.EMPTY else _by_topic(transaction)
    if transaction.client_version < VERSION_2:
        plain = TransactionLogValue(
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            transaction_timeout_ms=transaction.timeout_ms,
            transaction_status=int(transaction.state),
            transaction_partitions=partitions,
            transaction_last_update_timestamp_ms=transaction.updated_ms,
            transaction_start_timestamp_ms=transaction.started_ms,
        )
        return bytes(_VERSION_BYTES) + encoder(TransactionLogValue, 0)(plain)
    tagged = TaggedTransactionLogValue(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=int(transaction.state),
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.started_ms,
        previous_producer_id=transaction.last_producer_id,
        next_producer_id=transaction.next_producer_id,
        client_transaction_version=transaction.client_version,
    )
    return _TAGGED.to_bytes(_VERSION_BYTES, "big") + encoder(TaggedTransactionLogValue, _TAGGED)(
        tagged
    )


def decode_record(key: bytes | None, value: bytes | None) -> StoredTransaction | None:
    """Decode a record; None for a key version of a later Kafka.

    Raises:
        InvalidRecordError: the record is damaged.
    """
    if key is None or len(key) < _VERSION_BYTES:
        raise InvalidRecordError("no key, or one without a version")
    if int.from_bytes(key[:_VERSION_BYTES], signed=True) != 0:
        return None
    try:
        named, _ = decoder(TransactionLogKey, 0)(memoryview(key), _VERSION_BYTES)
        transactional_id = named.transactional_id
        transaction = None if value is None else _decode_value(transactional_id, value)
    except MalformedRequestError as error:
        raise InvalidRecordError(str(error)) from error
    return StoredTransaction(transactional_id, transaction)


def _decode_value(transactional_id: str, value: bytes) -> Transaction:
    version = int.from_bytes(value[:_VERSION_BYTES], signed=True)
    view = memoryview(value)
    if len(value) < _VERSION_BYTES or version not in {0, _TAGGED}:
        raise InvalidRecordError(
            f"value version {version} of {transactional_id!r}; 0 and 1 are supported"
        )
    stored: TransactionLogValue | TaggedTransactionLogValue
    last_producer_id = next_producer_id = NO_PRODUCER_ID
    client_version = 0
    if version == 0:
        stored, _ = decoder(TransactionLogValue, 0)(view, _VERSION_BYTES)
    else:
        stored, _ = decoder(TaggedTransactionLogValue, _TAGGED)(view, _VERSION_BYTES)
        last_producer_id = stored.previous_producer_id
        next_producer_id = stored.next_producer_id
        client_version = stored.client_transaction_version
    state = _STORED.get(stored.transaction_status)
    if state is None or stored.producer_epoch < 0:
        raise InvalidRecordError(
            f"{transactional_id!r} in state {stored.transaction_status}, "
            f"epoch {stored.producer_epoch}"
        )
    return Transaction(
        transactional_id=transactional_id,
        producer_id=stored.producer_id,
        producer_epoch=stored.producer_epoch,
        last_producer_id=last_producer_id,
        next_producer_id=next_producer_id,
        timeout_ms=stored.transaction_timeout_ms,
        state=state,
        partitions=frozenset(
            TopicPartition(topic.topic, number)
            for topic in stored.transaction_partitions or ()
            for number in topic.partition_ids
        ),
        started_ms=stored.transaction_start_timestamp_ms,
        updated_ms=stored.transaction_last_update_timestamp_ms,
        client_version=client_version,
    )


def _by_topic(transaction: Transaction) -> list[PartitionsSchema]:
    topics = by_topic(sorted(transaction.partitions))
    return [PartitionsSchema(topic=name, partition_ids=ids) for name, ids in topics.items()]
