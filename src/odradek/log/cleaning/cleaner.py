"""Which log is cleaned next, up to which offset, and how cleaned segments replace the old ones.

                 clean            cleanable            not yet
    |----------------------|------------------|-----------------------|
    log start       first dirty offset    end of round               LEO

Not cleaned are the active segment, offsets above the last stable offset, and segments younger
than `min.compaction.lag.ms`. The log with the highest dirty ratio comes first, if the ratio is
above `min.cleanable.dirty.ratio`; a log whose oldest dirty segment is older than
`max.compaction.lag.ms` is cleaned whatever its ratio.

The cleaning itself (`odradek.log.cleaning.round`) runs in another process while the log is in use.
Its segments replace the old ones only if meanwhile the log was not truncated and none of its
segments was deleted, the leader epoch is the same, and the log is not being copied to another log
directory (the copy would take records that are not clean for clean ones): `Stamp` compares these.
Each replacement has the following steps, so that recovery after a crash finds either the old
segments or the new one (`odradek.log.recovery`):

    <base>.log.cleaned -> <base>.log.swap        the indexes before it
    old segments -> .deleted                     in offset order: a tombstone must not be removed
                                                 before the records it deletes
    <base>.log.swap -> <base>.log                the indexes before it

The first dirty offset moves when the directory with the new names is flushed. Otherwise: 1. The
offset moves. 2. The next round removes a tombstone as clean. 3. After a power failure the old
segments are back, and with them the record that the tombstone had deleted.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from odradek.log.cleaning.batches import LastOfProducer
from odradek.log.cleaning.round import (
    CLEANED,
    CleanedSegment,
    CleaningJob,
    CleaningOutcome,
    SourceSegment,
)
from odradek.log.deletion import remove_later
from odradek.log.disk import StorageError, changing
from odradek.log.log import Log
from odradek.log.log_config import NEVER
from odradek.log.segment import (
    DELETED,
    INDEX,
    LOG,
    SNAPSHOT,
    TIME_INDEX,
    TRANSACTION_INDEX,
    Segment,
    segment_stem,
)
from odradek.model.clock import WallMs

SWAP: Final = ".swap"
# A log without indexes gets new ones, indexes without a log are removed: the log is renamed last.
_LOG_LAST: Final = (INDEX, TIME_INDEX, TRANSACTION_INDEX, LOG)


class Cleanable(NamedTuple):
    """A log that could be cleaned, and what one round would read of it."""

    log: Log
    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    cleanable_bytes: int
    overdue_ms: int  # by how much its oldest dirty record exceeds `max.compaction.lag.ms`

    @property
    def ratio(self) -> float:
        """The dirty part of what can be cleaned (Kafka: dirty ratio)."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    @property
    def is_due(self) -> bool:
        """Whether a round is due, by dirty ratio or by `max.compaction.lag.ms`."""
        if not self.cleanable_bytes:
            return False
        return self.overdue_ms > 0 or self.ratio > self.log.config.min_cleanable_dirty_ratio


def cleanable(log: Log, *, wall_ms: WallMs) -> Cleanable:
    """What could be cleaned of a log now (Kafka: `LogCleanerManager.cleanableOffsets`)."""
    first_dirty = log.first_dirty_offset
    if not log.log_start_offset <= first_dirty <= log.leo:
        first_dirty = log.log_start_offset
    end = max(first_dirty, _first_uncleanable(log, first_dirty, wall_ms))
    # The whole segment with the first dirty offset counts as dirty.
    clean_bytes = cleanable_bytes = 0
    dirty_from = log.segments_from(first_dirty)[0].base_offset
    for segment in log.segments:
        if segment.base_offset >= end:
            break
        if segment.base_offset < dirty_from:
            clean_bytes += segment.size
        else:
            cleanable_bytes += segment.size
    overdue_ms = _overdue_ms(log, first_dirty, wall_ms)
    return Cleanable(log, first_dirty, end, clean_bytes, cleanable_bytes, overdue_ms)


def _first_uncleanable(log: Log, first_dirty: int, wall_ms: WallMs) -> int:
    """The base offset of the first segment that must not be cleaned yet."""
    active = log.active_segment
    limit = min(log.last_stable_offset, active.base_offset)
    oldest_ms = wall_ms - log.config.min_compaction_lag_ms
    if log.config.min_compaction_lag_ms > 0:
        for segment in log.segments_from(first_dirty):
            if segment is active or segment.base_offset >= limit:
                break
            if segment.max_timestamp > oldest_ms:
                limit = segment.base_offset
                break
    # Rounded down to a segment's base offset: a segment above the limit is not cleaned in part.
    for segment, following in zip(log.segments, log.segments[1:], strict=False):
        if following.base_offset > limit:
            return segment.base_offset
    return active.base_offset


def _overdue_ms(log: Log, first_dirty: int, wall_ms: WallMs) -> int:
    lag_ms = log.config.max_compaction_lag_ms
    if lag_ms >= NEVER:
        return 0
    dirty = (s for s in log.segments_from(first_dirty) if s is not log.active_segment)
    stamps = (segment.first_timestamp for segment in dirty)
    oldest_ms = min((stamp for stamp in stamps if stamp > 0), default=NEVER)
    return max(0, wall_ms - lag_ms - oldest_ms)


def dirtiest(found: Iterable[Cleanable]) -> Cleanable | None:
    """The log to clean next; None if no log is due."""
    return max((c for c in found if c.is_due), key=lambda c: c.ratio, default=None)


# ------------------------------------------------------------------------------- before and after


class Stamp(NamedTuple):
    """State of a log that has to be the same at the start and at the end of a round."""

    cuts: int
    leader_epoch: int
    directory: str

    @classmethod
    def of(cls, log: Log) -> "Stamp | None":
        """The state of the log now; None if the log is closed or deleted."""
        if log.removed:
            return None
        return cls(log.cuts, log.epochs.latest_epoch, log.directory)


def job_for(found: Cleanable, *, wall_ms: WallMs, map_bytes: int, read_bytes: int) -> CleaningJob:
    """Everything that a round needs to know of the log."""
    log, config = found.log, found.log.config
    segments = [s for s in log.segments if s.base_offset < found.end_offset]
    return CleaningJob(
        directory=log.directory,
        segments=tuple(SourceSegment(s.base_offset, s.size) for s in segments),
        first_dirty_offset=found.first_dirty_offset,
        end_offset=found.end_offset,
        aborted=tuple(log.aborted_transactions(segments[0].base_offset, found.end_offset)),
        producers={
            producer.producer_id: LastOfProducer(producer.last_offset, producer.producer_epoch)
            for producer in log.active_producers()
            if producer.last_offset < found.end_offset  # else its last batch is not cleaned
        },
        wall_ms=wall_ms,
        delete_retention_ms=config.delete_retention_ms,
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        map_bytes=map_bytes,
        read_bytes=read_bytes,
    )


def still_fits(log: Log, job: CleaningJob, outcome: CleaningOutcome) -> bool:
    """Whether the log still has the segments that were read, and the new ones were written."""
    standing = {segment.base_offset: segment.size for segment in log.segments}
    if any(standing.get(source.base_offset) != source.size for source in job.segments):
        return False
    disk = log.host.disk
    for cleaned in outcome.segments:
        path = segment_stem(log.directory, cleaned.sources[0]) + LOG + CLEANED
        if not disk.exists(path) or disk.file(path).size() != cleaned.size:
            return False
    return True


def replace(log: Log, cleaned: CleanedSegment) -> bool:
    """Replace the segments that were read by the cleaned one.

    Returns False, without doing anything, if the log does not have all of them any more.

    Raises:
        StorageError: an I/O error; the log directory has to go offline.
    """
    old = [s for s in log.segments if s.base_offset in cleaned.sources]
    if len(old) < len(cleaned.sources) or log.active_segment in old:
        return False
    with changing():
        _rename(log, old, cleaned)
    return True


def _rename(log: Log, old: Sequence[Segment], cleaned: CleanedSegment) -> None:
    disk, host = log.host.disk, log.host
    base_offset = cleaned.sources[0]
    stem = segment_stem(log.directory, base_offset)
    suffixes = [suffix for suffix in _LOG_LAST if disk.exists(stem + suffix + CLEANED)]
    for suffix in suffixes:
        disk.rename(stem + suffix + CLEANED, stem + suffix + SWAP)
    renamed = []
    for segment in old:
        host.index_cache.drop(segment)
        # The producer state at the first base offset stays the same.
        snapshot = () if segment.base_offset == base_offset else (SNAPSHOT,)
        for suffix in (*_LOG_LAST[::-1], *snapshot):
            path = segment.stem + suffix
            if disk.exists(path):
                disk.rename(path, path + DELETED)
                renamed.append(path + DELETED)
        segment.file.rest()
        segment.file.path += DELETED
    for suffix in suffixes:
        disk.rename(stem + suffix + SWAP, stem + suffix)
    created_ms = old[-1].created_ms
    log.replace_segments(
        old,
        Segment.existing(disk, log.directory, base_offset, size=cleaned.size, mtime_ms=created_ms),
    )
    remove_later(host, renamed, delay_ms=log.config.file_delete_delay_ms)


def make_durable(
    log: Log, outcome: CleaningOutcome, done: Callable[[StorageError | None], None]
) -> None:
    """Flush the new names; then the log is clean up to the end of the round."""
    cuts = log.cuts

    def named(error: StorageError | None) -> None:
        if error is None and not log.removed and cuts == log.cuts:
            log.first_dirty_offset = outcome.end_offset
        done(error)

    log.host.disk.flush([log.directory], named)
