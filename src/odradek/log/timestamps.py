"""Offsets by timestamp (ListOffsets): the record, not just its batch.

The search uses the largest timestamp of each segment, then the time index, then the batch headers,
and at last the records of one batch. It begins at the log start offset: records below it are
deleted.
"""

from collections.abc import Sequence
from typing import NamedTuple

from odradek.log.segment import Segment
from odradek.record.batch import LOG_APPEND_TIME_BIT, BatchHeader
from odradek.record.records import iter_records


class StampedOffset(NamedTuple):
    """A record's timestamp and its offset."""

    timestamp: int
    offset: int


def first_at(
    segments: Sequence[Segment], timestamp: int, *, log_start_offset: int, wait: bool
) -> StampedOffset | None:
    """The first record with `timestamp` or a later one.

    Raises:
        ColdError: data is not in the page cache, and `wait` is false.
    """
    for segment in segments:
        found = segment.find_timestamp(timestamp, log_start_offset, wait=wait)
        if found is None:
            continue
        stamped = _record_at(segment, *found, timestamp, log_start_offset, wait=wait)
        if stamped is not None:
            return stamped
    return None


def largest(segments: Sequence[Segment], *, wait: bool) -> StampedOffset | None:
    """The first record with the largest timestamp of the log.

    Raises:
        ColdError: data is not in the page cache, and `wait` is false.
    """
    segment = max(segments, key=lambda segment: segment.max_timestamp)
    if segment.max_timestamp < 0:
        return None
    found = segment.find_timestamp(segment.max_timestamp, segment.base_offset, wait=wait)
    if found is None:
        return None
    return _record_at(segment, *found, segment.max_timestamp, segment.base_offset, wait=wait)


def _record_at(
    segment: Segment,
    position: int,
    header: BatchHeader,
    timestamp: int,
    starting_offset: int,
    *,
    wait: bool,
) -> StampedOffset | None:
    if header.attributes & LOG_APPEND_TIME_BIT:  # all records have the same timestamp
        return StampedOffset(header.max_timestamp, max(header.base_offset, starting_offset))
    for record in iter_records(segment.read(position, header.size_bytes, wait=wait)):
        if record.timestamp >= timestamp and record.offset >= starting_offset:
            return StampedOffset(record.timestamp, record.offset)
    return None
