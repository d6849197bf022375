"""Control batches: the markers that end a transaction.

A marker is one record in a batch of its own, transactional and control, with the producer's id
and epoch and no sequence. It has an offset; consumers do not return it to applications.

    key      i16 version 0, i16 type
    value    i16 version 0, i32 coordinator epoch

Types other than ABORT and COMMIT are KRaft's; they are skipped, as clients do.
"""

from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from odradek.record.batch import NO_LEADER_EPOCH, Bytes
from odradek.record.records import InvalidRecordError, Record, build_batch, iter_records

_KEY: Final = Struct(">hh")
_VALUE: Final = Struct(">hi")


class ControlType(IntEnum):
    """How a transaction ended (Kafka: `ControlRecordType`)."""

    ABORT = 0
    COMMIT = 1


_TYPES: Final = {int(each): each for each in ControlType}


class Marker(NamedTuple):
    """The end of a transaction, as the coordinator wrote it (Kafka: `EndTransactionMarker`)."""

    type: ControlType
    coordinator_epoch: int


def build_marker(
    marker: Marker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """The batch that ends a producer's transaction: 78 bytes."""
    key = _KEY.pack(0, marker.type)
    value = _VALUE.pack(0, marker.coordinator_epoch)
    return build_batch(
        [Record(key, value, timestamp)],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
        leader_epoch=leader_epoch,
    )


def read_marker(batch: Bytes) -> Marker | None:
    """The marker in a control batch; None for another type or an empty batch.

    Raises:
        InvalidRecordError: the key or the value is missing, too short, or of a negative version.
    """
    # Compaction keeps an empty batch for a producer's last sequence number.
    record = next(iter_records(batch), None)
    if record is None:
        return None
    key, value = record.key or b"", record.value or b""
    if len(key) < _KEY.size:
        raise InvalidRecordError(f"control record with a key of {len(key)} bytes")
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise InvalidRecordError(f"control record with key version {version}")
    marker_type = _TYPES.get(number)
    if marker_type is None:
        return None
    if len(value) < _VALUE.size:
        raise InvalidRecordError(f"marker with a value of {len(value)} bytes")
    version, coordinator_epoch = _VALUE.unpack_from(value)
    if version < 0:
        raise InvalidRecordError(f"marker with value version {version}")
    return Marker(marker_type, coordinator_epoch)
