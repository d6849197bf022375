"""The usual produce request: one batch for one partition, read and checked in one pass.

Two functions compute the same, and property tests compare them: `read_one_batch` of the package
`odradek_fast`, where it is installed, and `plain_read_one_batch` here, made of the functions that
read all other requests.

A request is usual if it is a Produce of version 3 to 12, with a client id, without a transactional
id or tagged fields, for one partition of one topic, with exactly one batch of format 2 that is
neither compressed nor transactional, and that passes every check of `odradek.record.validate` which
does not depend on the topic (the checksum only up to CHECKSUM_BYTES_MAX). For anything else the
answer is None: the general path reads it again, and names the error.
"""

import importlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache
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
    BatchHeader,
)
from odradek.record.check import fastest_check
from odradek.record.crc32c import crc32c
from odradek.wire.api_keys import ApiKey
from odradek.wire.header import RequestHeader, decode_request_header
from odradek.wire.messages.produce import FIRST_FLEXIBLE, decode_usual

FIRST_VERSION: Final = 3
LAST_VERSION: Final = 12
# A batch with more records is left to the general path, which limits the time of the loop.
RECORDS_MAX: Final = 1000
# The checksum of a larger batch is left to the caller, who has the faster library for that.
CHECKSUM_BYTES_MAX: Final = 4096
_HEADER_BYTES: Final = 10  # of a request header, without the client id and tagged fields
_UNUSUAL: Final = (
    CODEC_MASK | LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT | DELETE_HORIZON_BIT
)
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
    request = None
    with suppress(MalformedRequestError):
        header, position = decode_request_header(frame)
        if _is_usual(header, position):
            request = decode_usual(frame, position, header.api_version)
    if request is None or request.transactional_id is not None or len(request.topics) != 1:
        return None
    topic, partitions = request.topics[0]
    batch = partitions[0][1] if len(partitions) == 1 else None
    fields = _well_formed(batch) if isinstance(batch, memoryview) else None
    if fields is None or not isinstance(batch, memoryview) or header.client_id is None:
        return None
    try:
        largest, keyless, _ = fastest_check()(
            batch,
            HEADER_BYTES,
            fields.record_count,
            fields.base_timestamp,
            _INT64_MIN,
            _INT64_MAX,
            True,
        )
    except ValueError:
        return None
    if largest != fields.max_timestamp:
        return None
    return OneBatch(
        header.api_version,
        header.correlation_id,
        header.client_id,
        request.acks,
        request.timeout_ms,
        topic,
        partitions[0][0],
        batch,
        fields,
        not keyless,
    )


def _is_usual(header: RequestHeader, end: int) -> bool:
    """Whether it is the header of a usual request; one with tagged fields ends later."""
    if header.client_id is None or header.api_key != ApiKey.PRODUCE:
        return False
    is_flexible = header.api_version >= FIRST_FLEXIBLE
    return (
        FIRST_VERSION <= header.api_version <= LAST_VERSION
        and end == _HEADER_BYTES + len(header.client_id.encode()) + is_flexible
    )


def _well_formed(batch: memoryview) -> BatchHeader | None:
    """The header of a usual batch, if the checksum of a small one is right."""
    if len(batch) < HEADER_BYTES:
        return None
    fields = BatchHeader._make(HEADER.unpack_from(batch))
    is_usual = (
        fields.length + OVERHEAD_BYTES == len(batch)
        and fields.magic == MAGIC
        and not fields.base_offset
        and not fields.attributes & _UNUSUAL
        and 0 < fields.record_count <= RECORDS_MAX
        and fields.record_count == fields.last_offset_delta + 1
        and (
            fields.producer_id < 0
            or (fields.base_sequence >= 0 and fields.producer_epoch >= NO_PRODUCER_EPOCH)
        )
    )
    if not is_usual:
        return None
    is_checked = len(batch) <= CHECKSUM_BYTES_MAX
    return None if is_checked and crc32c(batch[ATTRIBUTES_AT:]) != fields.crc else fields
