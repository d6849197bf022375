"""OldMessage sets: the record formats v0 and v1, of Kafka before 0.11.

A set is messages one after the other, without a header of its own:

     0  offset       i64
     8  size         i32   bytes after this field
    12  crc          u32   CRC-32 of everything from the magic on
    16  magic        i8    0 or 1
    17  attributes   i8    bits 0-2 codec, 3 timestamp type (magic 1)
    18  timestamp    i64   magic 1 only
        key length   i32   (-1: null), key
        value length i32   (-1: null), value

Compressed messages are the value of one message, the wrapper. The wrapper has the offset of its
last message; the offsets of its messages are absolute with magic 0, and with magic 1 they count
from 0 (KIP-31). If the wrapper's timestamp type is LogAppendTime, its timestamp is that of all its
messages (KIP-32). With magic 0 the header checksum of an lz4 frame covers the frame's magic, too
(KAFKA-3160).

Everything may come from a client, so every length is compared with the bytes that are left.
"""

import struct
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from odradek.record.batch import (
    CODEC_MASK,
    LENGTH_MIN,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    NO_TIMESTAMP,
    OVERHEAD_BYTES,
    Bytes,
    CorruptBatchError,
)
from odradek.record.compression import (
    DECOMPRESSED_BYTES_MAX,
    Codec,
    DecompressionError,
    compress,
    decompress,
)
from odradek.record.records import InvalidRecordError, Record

LAST_MAGIC: Final = 1

# The length that a size counts at least, by magic.
_LENGTH_MIN: Final = (14, 22)
_OFFSET_SIZE: Final = Struct(">qi")
_CRC_MAGIC_ATTRIBUTES: Final = Struct(">IbB")
_TIMESTAMP: Final = Struct(">q")
_LENGTH: Final = Struct(">i")
_CHECKSUM: Final = Struct(">I")
_HEAD_V0: Final = Struct(">bB").pack
_HEAD_V1: Final = Struct(">bBq").pack
_NULL: Final = _LENGTH.pack(-1)
_RELATIVE_SINCE: Final = 1

_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_SIZE_BIT: Final = 0x08
_LZ4_DICTIONARY_BIT: Final = 0x01


class OldMessage(NamedTuple):
    """One message of format v0 or v1, or a wrapper."""

    offset: int
    magic: int
    attributes: int
    timestamp: int  # -1 with magic 0
    key: bytes | None
    value: bytes | None

    @property
    def codec(self) -> int:
        """The codec's number; not 0 in a wrapper."""
        return self.attributes & CODEC_MASK

    @property
    def has_append_time(self) -> bool:
        """Whether the timestamp is the broker's (LogAppendTime)."""
        return self.magic > 0 and self.attributes & LOG_APPEND_TIME_BIT != 0


# --------------------------------------------------------------------------------- reading


def iter_messages(buffer: Bytes, position: int = 0) -> Iterator[OldMessage]:
    """Each whole message from `position` on, wrappers as they are; an incomplete last one is none.

    Raises:
        CorruptBatchError: a wrong length, magic or checksum.
        InvalidRecordError: a batch of format v2.
    """
    with memoryview(buffer) as view:
        end = len(view)
        while end - position >= OVERHEAD_BYTES:
            offset, size = _OFFSET_SIZE.unpack_from(view, position)
            if size < LENGTH_MIN:
                raise CorruptBatchError(
                    f"message size {size} at position {position} is less than {LENGTH_MIN}"
                )
            following = position + OVERHEAD_BYTES + size
            if following > end:
                return
            yield _message(view[position + OVERHEAD_BYTES : following], offset)
            position = following


def _message(view: memoryview, offset: int) -> OldMessage:
    """The message that `view` holds from its checksum on."""
    crc, magic, attributes = _CRC_MAGIC_ATTRIBUTES.unpack_from(view)
    if magic == MAGIC:
        raise InvalidRecordError(f"a record batch among messages, at offset {offset}")
    if not 0 <= magic <= LAST_MAGIC:
        raise CorruptBatchError(f"magic {magic} in a message set, at offset {offset}")
    if crc32(view[4:]) != crc:
        raise CorruptBatchError(f"checksum {crc}, computed {crc32(view[4:])}, at offset {offset}")
    if len(view) < _LENGTH_MIN[magic]:
        raise CorruptBatchError(f"message of {len(view)} bytes, magic {magic}, offset {offset}")
    timestamp = NO_TIMESTAMP
    position = 6
    if magic:
        (timestamp,) = _TIMESTAMP.unpack_from(view, 6)
        position = 14
    key, position = _bytes(view, position, offset)
    value, _ = _bytes(view, position, offset)
    return OldMessage(offset, magic, attributes, timestamp, key, value)


def _bytes(view: memoryview, position: int, offset: int) -> tuple[bytes | None, int]:
    try:
        (length,) = _LENGTH.unpack_from(view, position)
    except struct.error:
        raise CorruptBatchError(f"truncated message at offset {offset}") from None
    position += 4
    if length == -1:
        return None, position
    if not 0 <= length <= len(view) - position:
        raise CorruptBatchError(
            f"length {length} with {len(view) - position} bytes left, at offset {offset}"
        )
    return bytes(view[position : position + length]), position + length


def unwrap(wrapper: OldMessage, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Iterator[OldMessage]:
    """The messages of a wrapper, in order. Their offsets are as written, their timestamps final.

    Raises:
        CorruptBatchError: the value cannot be decompressed (to at most `bytes_max` bytes), or is
            no message set.
        InvalidRecordError: no messages, or one that is itself compressed or has another magic.
    """
    if wrapper.value is None:
        raise InvalidRecordError("a compressed message without value")
    appended_at = wrapper.timestamp if wrapper.has_append_time else None
    is_empty = True
    for message in iter_messages(_decompressed(wrapper, wrapper.value, bytes_max)):
        is_empty = False
        if message.magic != wrapper.magic:
            raise InvalidRecordError(
                f"message of magic {message.magic} in a wrapper of magic {wrapper.magic}"
            )
        if message.codec:
            raise InvalidRecordError("a compressed message inside a compressed message")
        if appended_at is None:
            yield message._replace(attributes=message.attributes & ~LOG_APPEND_TIME_BIT)
        else:
            yield message._replace(
                timestamp=appended_at, attributes=message.attributes | LOG_APPEND_TIME_BIT
            )
    if is_empty:
        raise InvalidRecordError("a compressed message without messages")


def _decompressed(wrapper: OldMessage, value: bytes, bytes_max: int) -> bytes:
    codec = wrapper.codec
    if codec > Codec.LZ4:
        raise InvalidRecordError(f"codec {codec} is not one of those of magic {wrapper.magic}")
    if codec == Codec.LZ4 and wrapper.magic == 0:
        value = with_lz4_checksum(value, broken=False)
    try:
        return decompress(codec, value, bytes_max)
    except DecompressionError as error:
        raise CorruptBatchError(error.message or "the codec's format is damaged") from None


def messages_of(
    message: OldMessage, bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> Iterator[OldMessage]:
    """The messages of a wrapper, or the message itself; offsets as written.

    Raises:
        CorruptBatchError, InvalidRecordError: as `unwrap`, and a wrapper's offset that does not
            fit. 0 always does: some versions of librdkafka write it.
    """
    if not message.codec:
        yield message
        return
    last = 0
    for inner in unwrap(message, bytes_max):
        last = inner.offset
        yield inner
    if message.magic >= _RELATIVE_SINCE and 0 != message.offset < last:
        raise InvalidRecordError(
            f"offset {message.offset} of a compressed message whose last message has {last}"
        )


def iter_records(message: OldMessage, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
    """Each record of a message or of a wrapper's messages, with its offset in the log.

    Raises:
        CorruptBatchError, InvalidRecordError: as `messages_of`.
    """
    base = 0
    if message.codec and message.magic >= _RELATIVE_SINCE and message.offset:
        # The offset of the last message is found first: a second pass takes no memory.
        for inner in messages_of(message, bytes_max):
            base = message.offset - inner.offset
    for inner in messages_of(message, bytes_max):
        yield Record(inner.key, inner.value, inner.timestamp, (), base + inner.offset)


# --------------------------------------------------------------------------------- writing


def append_message(out: bytearray, message: OldMessage) -> None:
    """Write one message at the end of `out`."""
    body = bytearray(4)
    if message.magic:
        body += _HEAD_V1(message.magic, message.attributes, message.timestamp)
    else:
        body += _HEAD_V0(message.magic, message.attributes)
    for data in (message.key, message.value):
        if data is None:
            body += _NULL
        else:
            body += _LENGTH.pack(len(data))
            body += data
    with memoryview(body) as view:
        _CHECKSUM.pack_into(body, 0, crc32(view[4:]))
    out += _OFFSET_SIZE.pack(message.offset, len(body))
    out += body


def write_messages(
    records: Iterable[Record],
    *,
    magic: int,
    codec: Codec = Codec.NONE,
    append_time_ms: int | None = None,
) -> bytearray:
    """Write records, which have their offsets, as messages or, with a codec, as one wrapper.

    With `append_time_ms` the timestamp type is LogAppendTime. Headers are dropped: these formats
    have none. Without records nothing is written.
    """
    attributes = LOG_APPEND_TIME_BIT if magic and append_time_ms is not None else 0
    is_relative = codec and magic >= _RELATIVE_SINCE
    out = bytearray()
    first: int | None = None
    last = 0
    max_timestamp = NO_TIMESTAMP
    for record in records:
        last = record.offset
        if first is None:
            first = last
        timestamp = record.timestamp if append_time_ms is None else append_time_ms
        max_timestamp = max(max_timestamp, timestamp)
        append_message(
            out,
            OldMessage(
                last - first if is_relative else last,
                magic,
                attributes,
                timestamp if magic else NO_TIMESTAMP,
                record.key,
                record.value,
            ),
        )
    if first is None or not codec:
        return out
    value = compress(codec, out)
    if codec is Codec.LZ4 and magic == 0:
        value = with_lz4_checksum(value, broken=True)
    timestamp = max_timestamp if magic else NO_TIMESTAMP
    wrapped = bytearray()
    append_message(wrapped, OldMessage(last, magic, attributes | codec, timestamp, None, value))
    return wrapped


# ------------------------------------------------------------------- lz4 of magic 0


def with_lz4_checksum(frame: bytes, *, broken: bool) -> bytes:
    """The frame with the header checksum that magic 0 has (`broken`), or with the correct one.

    Bytes that are no lz4 frame are returned as they are.
    """
    if not frame.startswith(_LZ4_MAGIC) or len(frame) <= len(_LZ4_MAGIC):
        return frame
    flags = frame[len(_LZ4_MAGIC)]
    at = 6 + (8 if flags & _LZ4_SIZE_BIT else 0) + (4 if flags & _LZ4_DICTIONARY_BIT else 0)
    if len(frame) <= at:
        return frame
    covered = frame[:at] if broken else frame[len(_LZ4_MAGIC) : at]
    return frame[:at] + bytes(((_xxh32(covered) >> 8) & 0xFF,)) + frame[at + 1 :]


_MASK: Final = 0xFFFFFFFF
_PRIMES: Final = (2654435761, 2246822519, 3266489917, 668265263, 374761393)


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & _MASK


def _xxh32(data: bytes) -> int:
    """XXH32 with seed 0, of a few bytes (xxHash specification 0.1.1)."""
    first, second, third, fourth, fifth = _PRIMES
    position = 0
    if len(data) >= 16:
        lanes = [(first + second) & _MASK, second, 0, -first & _MASK]
        while position <= len(data) - 16:
            for lane in range(4):
                word = int.from_bytes(data[position : position + 4], "little")
                lanes[lane] = _rotate((lanes[lane] + word * second) & _MASK, 13) * first & _MASK
                position += 4
        digest = sum(_rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
    else:
        digest = fifth
    digest = digest + len(data) & _MASK
    while position <= len(data) - 4:
        word = int.from_bytes(data[position : position + 4], "little")
        digest = _rotate((digest + word * third) & _MASK, 17) * fourth & _MASK
        position += 4
    for byte in data[position:]:
        digest = _rotate((digest + byte * fifth) & _MASK, 11) * first & _MASK
    digest = (digest ^ digest >> 15) * second & _MASK
    digest = (digest ^ digest >> 13) * third & _MASK
    return digest ^ digest >> 16
