"""The record batch, version 2: reading its header, and setting the fields that a broker sets.

     0  base offset       i64   set by the broker
     8  length            i32   bytes after this field
    12  leader epoch      i32   set by the broker
    16  magic             i8    2
    17  crc               u32   CRC-32C of everything from the attributes on
    21  attributes        i16   bits 0-2 codec, 3 timestamp type, 4 transactional, 5 control,
                                6 delete horizon
    23  last offset delta i32
    27  base timestamp    i64   or, with bit 6, the delete horizon
    35  max timestamp     i64
    43  producer id       i64
    51  producer epoch    i16
    53  base sequence     i32
    57  record count      i32
    61  records                 compressed together, if a codec is set

Base offset and leader epoch are outside the checksum, so a leader sets them without reading
the records: either in place (`patch`), or by writing `patched_prefix` and after it the
producer's own bytes from `PREFIX_BYTES` on, without a copy.

A batch is a `memoryview` here. A whole `BatchHeader` (a tuple of 13 fields) takes 0.5 us; where a
field or two is enough, the functions below read one field at a position.
"""

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from odradek.model.errors import ApiError, ErrorCode
from odradek.record.crc32c import crc32c

MAGIC: Final = 2
MAGIC_AT: Final = 16
CRC_AT: Final = 17
ATTRIBUTES_AT: Final = 21
LAST_OFFSET_DELTA_AT: Final = 23
MAX_TIMESTAMP_AT: Final = 35
HEADER_BYTES: Final = 61
# Base offset and length: the length does not count them.
OVERHEAD_BYTES: Final = 12
# What the broker sets: base offset and leader epoch, with the length between them.
PREFIX_BYTES: Final = 16
# No batch or message of any magic is shorter: a smaller length is corrupt.
LENGTH_MIN: Final = 14

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1
NO_LEADER_EPOCH: Final = -1
SEQUENCE_MAX: Final = 0x7FFFFFFF

HEADER: Final = Struct(">qiibIhiqqqhii")
_PREFIX: Final = Struct(">qii")
_CHECKSUM: Final = Struct(">I")
_OFFSET: Final = Struct(">q")
_LENGTH: Final = Struct(">i")
_LEADER_EPOCH: Final = Struct(">i")
_ATTRIBUTES: Final = Struct(">h")
_new: Final = tuple.__new__  # of a NamedTuple, without a Python frame

Bytes = bytes | bytearray | memoryview


class CorruptBatchError(ApiError):
    """The bytes are not a batch, or not as written: wrong length, magic or checksum."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)


class TimestampType(IntEnum):
    """Which clock the timestamps are from. With LogAppendTime all are the max timestamp."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    """All fields of the header of one batch."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The whole batch, header included."""
        return self.length + OVERHEAD_BYTES

    @property
    def last_offset(self) -> int:
        """The offset of the last record; compaction keeps it when that record is removed."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The first offset after this batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; sequences wrap from 2^31-1 to 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & SEQUENCE_MAX

    @property
    def codec(self) -> int:
        """The codec's number, one of `odradek.record.compression.Codec`."""
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> TimestampType:
        """Which clock the timestamps are from."""
        return TimestampType(self.attributes & LOG_APPEND_TIME_BIT != 0)

    @property
    def is_transactional(self) -> bool:
        """Whether this is part of a transaction; true for its marker, too."""
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        """Whether this is a control batch (a transaction marker), not data."""
        return self.attributes & CONTROL_BIT != 0

    @property
    def has_producer_id(self) -> bool:
        """Whether an idempotent or transactional producer wrote this batch."""
        return self.producer_id > NO_PRODUCER_ID

    @property
    def delete_horizon_ms(self) -> int | None:
        """When its tombstones and markers may be removed; set by the first compaction of it."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None


def read_header(buffer: Bytes, position: int = 0) -> BatchHeader:
    """The header at `position`, not validated.

    Raises:
        CorruptBatchError: there are fewer bytes than a header has.
    """
    if len(buffer) - position < HEADER_BYTES:
        raise CorruptBatchError(
            f"{len(buffer) - position} bytes at position {position}; "
            f"a batch header has {HEADER_BYTES}"
        )
    return _new(BatchHeader, HEADER.unpack_from(buffer, position))


# One field each. The position must be the start of a batch whose length the caller has checked.


def base_offset_at(buffer: Bytes, position: int) -> int:
    offset: int = _OFFSET.unpack_from(buffer, position)[0]
    return offset


def size_at(buffer: Bytes, position: int) -> int:
    """The size in bytes of the batch at `position`, header included."""
    length: int = _LENGTH.unpack_from(buffer, position + 8)[0]
    return length + OVERHEAD_BYTES


def next_offset_at(buffer: Bytes, position: int) -> int:
    last_offset_delta: int = _LENGTH.unpack_from(buffer, position + LAST_OFFSET_DELTA_AT)[0]
    return base_offset_at(buffer, position) + last_offset_delta + 1


def leader_epoch_at(buffer: Bytes, position: int) -> int:
    epoch: int = _LEADER_EPOCH.unpack_from(buffer, position + 12)[0]
    return epoch


# ---------------------------------------------------------------------------- many batches


def iter_batches(buffer: Bytes, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Each whole batch from `position` on: its position and its header.

    Stops before an incomplete batch, as at the end of a fetch response or of a torn file; it
    begins at the last yielded position plus that batch's size.

    Raises:
        CorruptBatchError: a length too small for a batch, or a magic other than 2.
    """
    end = len(buffer)
    unpack = HEADER.unpack_from
    while end - position >= HEADER_BYTES:
        header = _new(BatchHeader, unpack(buffer, position))
        length = header.length
        if header.magic != MAGIC or length < HEADER_BYTES - OVERHEAD_BYTES:
            raise _no_batch(position, length, header.magic)
        following = position + OVERHEAD_BYTES + length
        if following > end:
            return
        yield position, header
        position = following
    if end - position > MAGIC_AT:
        # Too short for a header: incomplete, unless length or magic already show a corrupt one.
        length = _LENGTH.unpack_from(buffer, position + 8)[0]
        magic = buffer[position + MAGIC_AT]
        if magic != MAGIC or length < HEADER_BYTES - OVERHEAD_BYTES:
            raise _no_batch(position, length, magic)


def whole_batches_end(buffer: Bytes, position: int = 0) -> int:
    """Where the last whole batch ends, by the lengths alone; `position` if there is none.

    Raises:
        CorruptBatchError: a length too small for a batch.
    """
    end = len(buffer)
    while end - position >= OVERHEAD_BYTES:
        length: int = _LENGTH.unpack_from(buffer, position + 8)[0]
        if length < LENGTH_MIN:
            raise CorruptBatchError(
                f"batch length {length} at position {position} is less than {LENGTH_MIN}"
            )
        if position + OVERHEAD_BYTES + length > end:
            break
        position += OVERHEAD_BYTES + length
    return position


def _no_batch(position: int, length: int, magic: int) -> CorruptBatchError:
    if magic in (0, 1) and length >= LENGTH_MIN:
        return CorruptBatchError(
            f"message format v{magic} at position {position}: only v{MAGIC} is supported, "
            f"which Kafka has written since 0.11"
        )
    if magic != MAGIC:
        return CorruptBatchError(f"magic {magic} at position {position} is not {MAGIC}")
    return CorruptBatchError(
        f"batch length {length} at position {position} is less than "
        f"{HEADER_BYTES - OVERHEAD_BYTES}, the rest of a header"
    )


# -------------------------------------------------------------------------------- checksum


def has_valid_crc(buffer: memoryview, position: int, header: BatchHeader) -> bool:
    """Whether the checksum of the batch at `position` is right."""
    end = position + OVERHEAD_BYTES + header.length
    return header.crc == crc32c(buffer[position + ATTRIBUTES_AT : end])


def sign(batch: bytearray) -> None:
    """Set the checksum of one batch, after a field covered by it was changed."""
    with memoryview(batch) as view:
        _CHECKSUM.pack_into(batch, CRC_AT, crc32c(view[ATTRIBUTES_AT:]))


# -------------------------------------------------------------------- what the broker sets


# Base offset, length, leader epoch: the first `PREFIX_BYTES`, written in place of the producer's.
patched_prefix: Final = _PREFIX.pack


def patch(
    buffer: bytearray | memoryview, position: int, *, base_offset: int, leader_epoch: int
) -> None:
    """Set base offset and leader epoch of the batch at `position` in place."""
    _OFFSET.pack_into(buffer, position, base_offset)
    _LEADER_EPOCH.pack_into(buffer, position + 12, leader_epoch)
