"""Retention: which segments are to be deleted. A rule on values.

The oldest segments are deleted first; the first one that stays keeps all later ones. No segment
is deleted that ends above the high watermark, so that the log start offset stays at or below it.
Deleted are, in this order:

    by log start   segments below the log start offset (DeleteRecords)
    by size        the oldest, while at least `retention.bytes` remain without it
    by age         those with a largest timestamp older than `retention.ms`; without timestamps
                   the file's modification time counts

The last two apply to topics with cleanup policy `delete`. If all segments are to be deleted, the
last one included, the caller rolls first, because a log always has a segment.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from odradek.log.log_config import LogConfig
from odradek.model.clock import WallMs


class RetentionCandidate(Protocol):
    """What the rule needs to know of a segment."""

    base_offset: int
    size: int

    @property
    def age_timestamp_ms(self) -> int:
        """The largest timestamp, or the file's modification time."""


class Expired(NamedTuple):
    """How many of the oldest segments are to be deleted, by reason."""

    by_log_start: int = 0
    by_size: int = 0
    by_age: int = 0

    @property
    def segments(self) -> int:
        """The number of segments for all reasons."""
        return self.by_log_start + self.by_size + self.by_age


def expired_segments(
    segments: Sequence[RetentionCandidate],
    config: LogConfig,
    *,
    leo: int,
    high_watermark: int,
    log_start_offset: int,
    wall_ms: WallMs,
) -> Expired:
    """Which of a log's segments, oldest first, are to be deleted now."""
    ends = [segment.base_offset for segment in segments[1:]] + [leo]
    free = 0  # number of segments below the high watermark
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
        oldest_ms = wall_ms - config.retention_ms
        while index < free and segments[index].age_timestamp_ms < oldest_ms:
            index += 1
    return Expired(by_log_start, by_size, index - by_size - by_log_start)
