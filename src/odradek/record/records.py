"""Decodes and encodes the records of a batch.

    varint   length of the rest
    i8       attributes, unused
    varlong  timestamp minus the batch's base timestamp
    varint   offset minus the batch's base offset
    varint   key length (-1: null), key
    varint   value length (-1: null), value
    varint   header count; for each: varint key length, key, varint value length (-1: null), value

Varints are zig-zag. A record takes about 2 us to decode and 2 us to encode, so the produce and
fetch path does not use this module: it is for coordinators' logs, compaction, tools and thorough
checks. Everything may come from a client, so every length is compared with the bytes that are
left, and corrupt input raises `InvalidRecordError` only.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from odradek.model.errors import ApiError, ErrorCode
from odradek.record.batch import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    OVERHEAD_BYTES,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Bytes,
    TimestampType,
    read_header,
    sign,
)
from odradek.record.compression import (
    DECOMPRESSED_BYTES_MAX,
    DEFAULT_LEVELS,
    Codec,
    Levels,
    compress,
    decompress,
)

_VARINT_SHIFT_MAX: Final = 28
VARLONG_SHIFT_MAX: Final = 63


class InvalidRecordError(ApiError):
    """A batch's records do not match its header, or break a rule of their topic."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)


class Record(NamedTuple):
    """One record. A header's key that is not UTF-8 stays unchanged by decoding and encoding."""

    key: bytes | None
    value: bytes | None
    timestamp: int = NO_TIMESTAMP
    headers: tuple[tuple[str, bytes | None], ...] = ()
    offset: int = -1  # -1 in a call of `build_batch`: the next offset


# The positions of a record's parts, for callers that copy only some: timestamp delta,
# offset delta, key start, key length (-1: null), value start, value length (-1: null),
# headers start, headers count.
Span = tuple[int, int, int, int, int, int, int, int]


# --------------------------------------------------------------------------------- decoding


def iter_records(
    batch: Bytes, *, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> Iterator[Record]:
    """Every record of the first batch in `batch`.

    Raises:
        InvalidRecordError, CorruptBatchError, DecompressionError: the batch is corrupt.
    """
    header = read_header(batch)
    if header.record_count == 0:
        return  # compaction may keep the header alone
    yield from records_in(records_bytes(batch, header, decompressed_bytes_max), header)


def records_in(body: bytes, header: BatchHeader) -> Iterator[Record]:
    """Every record of a batch with this header, from its decompressed records.

    Raises:
        InvalidRecordError: they are not exactly the header's number of well-formed records.
    """
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME_BIT else None
    for span in iter_spans(body, header.record_count):
        delta, offset_delta, key, key_length, value, value_length, headers, headers_count = span
        timestamp = base_timestamp + delta if append_time is None else append_time
        yield Record(
            None if key_length < 0 else body[key : key + key_length],
            None if value_length < 0 else body[value : value + value_length],
            timestamp,
            _read_headers(body, headers, headers_count) if headers_count else (),
            base_offset + offset_delta,
        )


def records_bytes(
    batch: Bytes, header: BatchHeader, bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> bytes:
    """The records of the batch, decompressed.

    Raises:
        InvalidRecordError: `batch` has fewer bytes than the header's length.
        DecompressionError: corrupt, or more than `bytes_max` bytes.
    """
    size_bytes = header.size_bytes
    if not HEADER_BYTES <= size_bytes <= len(batch):
        raise InvalidRecordError(f"batch of {size_bytes} bytes in {len(batch)}")
    with memoryview(batch) as view:
        return decompress(header.codec, view[HEADER_BYTES:size_bytes], bytes_max)


def iter_spans(body: bytes, count: int) -> Iterator[Span]:  # noqa: C901, PLR0912, PLR0915
    """Iterate over decompressed records.

    Varints of one or two bytes, the usual case, are decoded inline and not by a call each:
    compacted topics are checked at every produce request, and this halves the time.

    Raises:
        InvalidRecordError: they are not exactly `count` well-formed records.
    """
    position = 0
    index = -1
    size = len(body)
    try:
        for index in range(count):
            raw = body[position]
            position += 1
            if raw > 0x7F:
                high = body[position]
                position += 1
                raw += (high << 7) - 0x80
                if high > 0x7F:
                    raw, position = raw_varint(body, position - 2, _VARINT_SHIFT_MAX)
            end = position + ((raw >> 1) ^ -(raw & 1))
            raw = body[position + 1]  # after the attributes
            position += 2
            if raw > 0x7F:
                high = body[position]
                position += 1
                raw += (high << 7) - 0x80
                if high > 0x7F:
                    raw, position = raw_varint(body, position - 2, VARLONG_SHIFT_MAX)
            timestamp_delta = (raw >> 1) ^ -(raw & 1)
            raw = body[position]
            position += 1
            if raw > 0x7F:
                high = body[position]
                position += 1
                raw += (high << 7) - 0x80
                if high > 0x7F:
                    raw, position = raw_varint(body, position - 2, _VARINT_SHIFT_MAX)
            offset_delta = (raw >> 1) ^ -(raw & 1)
            raw = body[position]
            position += 1
            if raw > 0x7F:
                raw, position = raw_varint(body, position - 1, _VARINT_SHIFT_MAX)
            key_start, key_length = position, (raw >> 1) ^ -(raw & 1)
            if key_length > 0:
                position += key_length
            raw = body[position]
            position += 1
            if raw > 0x7F:
                high = body[position]
                position += 1
                raw += (high << 7) - 0x80
                if high > 0x7F:
                    raw, position = raw_varint(body, position - 2, _VARINT_SHIFT_MAX)
            value_start, value_length = position, (raw >> 1) ^ -(raw & 1)
            if value_length > 0:
                position += value_length
            raw = body[position]
            position += 1
            if raw > 0x7F:
                raw, position = raw_varint(body, position - 1, _VARINT_SHIFT_MAX)
            headers_start, headers_count = position, (raw >> 1) ^ -(raw & 1)
            if headers_count:
                position = _skip_headers(body, position, headers_count)
            if position != end or end > size or key_length < -1 or value_length < -1:
                raise InvalidRecordError(
                    f"record {index} of {count}: key length {key_length}, value length "
                    f"{value_length}, {headers_count} headers; ends at {position}, not {end}"
                )
            yield (
                timestamp_delta,
                offset_delta,
                key_start,
                key_length,
                value_start,
                value_length,
                headers_start,
                headers_count,
            )
    except IndexError:
        raise InvalidRecordError(f"record {index} of {count} is truncated") from None
    if position != size:
        raise InvalidRecordError(f"{size - position} bytes after the last of {count} records")


def _skip_headers(body: bytes, position: int, count: int) -> int:
    # Each takes two bytes at least, so a huge count fails at the end of the bytes.
    if count < 0:
        raise InvalidRecordError(f"header count {count}")
    for _ in range(count):
        length, position = _varint(body, position)
        if length < 0:
            raise InvalidRecordError(f"header key of length {length}")
        position += length
        length, position = _varint(body, position)
        if length < -1:
            raise InvalidRecordError(f"header value of length {length}")
        position += max(length, 0)
    return position


def _read_headers(body: bytes, position: int, count: int) -> tuple[tuple[str, bytes | None], ...]:
    headers = []
    for _ in range(count):
        length, position = _varint(body, position)
        key = body[position : position + length].decode("utf-8", "surrogateescape")
        position += length
        length, position = _varint(body, position)
        headers.append((key, None if length < 0 else body[position : position + length]))
        position += max(length, 0)
    return tuple(headers)


def _varint(body: bytes, position: int, shift_max: int = _VARINT_SHIFT_MAX) -> tuple[int, int]:
    """The number at `position`, and the position after it; IndexError past the end."""
    raw, position = raw_varint(body, position, shift_max)
    return (raw >> 1) ^ -(raw & 1), position


def raw_varint(body: bytes, position: int, shift_max: int) -> tuple[int, int]:
    """The number at `position` before zig-zag decoding, and the position after it.

    Raises:
        IndexError: the varint is truncated.
        InvalidRecordError: the varint is too long.
    """
    raw = shift = 0
    while True:
        byte = body[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return raw, position
        shift += 7
        if shift > shift_max:
            raise InvalidRecordError(f"varint longer than {shift_max // 7 + 1} bytes")


# --------------------------------------------------------------------------------- encoding


def build_batch(  # noqa: PLR0913 - the fields of a batch, each by its name
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    levels: Levels = DEFAULT_LEVELS,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    leader_epoch: int = NO_LEADER_EPOCH,
    append_time_ms: int = NO_TIMESTAMP,
    last_offset: int | None = None,
    delete_horizon_ms: int | None = None,
) -> bytes:
    """Build one batch.

    A record without an offset gets the one after its predecessor's. Compaction, which leaves gaps,
    gives the offsets, and `last_offset` if the last record was removed; `delete_horizon_ms` then
    replaces the base timestamp. `append_time_ms` is the timestamp of all records of a
    LogAppendTime batch.
    """
    body = bytearray()
    offset = base_offset - 1
    base_timestamp = delete_horizon_ms
    max_timestamp = NO_TIMESTAMP
    count = 0
    append_time = timestamp_type is TimestampType.LOG_APPEND_TIME
    for record in records:
        offset = record.offset if record.offset >= 0 else offset + 1
        if base_timestamp is None:
            base_timestamp = record.timestamp
        max_timestamp = max(max_timestamp, record.timestamp)
        _append_record(body, record, record.timestamp - base_timestamp, offset - base_offset)
        count += 1
    if append_time:
        max_timestamp = append_time_ms
    attributes = (
        (codec if count else Codec.NONE)
        | (LOG_APPEND_TIME_BIT if append_time else 0)
        | (TRANSACTIONAL_BIT if transactional else 0)
        | (CONTROL_BIT if control else 0)
        | (DELETE_HORIZON_BIT if delete_horizon_ms is not None else 0)
    )
    header = BatchHeader(
        base_offset=base_offset,
        length=0,  # length and checksum are set by `assemble`
        crc=0,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        attributes=attributes,
        last_offset_delta=(offset if last_offset is None else last_offset) - base_offset,
        base_timestamp=NO_TIMESTAMP if base_timestamp is None else base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=count,
    )
    return bytes(assemble(header, compress(codec, body, levels) if count else body))


def assemble(header: BatchHeader, body: Bytes) -> bytearray:
    """A batch of this header and these compressed records, with length and checksum set."""
    length = HEADER_BYTES - OVERHEAD_BYTES + len(body)
    batch = bytearray(HEADER.pack(*header._replace(length=length)))
    batch += body
    sign(batch)
    return batch


def _append_record(out: bytearray, record: Record, timestamp_delta: int, offset_delta: int) -> None:
    body = bytearray(1)
    _append_varint(body, timestamp_delta)
    _append_varint(body, offset_delta)
    _append_bytes(body, record.key)
    _append_bytes(body, record.value)
    _append_varint(body, len(record.headers))
    for key, value in record.headers:
        _append_bytes(body, key.encode("utf-8", "surrogateescape"))
        _append_bytes(body, value)
    _append_varint(out, len(body))
    out += body


def _append_bytes(out: bytearray, data: bytes | None) -> None:
    if data is None:
        out.append(1)  # zig-zag of -1
    else:
        _append_varint(out, len(data))
        out += data


def _append_varint(out: bytearray, value: int) -> None:
    zigzag = (value << 1) ^ (value >> 63)
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
