"""The offsets at which the segments of a log begin, by the times of their files: ListOffsets v0.

Clients of Kafka 0.8 to 0.10.0 look offsets up by time in this way. The time of a segment is that of
the last change of its file, so the answer is as coarse as the segments
(`UnifiedLog.legacyFetchOffsetsBefore`).
"""

from typing import Final

from odradek.log.log import Log
from odradek.model.clock import WallMs

LATEST: Final = -1
EARLIEST: Final = -2


def offsets_before(log: Log, when_ms: int, count: int, *, wall_ms: WallMs) -> list[int]:
    """At most `count` offsets, the highest first: those of segments not changed after `when_ms`.

    The log end offset counts as the begin of a segment that is changed now, unless the active
    segment is empty. For LATEST all offsets are taken, for EARLIEST the first one.

    Raises:
        StorageError: a file cannot be read.
    """
    offsets = [max(segment.base_offset, log.log_start_offset) for segment in log.segments]
    segments = list(log.segments)
    has_end = segments[-1].size > 0
    if has_end:
        offsets.append(log.leo)
    last = len(offsets) - 1
    if when_ms == EARLIEST:
        last = 0
    elif when_ms != LATEST:
        if has_end and wall_ms > when_ms:
            last -= 1
        if last < len(segments):
            while last >= 0 and segments[last].file.mtime_ms() > when_ms:
                last -= 1
    # sorted: all segments before the log start offset begin there
    return sorted(offsets[: last + 1][::-1][:count], reverse=True)


def up_to(offsets: list[int], high_watermark: int) -> list[int]:
    """What a consumer may see: the high watermark replaces all offsets above it."""
    visible = [offset for offset in offsets if offset <= high_watermark]
    return offsets if len(visible) == len(offsets) else [high_watermark, *visible]
