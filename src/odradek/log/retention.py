"""Retention: which segments may go. A rule, on values.

The oldest segments go first, and the first that stays keeps all behind it. None goes that
reaches to the high watermark or above, so that the log never starts behind it. Due is

    by log start   what lies below the log start offset as a whole (DeleteRecords)
    by size        the oldest, as long as `retention.bytes` is left without it
    by age         what has no record younger than `retention.ms`, by its largest timestamp,
                   or by its file's where its records have none

in this order. The last two hold for topics of cleanup policy `delete`. When all segments are
due, the last among them, the caller rolls first, for a log always has one.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from odradek.log.log_config import LogConfig


class Candidate(Protocol):
    """What the rule has to know of a segment."""

    base_offset: int
    size: int

    @property
    def age_timestamp_ms(self) -> int:
        """The largest timestamp, or the file's."""


class Expired(NamedTuple):
    """How many of the oldest segments may go, and why."""

    by_log_start: int = 0
    by_size: int = 0
    by_age: int = 0

    @property
    def segments(self) -> int:
        """All of them."""
        return self.by_log_start + self.by_size + self.by_age


def expired_segments(
    segments: Sequence[Candidate],
    config: LogConfig,
    *,
    leo: int,
    high_watermark: int,
    log_start_offset: int,
    now_ms: int,
) -> Expired:
    """Which of a log's segments, oldest first, may go now."""
    ends = [segment.base_offset for segment in segments[1:]] + [leo]
    free = 0  # how many may go at all
    while free < len(segments) and ends[free] <= high_watermark:
        free += 1
    if free == len(segments) and not segments[-1].size:
        free -= 1

    index = 0
    while index < free and index + 1 < len(segments) and ends[index] <= log_start_offset:
        index += 1
    by_log_start = index
    if not config.is_deleted:
        return Expired(by_log_start)

    if config.retention_bytes >= 0:
        surplus = sum(segment.size for segment in segments[index:]) - config.retention_bytes
        while index < free and surplus >= segments[index].size:
            surplus -= segments[index].size
            index += 1
    by_size = index - by_log_start

    if config.retention_ms >= 0:
        oldest_ms = now_ms - config.retention_ms
        while index < free and segments[index].age_timestamp_ms < oldest_ms:
            index += 1
    return Expired(by_log_start, by_size, index - by_size - by_log_start)
