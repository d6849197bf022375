"""Conversion between message sets (formats v0 and v1) and record batches (v2).

Up, when an old producer's messages are appended (Kafka's `LogValidator`): all messages of a set
become one batch, checked by the topic's rules. Down, when an old consumer reads (Kafka's
`RecordsUtil.downConvert`): each batch becomes messages, or one wrapper if it is compressed.

    control batches             left out: the old formats have no transactions
    zstd                        UNSUPPORTED_COMPRESSION_TYPE, if it is the first batch to convert
    headers                     left out
    records before the offset   left out, except in a compressed batch: clients skip them there
    batches that are old enough sent as they are

Both run record by record, at some microseconds each. A caller that runs them in a thread gives
`pause`, which is called about every half millisecond so that the event loop goes on beside it.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from odradek.model.clock import WallMs
from odradek.model.errors import ApiError, ErrorCode
from odradek.record.batch import (
    LAST_OFFSET_DELTA_AT,
    LENGTH_MIN,
    MAGIC,
    MAGIC_AT,
    NO_TIMESTAMP,
    OVERHEAD_BYTES,
    CorruptBatchError,
    TimestampType,
    base_offset_at,
    read_header,
    size_at,
    whole_batches_end,
)
from odradek.record.compression import Codec
from odradek.record.message_set import (
    LAST_MAGIC,
    OldMessage,
    iter_messages,
    iter_records,
    messages_of,
    write_messages,
)
from odradek.record.records import InvalidRecordError, Record, build_batch
from odradek.record.records import iter_records as iter_batch_records
from odradek.record.validate import (
    RECORD_ERRORS_MAX,
    RejectedBatchError,
    ValidatedBatch,
    ValidationRules,
    records_rejected,
    too_large,
)

# OldMessage sets of at most this size are converted on the event loop: in some two milliseconds, if
# they are not compressed.
SHORT_BYTES: Final = 16 << 10
# An estimate for each byte of a short set: what is measured would not be the same in each run.
CONVERT_NS: Final = 120
_RECORDS_BETWEEN_PAUSES: Final = 100

Pause = Callable[[], None]


def no_pause() -> None:
    """Go on at once."""


def _paced(records: Iterable[Record], pause: Pause) -> Iterator[Record]:
    for number, record in enumerate(records, 1):
        yield record
        if number % _RECORDS_BETWEEN_PAUSES == 0:
            pause()


# -------------------------------------------------------------------------------------- up


def is_short(view: memoryview) -> bool:
    """Whether a message set can be converted on the event loop."""
    if len(view) > SHORT_BYTES:
        return False
    return all(not message.codec for message in iter_messages(view))


def convert_up(
    view: memoryview, rules: ValidationRules, *, wall_ms: WallMs, pause: Pause = no_pause
) -> ValidatedBatch | None:
    """One batch of all messages of a set that a client produced; None if there are no messages.

    Its base offset is 0, and its records are checked by `rules`.

    Raises:
        RejectedBatchError, CorruptBatchError, InvalidRecordError: as `validate_produced`.
    """
    messages = _checked_messages(view, rules)
    if not messages:
        return None
    codec = Codec(max(message.codec for message in messages))
    checks = _Checks(rules, wall_ms)
    target = codec if rules.codec is None else rules.codec
    batch = build_batch(
        _paced(checks.passed(messages), pause),
        codec=target,
        levels=rules.levels,
        timestamp_type=rules.timestamp_type,
        append_time_ms=wall_ms,
    )
    checks.raise_rejected()
    if len(batch) > rules.message_bytes_max:
        raise too_large(len(batch), rules)
    # A copy that may be written: the log sets the offset in place.
    copy = bytearray(batch)
    return ValidatedBatch(memoryview(copy), read_header(copy), 0)


def _checked_messages(view: memoryview, rules: ValidationRules) -> list[OldMessage]:
    """The set's messages, wrappers as they are, if they may stand together."""
    messages: list[OldMessage] = []
    for message in iter_messages(view):
        messages.append(message)
        size_bytes = OVERHEAD_BYTES + 14 + 8 * message.magic
        size_bytes += len(message.key or b"") + len(message.value or b"")
        if size_bytes > rules.message_bytes_max:
            raise too_large(size_bytes, rules)
    if any(message.magic != messages[0].magic for message in messages):
        raise InvalidRecordError("messages of several formats in one set")
    if len(messages) > 1 and any(message.codec for message in messages):
        raise InvalidRecordError("more than one compressed message for a partition")
    if messages and messages[0].codec > Codec.LZ4:
        raise InvalidRecordError(f"codec {messages[0].codec} in a message of an old format")
    return messages


class _Checks:
    """Checks records by the rules of their topic while they are converted."""

    def __init__(self, rules: ValidationRules, wall_ms: WallMs) -> None:
        self._rules = rules
        self._earliest = wall_ms - rules.timestamp_before_max_ms
        self._latest = wall_ms + rules.timestamp_after_max_ms
        self._count = 0
        self._listed: list[tuple[int, int | None]] = []

    def passed(self, messages: list[OldMessage]) -> Iterator[Record]:
        """The records that break no rule."""
        rules = self._rules
        create_time = rules.timestamp_type is TimestampType.CREATE_TIME
        index = -1
        for wrapper in messages:
            for message in messages_of(wrapper, rules.decompressed_bytes_max):
                index += 1
                timestamp = message.timestamp
                if timestamp < NO_TIMESTAMP:
                    raise RejectedBatchError(
                        ErrorCode.INVALID_TIMESTAMP, f"negative timestamp {timestamp}"
                    )
                if rules.compacted and message.key is None:
                    self._reject(index, None)
                elif timestamp != NO_TIMESTAMP and create_time:
                    # As in Kafka, LogAppendTime as the type is accepted then, and has no effect.
                    if not self._earliest <= timestamp <= self._latest:
                        self._reject(index, timestamp)
                elif message.has_append_time:
                    self._reject(index, timestamp)
                if not self._count:
                    yield Record(message.key, message.value, timestamp)

    def _reject(self, index: int, timestamp: int | None) -> None:
        self._count += 1
        if len(self._listed) < RECORD_ERRORS_MAX:
            self._listed.append((index, timestamp))

    def raise_rejected(self) -> None:
        """Raise RejectedBatchError if a record was rejected."""
        if self._count:
            raise records_rejected(self._count, self._listed, self._earliest, self._latest)


# ------------------------------------------------------------------------------------ down


# Some 30 ms of the worker: small batches decompress to a hundred times their size.
RECORDS_MAX: Final = 5_000


class ConvertedDown(NamedTuple):
    """Messages for an old consumer."""

    messages: bytearray
    records: int  # how many were converted
    # After the last batch that was converted or left out; None: no whole batch.
    next_offset: int | None


def convert_down(
    view: memoryview, magic: int, first_offset: int, *, pause: Pause = no_pause
) -> ConvertedDown:
    """The batches in `view`, in the format of `magic` (0 or 1).

    The messages take at most the bytes of `view`, or those of the first batch, and end with the
    batch that reaches RECORDS_MAX. An incomplete last batch is left out.

    Raises:
        ApiError: UNSUPPORTED_COMPRESSION_TYPE, or damaged records, in the first batch.
    """
    out = bytearray()
    converted = 0
    next_offset: int | None = None
    position = 0
    end = whole_batches_end(view)
    while position < end and converted < RECORDS_MAX:
        batch = view[position : position + size_at(view, position)]
        position += len(batch)
        try:
            messages, count = _down(batch, magic, first_offset, pause)
        except ApiError:
            if out:
                break  # the consumer fetches from its offset next, and gets the error then
            raise
        if out and len(out) + len(messages) > len(view):
            break
        out += messages
        converted += count
        next_offset = _next_offset(batch)
    return ConvertedDown(out, converted, next_offset)


def _down(
    batch: memoryview, magic: int, first_offset: int, pause: Pause
) -> tuple[bytearray | memoryview, int]:
    batch_magic = batch[MAGIC_AT]
    if batch_magic <= magic:
        return batch, 0
    if batch_magic <= LAST_MAGIC:
        return _down_from_messages(batch, magic, first_offset, pause)
    if batch_magic != MAGIC:
        raise CorruptBatchError(f"magic {batch_magic}")
    header = read_header(batch)
    if header.is_control:
        return bytearray(), 0
    if header.codec == Codec.ZSTD:
        raise ApiError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd has no equivalent in the old formats"
        )
    records = iter_batch_records(batch)
    append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    return _written(
        records, magic, header.codec, header.max_timestamp if append_time else None,
        first_offset, pause,
    )  # fmt: skip


def _down_from_messages(
    message: memoryview, magic: int, first_offset: int, pause: Pause
) -> tuple[bytearray, int]:
    wrapper = next(iter_messages(message))
    records = iter_records(wrapper)
    appended_at = wrapper.timestamp if wrapper.has_append_time else None
    return _written(records, magic, wrapper.codec, appended_at, first_offset, pause)


def _written(
    records: Iterator[Record],
    magic: int,
    codec: int,
    append_time_ms: int | None,
    first_offset: int,
    pause: Pause,
) -> tuple[bytearray, int]:
    count = 0

    def counted() -> Iterator[Record]:
        nonlocal count
        for record in records:
            if codec or record.offset >= first_offset:
                count += 1
                yield record

    messages = write_messages(
        _paced(counted(), pause), magic=magic, codec=Codec(codec), append_time_ms=append_time_ms
    )
    return messages, count


def _next_offset(batch: memoryview) -> int:
    if batch[MAGIC_AT] < MAGIC:
        return base_offset_at(batch, 0) + 1
    delta = int.from_bytes(batch[LAST_OFFSET_DELTA_AT : LAST_OFFSET_DELTA_AT + 4], "big")
    return base_offset_at(batch, 0) + delta + 1


# --------------------------------------------------------------------- a log of an old broker

# Messages that are not compressed become batches of at most so many bytes and messages.
_GROUP_BYTES: Final = 16 << 10
_GROUP_MESSAGES: Final = 500


class Upgraded(NamedTuple):
    """Batches of format v2 with the offsets and timestamps of a part of an old log."""

    batches: bytearray
    taken: int  # the bytes that they are made of: up to the first incomplete or damaged message
    error: ApiError | None  # what is wrong after them; None: nothing, or an incomplete message


def upgrade(view: memoryview) -> Upgraded:
    """Convert a part of a log, of formats v0 and v1, to format v2; batches of v2 are copied."""
    out = bytearray()
    group: list[OldMessage] = []
    taken = grouped = position = 0
    error: ApiError | None = None
    try:
        end = whole_batches_end(view)
        while position < end:
            part = view[position : position + size_at(view, position)]
            if part[MAGIC_AT] == MAGIC:
                out += _batch_of(group)
                group, grouped, taken = [], 0, position
                out += part
            else:
                message = next(iter_messages(part))
                if not _fits(group, grouped, message):
                    out += _batch_of(group)
                    group, grouped, taken = [], 0, position
                group.append(message)
                grouped += len(part)
            position += len(part)
    except ApiError as damage:
        error = damage
    try:
        out += _batch_of(group)
        taken = position
    except ApiError as damage:
        error = damage
    return Upgraded(out, taken, error)


def holds_old_messages(view: memoryview) -> bool:
    """Whether a message of format v0 or v1 is among these batches, by the headers alone."""
    position, end = 0, len(view) - MAGIC_AT
    while position < end and size_at(view, position) >= OVERHEAD_BYTES + LENGTH_MIN:
        if view[position + MAGIC_AT] <= LAST_MAGIC:
            return True
        position += size_at(view, position)
    return False


def upgraded(view: memoryview) -> memoryview:
    """What a leader sent from a segment with messages of format v0 or v1, as batches of v2.

    Raises:
        ApiError: the first message is damaged.
    """
    found = upgrade(view)
    if found.error is not None and not found.batches:
        raise found.error
    return memoryview(found.batches)


def _fits(group: list[OldMessage], grouped: int, message: OldMessage) -> bool:
    """Whether a message can be in one batch with those of the group."""
    if not group:
        return True
    first, last = group[0], group[-1]
    return (
        not first.codec
        and not message.codec
        and grouped < _GROUP_BYTES
        and len(group) < _GROUP_MESSAGES
        and last.offset < message.offset < first.offset + _GROUP_OFFSETS
        and first.has_append_time == message.has_append_time
        and not (message.has_append_time and first.timestamp != message.timestamp)
    )


_GROUP_OFFSETS: Final = 1 << 30


def _batch_of(group: list[OldMessage]) -> bytes:
    if not group:
        return b""
    first = group[0]
    records = [record for message in group for record in iter_records(message)]
    append_time = first.has_append_time
    return build_batch(
        records,
        base_offset=records[0].offset,
        codec=Codec(first.codec),
        timestamp_type=(
            TimestampType.LOG_APPEND_TIME if append_time else TimestampType.CREATE_TIME
        ),
        append_time_ms=first.timestamp,
    )
