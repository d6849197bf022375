"""The usual produce request: one batch for one partition, read and checked in one pass.

Two functions compute the same, and property tests compare them: `read_one_batch` of the package
`odradek_fast`, where it is installed, and `plain_read_one_batch` here.

A request is usual if it is a Produce of version 3 to 12, with a client id, without a transactional
id or tagged fields, for one partition of one topic, with exactly one batch of format 2 that is
neither compressed nor transactional, and that passes every check of `odradek.record.validate` which
does not depend on the topic (the checksum only up to CHECKSUM_BYTES_MAX). For anything else the
answer is None: the general path reads it again, and names the error.
"""

import importlib
import struct
from collections.abc import Callable
from functools import cache
from struct import Struct
from typing import Final, NamedTuple, TypeAlias, cast

from odradek.model.errors import MalformedRequestError
from odradek.record.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    NO_PRODUCER_EPOCH,
    OVERHEAD_BYTES,
    TRANSACTIONAL_BIT,
)
from odradek.record.check import plain_check
from odradek.record.crc32c import crc32c
from odradek.wire.api_keys import ApiKey
from odradek.wire.messages.produce import FIRST_FLEXIBLE
from odradek.wire.primitives import unsigned_varint

FIRST_VERSION: Final = 3
LAST_VERSION: Final = 12
# A batch with more records is left to the general path, which limits the time of the loop.
RECORDS_MAX: Final = 1000
# The checksum of a larger batch is left to the caller, who has the faster library for that.
CHECKSUM_BYTES_MAX: Final = 4096
_START_BYTES: Final = 10
# API key, version, correlation id, length of the client id.
_START: Final = Struct(">hhih").unpack_from
# Length of the transactional id, acks, timeout, number of topics, length of the topic's name.
_TO_TOPIC_BYTES: Final = 14
_TO_TOPIC: Final = Struct(">hhiih").unpack_from
# Number of partitions, index, size of the batch.
_TO_BATCH_BYTES: Final = 12
_TO_BATCH: Final = Struct(">iii").unpack_from
# The same for flexible versions: tagged fields of the header come first, the size is a varint.
_TO_COMPACT_TOPIC_BYTES: Final = 10
_TO_COMPACT_TOPIC: Final = Struct(">BBhiBB").unpack_from
_TO_COMPACT_BATCH_BYTES: Final = 5
_TO_COMPACT_BATCH: Final = Struct(">Bi").unpack_from
_THREE: Final = Struct(">BBB").unpack_from
_SECOND_BYTE: Final = 0x80  # a varint of two bytes begins with so much or more
_BASE_TIME, _MAX_TIME, _COUNT = 7, 8, 12  # where a batch header has these fields
_UNUSUAL: Final = (
    CODEC_MASK | LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT | DELETE_HORIZON_BIT
)
_PRODUCE: Final = int(ApiKey.PRODUCE)
# Too few bytes, text that is not UTF-8, damaged records, a varint that is too long.
_MALFORMED: Final = (struct.error, IndexError, ValueError, MalformedRequestError)
_new = tuple.__new__  # half of what the constructor of a NamedTuple costs
_INT64_MIN: Final = -(1 << 63)
_INT64_MAX: Final = (1 << 63) - 1


class OneBatch(NamedTuple):
    """A usual produce request."""

    api_version: int
    correlation_id: int
    client_id: str
    acks: int
    timeout_ms: int
    topic: str
    partition: int
    batch: memoryview  # a part of the frame
    header: tuple[int, ...]  # the fields of its `BatchHeader`
    has_keys: bool  # every record has one


# The compiled function returns the fields of a OneBatch as a tuple.
ReadOneBatch: TypeAlias = Callable[[memoryview], OneBatch | None]


@cache
def fastest_read() -> ReadOneBatch:
    """The compiled function, or `plain_read_one_batch` if none (or an older one) is installed."""
    try:
        compiled = importlib.import_module("odradek_fast")
    except ImportError:
        return plain_read_one_batch
    return cast("ReadOneBatch", getattr(compiled, "read_one_batch", plain_read_one_batch))


def plain_read_one_batch(frame: memoryview) -> OneBatch | None:
    """The parts of a usual produce request; None for any other request, or one with a fault."""
    try:
        api_key, version, correlation_id, length = _START(frame, 0)
        if api_key != _PRODUCE or not FIRST_VERSION <= version <= LAST_VERSION or length < 0:
            return None
        body_at = _START_BYTES + length
        client_id = str(frame[_START_BYTES:body_at], "utf-8")
        parts = _flexible(frame, body_at) if version >= FIRST_FLEXIBLE else _plain(frame, body_at)
        if parts is None:
            return None
        acks, timeout_ms, topic, partition, batch = parts
        fields = HEADER.unpack_from(batch)
        if not _is_usual(fields, batch):
            return None
        count, base_time = fields[_COUNT], fields[_BASE_TIME]
        key = _key_of_one(batch) if count == 1 and base_time >= 0 else _UNKNOWN
        if key == _UNKNOWN:
            largest, keyless, _ = plain_check(
                batch, HEADER_BYTES, count, base_time, _INT64_MIN, _INT64_MAX, True
            )
            has_keys = not keyless
        else:
            largest, has_keys = base_time, key != _NULL
    except _MALFORMED:
        return None
    if largest != fields[_MAX_TIME]:
        return None
    return _new(
        OneBatch,
        (version, correlation_id, client_id, acks, timeout_ms, topic, partition, batch, fields,
         has_keys),
    )  # fmt: skip


_Parts: TypeAlias = tuple[int, int, str, int, memoryview]  # the fields `acks` to `batch`


def _plain(frame: memoryview, at: int) -> _Parts | None:
    """The body of a request up to version 8."""
    transactional_length, acks, timeout_ms, topics, length = _TO_TOPIC(frame, at)
    if transactional_length != -1 or topics != 1 or length < 0:
        return None
    at += _TO_TOPIC_BYTES
    end = at + length
    partitions, index, size = _TO_BATCH(frame, end)
    batch_at = end + _TO_BATCH_BYTES
    batch = frame[batch_at : batch_at + size]
    if partitions != 1 or size < HEADER_BYTES or len(batch) != size:
        return None
    return acks, timeout_ms, str(frame[at:end], "utf-8"), index, batch


def _flexible(frame: memoryview, at: int) -> _Parts | None:
    """The body of a request from version 9 on. Lengths and counts are encoded plus one."""
    tags, transactional_length, acks, timeout_ms, topics, length = _TO_COMPACT_TOPIC(frame, at)
    if tags or transactional_length or topics != 2 or not 0 < length < _SECOND_BYTE:
        return None
    at += _TO_COMPACT_TOPIC_BYTES
    end = at + length - 1
    partitions, index = _TO_COMPACT_BATCH(frame, end)
    size, batch_at = unsigned_varint(frame, end + _TO_COMPACT_BATCH_BYTES, "records")
    batch_end = batch_at + size - 1
    # Tagged fields of the partition, of the topic and of the request.
    if partitions != 2 or size <= HEADER_BYTES or any(_THREE(frame, batch_end)):
        return None
    return acks, timeout_ms, str(frame[at:end], "utf-8"), index, frame[batch_at:batch_end]


def _is_usual(fields: tuple[int, ...], batch: memoryview) -> bool:
    """Whether it is the header of a usual batch, and the checksum of a small one is right."""
    (
        base_offset, length, _, magic, crc, attributes, last_offset_delta, _, _,
        producer_id, producer_epoch, base_sequence, count,
    ) = fields  # fmt: skip
    size_bytes = len(batch)
    return (
        length + OVERHEAD_BYTES == size_bytes
        and magic == MAGIC
        and not base_offset
        and not attributes & _UNUSUAL
        and 0 < count <= RECORDS_MAX
        and count == last_offset_delta + 1
        and (producer_id < 0 or (base_sequence >= 0 and producer_epoch >= NO_PRODUCER_EPOCH))
        and (size_bytes > CHECKSUM_BYTES_MAX or crc32c(batch[ATTRIBUTES_AT:]) == crc)
    )


_RECORD: Final = Struct(">BBBB").unpack_from  # attributes, both deltas, length of the key
_NULL: Final = 1  # a length of -1, as a varint
_UNKNOWN: Final = -1
_THIRD_BYTE: Final = 0x4000  # a varint of three bytes stands for so much or more


def _key_of_one(batch: memoryview) -> int:
    """The length of the key, as a varint, if the batch has one plain record; else _UNKNOWN.

    A plain record has no headers, the timestamp of its batch and lengths of one or two bytes. This
    is a third of the time of `plain_check`, which reads all others.
    """
    size = len(batch)
    at = HEADER_BYTES + 1
    try:
        length = batch[HEADER_BYTES]
        if length >= _SECOND_BYTE:
            length += (batch[at] << 7) - _SECOND_BYTE
            at += 1
        end = at + (length >> 1)
        _, time_delta, offset_delta, key = _RECORD(batch, at)
        at += 4 + (key >> 1)
        value = batch[at]
        at += 1
        if value >= _SECOND_BYTE:
            value += (batch[at] << 7) - _SECOND_BYTE
            at += 1
        at += value >> 1
        is_plain = (
            at + 1 == end == size
            and not batch[at]  # headers
            and not (time_delta or offset_delta or length & 1)
            and (key == _NULL or (key < _SECOND_BYTE and not key & 1))
            and (value == _NULL or not value & 1)
            and length < _THIRD_BYTE
            and value < _THIRD_BYTE
        )
    except IndexError:
        return _UNKNOWN
    return key if is_plain else _UNKNOWN
