"""What a leader checks and sets before it appends a batch; what a follower checks.

A leader checks every produced batch:

    one whole batch of magic 2, base offset 0               INVALID_RECORD, CORRUPT_MESSAGE
    at most `max.message.bytes`                             MESSAGE_TOO_LARGE
    the checksum                                            CORRUPT_MESSAGE
    count = last offset delta + 1 > 0; not a marker; a      INVALID_RECORD
        producer id with a sequence, a transaction with
        a producer id
    a producer epoch of at least -1                         INVALID_PRODUCER_EPOCH
    a known codec, zstd only from Produce v7 on             UNSUPPORTED_COMPRESSION_TYPE
    not LogAppendTime (only the broker sets it)             INVALID_TIMESTAMP
    a count that the bytes can hold, a body in the          INVALID_RECORD
        codec's format
    every record (`odradek.record.check`), decompressed     INVALID_RECORD, INVALID_TIMESTAMP

The last line applies with `log.validate.records=full`, the default. With `batch` the records are
checked where the topic's rules depend on them (a compacted topic, whose records need keys; limits
on timestamps; another codec), and where it costs almost nothing: uncompressed ones by the compiled
check. Otherwise it is assumed that the records are well-formed, that their number is the header's,
and that the header's max timestamp is right. tests/oracle/record/answers.txt has Apache Kafka's
answer to each kind of damage.

Small batches are validated at once. What may block the event loop for too long, a batch that
decompresses to megabytes or is compressed again with another codec, is returned unfinished
(`ValidatedBatch.cost_ns`), and `look_inside` is then called in a thread.

A leader sets: codec and level if `compression.type` is not the producer's codec; timestamp type and
max timestamp if the topic's is LogAppendTime; the max timestamp if the records have another one.
Only a changed codec copies the batch; otherwise the received bytes are changed in place. The log
sets base offset and leader epoch when it appends.

A follower checks length, magic, checksum, and that offsets increase (`validate_replicated`).
"""

from dataclasses import dataclass, field
from struct import Struct
from typing import Final, NamedTuple

from odradek.model.clock import WallMs
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
    NO_PRODUCER_EPOCH,
    OVERHEAD_BYTES,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Bytes,
    CorruptBatchError,
    TimestampType,
    iter_batches,
    whole_batches_end,
)
from odradek.record.check import (
    RECORD_BYTES_MIN,
    REJECTED_MAX,
    Check,
    Rejected,
    fastest_check,
    plain_check,
)
from odradek.record.compression import (
    DECOMPRESSED_BYTES_MAX,
    DEFAULT_LEVELS,
    Codec,
    DecompressedTooLargeError,
    Levels,
    begins_like,
    compress,
    decompress_gently,
    decompressed_bytes_at_most,
)
from odradek.record.crc32c import crc32c
from odradek.record.records import InvalidRecordError, assemble

NO_LIMIT_MS: Final = (1 << 63) - 1
RECORD_ERRORS_MAX: Final = REJECTED_MAX
UNLIMITED_NS: Final = 1 << 62
UNFINISHED: Final = -1
# Estimates: time of a codec for each byte of output, of the slowest codec for each byte that it
# compresses, of a check for each record.
_DECOMPRESS_NS: Final = {Codec.GZIP: 4, Codec.SNAPPY: 1, Codec.LZ4: 1, Codec.ZSTD: 1}
_COMPRESS_NS: Final = 50
_CHECK_NS: Final = 10
_PLAIN_CHECK_NS: Final = 800
PRODUCE_VERSION_WITH_ZSTD: Final = 7

_NOT_FROM_CLIENTS: Final = CONTROL_BIT | LOG_APPEND_TIME_BIT | DELETE_HORIZON_BIT
_INT64_MIN: Final = -(1 << 63)
_INT64_MAX: Final = (1 << 63) - 1
_new_tuple = tuple.__new__  # takes half the time of `_make`
_CRC_AND_ATTRIBUTES: Final = Struct(">Ih")
_TIMESTAMP: Final = Struct(">q")


class RejectedBatchError(ApiError):
    """A batch that breaks a rule, with the records at fault if it was records."""

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
    """The rules for batches produced to one topic, computed once from its configuration."""

    message_bytes_max: int = 1_048_588
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    timestamp_before_max_ms: int = NO_LIMIT_MS
    timestamp_after_max_ms: int = NO_LIMIT_MS
    compacted: bool = False
    codec: Codec | None = None  # None: keep the producer's
    levels: Levels = DEFAULT_LEVELS
    full: bool = True
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX
    check: Check = field(default_factory=fastest_check)
    check_ns: int = field(init=False)
    limits_timestamps: bool = field(init=False)
    checks: bool = field(init=False)  # whether uncompressed records are checked
    decompresses: bool = field(init=False)  # whether compressed ones are, too
    rewrites: bool = field(init=False)
    only_checks: bool = field(init=False)  # uncompressed records are checked, not changed: usual

    def __post_init__(self) -> None:
        create_time = self.timestamp_type is TimestampType.CREATE_TIME
        limited = min(self.timestamp_before_max_ms, self.timestamp_after_max_ms) < NO_LIMIT_MS
        is_plain = self.check is plain_check
        self.check_ns = _PLAIN_CHECK_NS if is_plain else _CHECK_NS
        self.limits_timestamps = create_time and limited
        self.decompresses = self.full or self.compacted or self.limits_timestamps
        self.checks = self.decompresses or not is_plain
        self.rewrites = not create_time or self.codec is not None
        self.only_checks = self.checks and not (self.rewrites or self.limits_timestamps)


class ValidatedBatch(NamedTuple):
    """A batch that may be appended, and its header, still with base offset 0.

    `cost_ns` estimates the time spent on its records. UNFINISHED: they are not checked yet, because
    it would take longer than allowed; `look_inside` has to be called before the append.
    """

    view: memoryview
    header: BatchHeader
    cost_ns: int


def validate_produced(  # noqa: C901 - on the produce path: no call that can be avoided
    view: memoryview,
    rules: ValidationRules,
    *,
    wall_ms: WallMs,
    api_version: int,
    spend_ns: int = UNLIMITED_NS,
) -> ValidatedBatch:
    """Validate a batch that a client produced; a writable `view` may be changed.

    At most about `spend_ns` is spent on its records; if they need more the result is UNFINISHED.

    Raises:
        RejectedBatchError, CorruptBatchError, InvalidRecordError, DecompressionError: all of
            them `ApiError`, with Kafka's error code.
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
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    ) = header
    if length + OVERHEAD_BYTES != size_bytes or magic != MAGIC or base_offset:
        view = _the_only_batch(view, header)
        size_bytes = len(view)
    if size_bytes > rules.message_bytes_max:
        raise too_large(size_bytes, rules)
    if crc32c(view[ATTRIBUTES_AT:]) != crc:
        raise CorruptBatchError(
            f"checksum {crc}, computed {crc32c(view[ATTRIBUTES_AT:])}, in a batch of "
            f"{size_bytes} bytes"
        )
    if (
        record_count != last_offset_delta + 1
        or record_count <= 0
        or attributes & _NOT_FROM_CLIENTS
        or (
            base_sequence < 0 or producer_epoch < NO_PRODUCER_EPOCH
            if producer_id >= 0
            else attributes & TRANSACTIONAL_BIT
        )
        or attributes & CODEC_MASK > codec_max
    ):
        _check_fields(header, api_version)
    if rules.only_checks and not attributes & CODEC_MASK:  # the usual case
        cost_ns = record_count * rules.check_ns
        if cost_ns <= spend_ns:
            try:
                largest, rejected, _ = rules.check(
                    view,
                    HEADER_BYTES,
                    record_count,
                    base_timestamp,
                    _INT64_MIN,
                    _INT64_MAX,
                    rules.compacted,
                )
            except ValueError as error:
                raise InvalidRecordError(str(error)) from None
            if not rejected and largest == max_timestamp:
                return _new_tuple(ValidatedBatch, (view, header, cost_ns))
    if rules.rewrites or (rules.decompresses if attributes & CODEC_MASK else rules.checks):
        return look_inside(view, header, rules, wall_ms=wall_ms, spend_ns=spend_ns)
    _check_outside(view, header, rules)
    return ValidatedBatch(view, header, 0)


def look_inside(
    view: memoryview,
    header: BatchHeader,
    rules: ValidationRules,
    *,
    wall_ms: WallMs,
    spend_ns: int = UNLIMITED_NS,
) -> ValidatedBatch:
    """Check the records of a batch with a valid header, and set what a leader sets.

    May run in a thread: nothing is changed but a writable `view`.

    Raises:
        RejectedBatchError, InvalidRecordError, DecompressionError: as `validate_produced`.
    """
    codec = header.attributes & CODEC_MASK
    recompresses = rules.codec is not None and rules.codec != codec
    byte_ns = _COMPRESS_NS if recompresses else 0
    body: Bytes = view
    start = HEADER_BYTES
    if codec and (recompresses or rules.decompresses):
        byte_ns += _DECOMPRESS_NS[Codec(codec)]
        bytes_max = min(rules.decompressed_bytes_max, spend_ns // byte_ns)
        if len(view) > bytes_max < rules.decompressed_bytes_max:
            return ValidatedBatch(view, header, UNFINISHED)
        try:
            body = decompress_gently(codec, view[HEADER_BYTES:], bytes_max)
        except DecompressedTooLargeError:
            if bytes_max < rules.decompressed_bytes_max:
                return ValidatedBatch(view, header, UNFINISHED)
            raise
        start = 0
    count = header.record_count
    cost_ns = 0
    max_timestamp = header.max_timestamp
    if body is view and codec:
        _check_outside(view, header, rules)
    else:
        if count * RECORD_BYTES_MIN > len(body) - start:
            raise InvalidRecordError(f"{count} records in {len(body) - start} bytes")
        cost_ns = len(body) * byte_ns + (count * rules.check_ns if rules.checks else 0)
        if cost_ns > spend_ns:
            return ValidatedBatch(view, header, UNFINISHED)
        if rules.checks:
            max_timestamp = _checked(body, start, header, rules, wall_ms)
    if not rules.rewrites and max_timestamp == header.max_timestamp:
        return ValidatedBatch(view, header, cost_ns)
    records = memoryview(body)[start:] if recompresses else None
    return _rewritten(view, header, rules, records, max_timestamp, wall_ms, cost_ns)


def validate_replicated(view: memoryview) -> tuple[int, list[BatchHeader]]:
    """Check what a leader sent to a follower. Returns the size of the whole batches, their headers.

    The leader has validated the records; this finds damage between its disk and the follower.

    Raises:
        CorruptBatchError: a wrong length, magic or checksum, or offsets that do not increase.
    """
    size = len(view)
    if size >= HEADER_BYTES:
        header = _new_tuple(BatchHeader, HEADER.unpack_from(view))
        if (
            header.length + OVERHEAD_BYTES == size
            and header.magic == MAGIC
            and header.base_offset >= 0
            and header.last_offset_delta >= 0
            and crc32c(view[ATTRIBUTES_AT:]) == header.crc
        ):
            return size, [header]  # the usual answer to a follower: one batch, and a sound one
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
                f"where {next_offset} was expected"
            )
        next_offset = header.base_offset + header.last_offset_delta + 1
        headers.append(header)
    return end, headers


# ---------------------------------------------------------------------- refusals


def _not_one_batch(view: memoryview) -> ApiError:
    whole_batches_end(view)  # raises if a length is too small for a batch
    return InvalidRecordError(f"no whole record batch in {len(view)} bytes")


def _the_only_batch(view: memoryview, header: BatchHeader) -> memoryview:
    """The first batch in `view`. What follows may be the start of another, incomplete one."""
    if header.length < LENGTH_MIN:
        raise _not_one_batch(view)
    if header.magic in (0, 1):
        raise InvalidRecordError(f"message format v{header.magic}; only v{MAGIC} is accepted")
    if header.magic != MAGIC or header.size_bytes < HEADER_BYTES:
        raise CorruptBatchError(f"magic {header.magic}, length {header.length}: not a batch")
    if header.size_bytes > len(view):
        raise _not_one_batch(view)
    if whole_batches_end(view) != header.size_bytes:
        raise InvalidRecordError("more than one record batch for a partition")
    if header.base_offset != 0:
        raise InvalidRecordError(f"base offset {header.base_offset}; producers have to send 0")
    return view[: header.size_bytes]


def too_large(size_bytes: int, rules: ValidationRules) -> ApiError:
    """The error for a batch above `max.message.bytes`."""
    return RejectedBatchError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"record batch of {size_bytes} bytes; max.message.bytes={rules.message_bytes_max}",
    )


def _check_fields(header: BatchHeader, api_version: int) -> None:  # noqa: C901 - a list of rules
    if header.last_offset_delta < 0:
        raise InvalidRecordError(f"last offset delta {header.last_offset_delta}")
    if header.record_count != header.last_offset_delta + 1:
        raise InvalidRecordError(
            f"record count {header.record_count}, last offset delta {header.last_offset_delta}"
        )
    if header.is_control:
        raise InvalidRecordError("clients cannot write control records")
    if header.attributes & DELETE_HORIZON_BIT:
        raise InvalidRecordError("clients cannot set a delete horizon")
    if header.has_producer_id and header.base_sequence < 0:
        raise InvalidRecordError(
            f"producer id {header.producer_id} with sequence {header.base_sequence}"
        )
    if header.has_producer_id and header.producer_epoch < NO_PRODUCER_EPOCH:
        raise RejectedBatchError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"producer id {header.producer_id} with epoch {header.producer_epoch}",
        )
    if header.is_transactional and not header.has_producer_id:
        raise InvalidRecordError("a transactional batch without a producer id")
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        raise RejectedBatchError(
            ErrorCode.INVALID_TIMESTAMP, "clients cannot set the timestamp type LogAppendTime"
        )
    if header.codec > Codec.ZSTD:
        raise RejectedBatchError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"codec {header.codec} is not one of 0-4"
        )
    if header.codec == Codec.ZSTD and api_version < PRODUCE_VERSION_WITH_ZSTD:
        raise RejectedBatchError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"zstd in Produce v{api_version}; from v{PRODUCE_VERSION_WITH_ZSTD} on",
        )


# ------------------------------------------------------------------------------ the records


def _check_outside(view: memoryview, header: BatchHeader, rules: ValidationRules) -> None:
    """Check records without decompressing them: whether the bytes can hold that many."""
    codec = header.attributes & CODEC_MASK
    size_bytes = len(view) - HEADER_BYTES
    if codec:
        if not begins_like(codec, view[HEADER_BYTES:]):
            raise InvalidRecordError(f"the records are not in {Codec(codec).name.lower()} format")
        size_bytes = min(
            decompressed_bytes_at_most(codec, size_bytes), rules.decompressed_bytes_max
        )
    if header.record_count * RECORD_BYTES_MIN > size_bytes:
        raise InvalidRecordError(f"{header.record_count} records in {size_bytes} bytes")


def _checked(
    body: Bytes, start: int, header: BatchHeader, rules: ValidationRules, wall_ms: WallMs
) -> int:
    """Check every record; returns the largest timestamp."""
    earliest, latest = _INT64_MIN, _INT64_MAX
    if rules.limits_timestamps:
        earliest = max(earliest, wall_ms - rules.timestamp_before_max_ms)
        latest = min(latest, wall_ms + rules.timestamp_after_max_ms)
    try:
        largest, count, listed = rules.check(
            body,
            start,
            header.record_count,
            header.base_timestamp,
            earliest,
            latest,
            rules.compacted,
        )
    except ValueError as error:
        raise InvalidRecordError(str(error)) from None
    if count:
        raise records_rejected(count, listed, earliest, latest)
    return largest


def records_rejected(
    count: int, listed: list[Rejected], earliest: int, latest: int
) -> RejectedBatchError:
    """The error for `count` records outside the topic's rules; `listed` are the first of them."""
    errors = tuple(
        (
            index,
            "a compacted topic requires a key in every record"
            if timestamp is None
            else f"timestamp {timestamp} is not within [{earliest}, {latest}]",
        )
        for index, timestamp in listed
    )
    is_mistimed = any(timestamp is not None for _, timestamp in listed)
    first, message = errors[0]
    return RejectedBatchError(
        ErrorCode.INVALID_TIMESTAMP if is_mistimed else ErrorCode.INVALID_RECORD,
        f"{count} records are rejected, the first is record {first}: {message}",
        errors,
    )


def _rewritten(  # noqa: PLR0913, PLR0917 - the parts of one thing
    view: memoryview,
    header: BatchHeader,
    rules: ValidationRules,
    records: memoryview | None,
    max_timestamp: int,
    wall_ms: WallMs,
    cost_ns: int,
) -> ValidatedBatch:
    """The batch with what the leader sets; `records` are compressed by the topic's codec."""
    attributes = header.attributes
    if rules.timestamp_type is TimestampType.LOG_APPEND_TIME:
        attributes |= LOG_APPEND_TIME_BIT
        max_timestamp = wall_ms
    if records is not None:
        assert rules.codec is not None
        attributes = attributes & ~CODEC_MASK | rules.codec
        if rules.codec is Codec.NONE and len(records) > rules.message_bytes_max:
            raise too_large(HEADER_BYTES + len(records), rules)
        changed = header._replace(attributes=attributes, max_timestamp=max_timestamp)
        view = memoryview(assemble(changed, compress(rules.codec, records, rules.levels)))
        if len(view) > rules.message_bytes_max:
            raise too_large(len(view), rules)
    elif (attributes, max_timestamp) != (header.attributes, header.max_timestamp):
        view = _set_timestamp(view, attributes, max_timestamp)
    else:
        return ValidatedBatch(view, header, cost_ns)
    return ValidatedBatch(view, BatchHeader._make(HEADER.unpack_from(view)), cost_ns)


def _set_timestamp(view: memoryview, attributes: int, max_timestamp: int) -> memoryview:
    if view.readonly:
        view = memoryview(bytearray(view))
    _TIMESTAMP.pack_into(view, MAX_TIMESTAMP_AT, max_timestamp)
    _CRC_AND_ATTRIBUTES.pack_into(view, CRC_AT, 0, attributes)
    checksum = crc32c(view[ATTRIBUTES_AT:])
    _CRC_AND_ATTRIBUTES.pack_into(view, CRC_AT, checksum, attributes)
    return view
