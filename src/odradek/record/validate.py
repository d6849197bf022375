"""What a leader checks before it appends, and what it sets; what a follower checks.

A leader looks at every produced batch:

    one batch, whole, of magic 2, base offset 0             INVALID_RECORD, CORRUPT_MESSAGE
    not above `max.message.bytes`                           MESSAGE_TOO_LARGE
    the checksum                                            CORRUPT_MESSAGE
    count = last offset delta + 1 > 0; no marker; a         INVALID_RECORD
        producer id with a sequence, a transaction with
        a producer id
    a codec that we know, zstd only from Produce v7 on      UNSUPPORTED_COMPRESSION_TYPE
    not LogAppendTime (that is the broker's to set)         INVALID_TIMESTAMP

It looks at the records inside only where the topic's rules depend on them: a compacted topic
(every record needs a key: the cleaner relies on it), limits on timestamps, or
`log.validate.records=full`. Apache Kafka always looks. What is trusted otherwise is that the
records are well-formed, as many as the header says, in order, and that the header's max
timestamp is theirs: a producer that signs nonsense can make its own topic unreadable, as it
can by writing nonsense into the values. The reason is the price: a batch of 1,000 records of
100 bytes takes 5 us to check by its header, 4 of them the checksum, and 800 us to walk.

What a leader sets: the codec and its level where `compression.type` demands another one than
the producer's, timestamp type and max timestamp where the topic's is LogAppendTime, the max
timestamp where the walk found another one. Only a changed codec copies; otherwise the bytes
that came in are changed in place and handed on. Base offset and leader epoch are set by the
log as it appends.
"""

from dataclasses import dataclass, field
from struct import Struct
from typing import Final, NamedTuple

from odradek.model.errors import ApiError, ErrorCode
from odradek.record.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL_BIT,
    CRC_AT,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_BYTES,
    LENGTH_MIN,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    MAX_TIMESTAMP_AT,
    NO_TIMESTAMP,
    OVERHEAD_BYTES,
    TRANSACTIONAL_BIT,
    BatchHeader,
    CorruptBatchError,
    TimestampType,
    iter_batches,
    whole_batches_end,
)
from odradek.record.compression import (
    DECOMPRESSED_BYTES_MAX,
    DEFAULT_LEVELS,
    Codec,
    Levels,
    compress,
)
from odradek.record.crc32c import crc32c
from odradek.record.records import InvalidRecordError, assemble, iter_spans, records_bytes

NO_LIMIT_MS: Final = (1 << 63) - 1
# More of them would say nothing new and make a response of megabytes.
RECORD_ERRORS_MAX: Final = 1000
PRODUCE_VERSION_WITH_ZSTD: Final = 7

_NOT_FROM_CLIENTS: Final = CONTROL_BIT | LOG_APPEND_TIME_BIT | DELETE_HORIZON_BIT
_INT64_MIN: Final = -(1 << 63)
_INT64_MAX: Final = (1 << 63) - 1
_new_tuple = tuple.__new__  # half of what `_make` costs
_CRC_AND_ATTRIBUTES: Final = Struct(">Ih")
_TIMESTAMP: Final = Struct(">q")


class RejectedBatchError(ApiError):
    """A batch that breaks a rule; with the records at fault where it was records."""

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        record_errors: tuple[tuple[int, str], ...] = (),
    ) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors  # (index in the batch, message)


@dataclass(slots=True, kw_only=True)
class ValidationRules:
    """What one topic's configuration means for the batches produced to it. Made once for it."""

    message_bytes_max: int = 1_048_588
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    timestamp_before_max_ms: int = NO_LIMIT_MS
    timestamp_after_max_ms: int = NO_LIMIT_MS
    compacted: bool = False
    codec: Codec | None = None  # None: the producer's
    levels: Levels = DEFAULT_LEVELS
    full: bool = False
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX
    walks_records: bool = field(init=False)
    rewrites: bool = field(init=False)

    def __post_init__(self) -> None:
        create_time = self.timestamp_type is TimestampType.CREATE_TIME
        limited = min(self.timestamp_before_max_ms, self.timestamp_after_max_ms) < NO_LIMIT_MS
        self.walks_records = self.full or self.compacted or (create_time and limited)
        self.rewrites = not create_time or self.codec is not None


class ValidatedBatch(NamedTuple):
    """A batch that may be appended, and its header, base offset still 0."""

    view: memoryview
    header: BatchHeader


def validate_produced(
    view: memoryview, rules: ValidationRules, *, now_ms: int, api_version: int
) -> ValidatedBatch:
    """Check what a client produced to one partition; a writable `view` may be changed.

    Raises:
        RejectedBatchError, CorruptBatchError, InvalidRecordError, DecompressionError: all of
            them `ApiError`, with the code that Kafka gives.
    """
    size_bytes = len(view)
    codec_max = Codec.ZSTD if api_version >= PRODUCE_VERSION_WITH_ZSTD else Codec.LZ4
    if size_bytes < HEADER_BYTES:
        raise _not_one_batch(view)
    header = _new_tuple(BatchHeader, HEADER.unpack_from(view))
    (
        base_offset,
        length,
        _,
        magic,
        crc,
        attributes,
        last_offset_delta,
        _,
        _,
        producer_id,
        _,
        base_sequence,
        record_count,
    ) = header
    if length + OVERHEAD_BYTES != size_bytes or magic != MAGIC or base_offset:
        view = _the_only_batch(view, header)
        size_bytes = len(view)
    if size_bytes > rules.message_bytes_max:
        raise _too_large(size_bytes, rules)
    if crc32c(view[ATTRIBUTES_AT:]) != crc:
        raise CorruptBatchError(
            f"checksum {crc}, computed {crc32c(view[ATTRIBUTES_AT:])}, in a batch of "
            f"{size_bytes} bytes"
        )
    if (
        record_count != last_offset_delta + 1
        or record_count <= 0
        or attributes & _NOT_FROM_CLIENTS
        or (base_sequence < 0 if producer_id >= 0 else attributes & TRANSACTIONAL_BIT)
        or attributes & CODEC_MASK > codec_max
    ):
        _check_fields(header, api_version)
    if rules.walks_records or rules.rewrites:
        return _walk_and_rewrite(view, header, rules, now_ms)
    return ValidatedBatch(view, header)


def validate_replicated(view: memoryview) -> tuple[int, list[BatchHeader]]:
    """Check what a leader sent to a follower: how many bytes are whole batches, their headers.

    The leader has checked the rest; what can go wrong between its disk and ours is damage.

    Raises:
        CorruptBatchError: a length, a magic, a checksum, or offsets that do not rise.
    """
    headers: list[BatchHeader] = []
    end = 0
    next_offset = -1
    for position, header in iter_batches(view):
        end = position + OVERHEAD_BYTES + header.length
        if crc32c(view[position + ATTRIBUTES_AT : end]) != header.crc:
            raise CorruptBatchError(f"checksum of the batch at offset {header.base_offset}")
        if header.base_offset < next_offset or header.last_offset_delta < 0:
            raise CorruptBatchError(
                f"batch of offsets {header.base_offset} to {header.last_offset} "
                f"where {next_offset} was due"
            )
        next_offset = header.base_offset + header.last_offset_delta + 1
        headers.append(header)
    return end, headers


# ---------------------------------------------------------------------- why it is refused


def _not_one_batch(view: memoryview) -> ApiError:
    whole_batches_end(view)  # says so if there is a length that no batch has
    return InvalidRecordError(f"no whole record batch in {len(view)} bytes")


def _the_only_batch(view: memoryview, header: BatchHeader) -> memoryview:
    """The batch that `view` begins with. What follows may be the start of another, torn."""
    if header.length < LENGTH_MIN:
        raise _not_one_batch(view)
    if header.magic in (0, 1):
        raise InvalidRecordError(f"message format v{header.magic}; only v{MAGIC} is accepted")
    if header.magic != MAGIC or header.size_bytes < HEADER_BYTES:
        raise CorruptBatchError(f"magic {header.magic}, length {header.length}: no batch")
    if header.size_bytes > len(view):
        raise _not_one_batch(view)
    if whole_batches_end(view) != header.size_bytes:
        raise InvalidRecordError("more than one record batch for a partition")
    if header.base_offset != 0:
        raise InvalidRecordError(f"base offset {header.base_offset}; producers set 0")
    return view[: header.size_bytes]


def _too_large(size_bytes: int, rules: ValidationRules) -> ApiError:
    return RejectedBatchError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"record batch of {size_bytes} bytes; max.message.bytes={rules.message_bytes_max}",
    )


def _check_fields(header: BatchHeader, api_version: int) -> None:
    if header.last_offset_delta < 0:
        raise InvalidRecordError(f"last offset delta {header.last_offset_delta}")
    if header.record_count != header.last_offset_delta + 1:
        raise InvalidRecordError(
            f"record count {header.record_count}, last offset delta {header.last_offset_delta}"
        )
    if header.is_control:
        raise InvalidRecordError("control records are not for clients to write")
    if header.attributes & DELETE_HORIZON_BIT:
        raise InvalidRecordError("a delete horizon is not for clients to set")
    if header.has_producer_id and header.base_sequence < 0:
        raise InvalidRecordError(
            f"producer id {header.producer_id} with sequence {header.base_sequence}"
        )
    if header.is_transactional and not header.has_producer_id:
        raise InvalidRecordError("a transactional batch without a producer id")
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        raise RejectedBatchError(
            ErrorCode.INVALID_TIMESTAMP, "timestamp type LogAppendTime is not for clients to set"
        )
    if header.codec > Codec.ZSTD:
        raise RejectedBatchError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"codec {header.codec} is none of 0-4"
        )
    if header.codec == Codec.ZSTD and api_version < PRODUCE_VERSION_WITH_ZSTD:
        raise RejectedBatchError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"zstd in Produce v{api_version}; from v{PRODUCE_VERSION_WITH_ZSTD} on",
        )


# ------------------------------------------------------------------------- the long way


def _walk_and_rewrite(
    view: memoryview, header: BatchHeader, rules: ValidationRules, now_ms: int
) -> ValidatedBatch:
    attributes, max_timestamp = header.attributes, header.max_timestamp
    recompresses = rules.codec is not None and rules.codec != header.codec
    body = b""
    if rules.walks_records or recompresses:
        body = records_bytes(view, header, rules.decompressed_bytes_max)
    if rules.walks_records:
        max_timestamp = _walk(body, header, rules, now_ms)
    if rules.timestamp_type is TimestampType.LOG_APPEND_TIME:
        attributes |= LOG_APPEND_TIME_BIT
        max_timestamp = now_ms
    if recompresses:
        assert rules.codec is not None
        attributes = attributes & ~CODEC_MASK | rules.codec
        changed = header._replace(attributes=attributes, max_timestamp=max_timestamp)
        view = memoryview(assemble(changed, compress(rules.codec, body, rules.levels)))
        if len(view) > rules.message_bytes_max:
            raise _too_large(len(view), rules)
    elif (attributes, max_timestamp) != (header.attributes, header.max_timestamp):
        view = _set_timestamp(view, attributes, max_timestamp)
    else:
        return ValidatedBatch(view, header)
    return ValidatedBatch(view, BatchHeader._make(HEADER.unpack_from(view)))


def _walk(body: bytes, header: BatchHeader, rules: ValidationRules, now_ms: int) -> int:
    """Look at every record; returns the largest timestamp."""
    base_timestamp = header.base_timestamp
    max_timestamp = NO_TIMESTAMP
    create_time = rules.timestamp_type is TimestampType.CREATE_TIME
    earliest = now_ms - rules.timestamp_before_max_ms if create_time else _INT64_MIN
    latest = now_ms + rules.timestamp_after_max_ms if create_time else _INT64_MAX
    keyless: list[int] = []
    mistimed: list[tuple[int, int]] = []
    for index, span in enumerate(iter_spans(body, header.record_count)):
        timestamp_delta, offset_delta, _, key_length, _, _, _, _ = span
        if offset_delta != index:
            raise InvalidRecordError(f"record {index} has offset delta {offset_delta}")
        timestamp = base_timestamp + timestamp_delta
        if not _INT64_MIN <= timestamp <= _INT64_MAX:
            raise InvalidRecordError(f"record {index} has timestamp {timestamp}")
        if key_length < 0 and rules.compacted:
            keyless.append(index)
        elif not earliest <= timestamp <= latest and timestamp != NO_TIMESTAMP:
            mistimed.append((index, timestamp))
        if timestamp > max_timestamp:  # noqa: PLR1730 - no call for each record
            max_timestamp = timestamp
    if keyless or mistimed:
        raise _records_rejected(keyless, mistimed, earliest, latest)
    return max_timestamp


def _records_rejected(
    keyless: list[int], mistimed: list[tuple[int, int]], earliest: int, latest: int
) -> RejectedBatchError:
    errors = [(index, "a compacted topic takes no record without a key") for index in keyless]
    errors += [
        (index, f"timestamp {timestamp} is not within [{earliest}, {latest}]")
        for index, timestamp in mistimed
    ]
    errors.sort()
    code = ErrorCode.INVALID_TIMESTAMP if mistimed else ErrorCode.INVALID_RECORD
    first, message = errors[0]
    return RejectedBatchError(
        code,
        f"{len(errors)} records are rejected, the first of them record {first}: {message}",
        tuple(errors[:RECORD_ERRORS_MAX]),
    )


def _set_timestamp(view: memoryview, attributes: int, max_timestamp: int) -> memoryview:
    if view.readonly:
        view = memoryview(bytearray(view))
    _TIMESTAMP.pack_into(view, MAX_TIMESTAMP_AT, max_timestamp)
    _CRC_AND_ATTRIBUTES.pack_into(view, CRC_AT, 0, attributes)
    checksum = crc32c(view[ATTRIBUTES_AT:])
    _CRC_AND_ATTRIBUTES.pack_into(view, CRC_AT, checksum, attributes)
    return view
