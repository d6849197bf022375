"""How files of a log are removed: renamed at once, removed from disk after a delay.

The suffix `.deleted` takes a file out of the log, also for a start after a crash; its bytes stay
for `file.delete.delay.ms`, because a fetch may still be reading them.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from odradek.log.checkpoints import OFFSET_MAX
from odradek.log.disk import Disk, Done, StorageError
from odradek.log.log_config import LogHost
from odradek.log.log_state import LogState
from odradek.log.repair.cuts import CutKind, LogCut
from odradek.log.segment import DELETED, SEGMENT_SUFFIXES, SNAPSHOT, Segment, segment_stem

FLUSH_ATTEMPTS: Final = 10
FLUSH_AGAIN_S: Final = 0.3


def remove_segments(host: LogHost, segments: Sequence[Segment], *, delay_ms: int) -> None:
    """Remove segments from their log, in this order, with the snapshots at their base offsets."""
    renamed = []
    for segment in segments:
        host.index_cache.drop(segment)
        for suffix in (*SEGMENT_SUFFIXES, SNAPSHOT):
            path = segment.stem + suffix
            if host.disk.exists(path):
                host.disk.rename(path, path + DELETED)
                renamed.append(path + DELETED)
        segment.file.rest()
        segment.file.path += DELETED
    if renamed:
        remove_later(host, renamed, delay_ms=delay_ms)


def drop_end(host: LogHost, segments: Sequence[Segment], *, delay_ms: int) -> None:
    """Remove the last segments of a log durably, before the segment in front is truncated.

    1. The segment in front is truncated. 2. After a power failure the removed segments are back.
    3. The log has a hole that looks like one left by compaction. It is rare enough to wait for
    the disk.
    """
    remove_segments(host, segments[::-1], delay_ms=delay_ms)
    host.disk.flush_now([segments[0].stem.rpartition("/")[0]])


def report_set_aside(log: LogState, reason: str) -> None:
    """Report that a log's directory has got the name of a stray."""
    log.host.cut(
        LogCut(
            log.partition,
            CutKind.SET_ASIDE,
            log.directory,
            log.log_start_offset,
            log.leo,
            sum(segment.size for segment in log.segments),
            log.high_watermark,
            reason,
        )
    )


def remove_later(host: LogHost, paths: Sequence[str], *, delay_ms: int) -> None:
    """Remove files or directories after `delay_ms`, in the background."""

    def removed(error: StorageError | None) -> None:
        if error is not None:
            host.failed(error)

    host.call_later(delay_ms / 1000, lambda: host.disk.remove(paths, removed))


def flush_until_durable(
    host: LogHost, directories: Sequence[str], done: Done, *, attempts: int = FLUSH_ATTEMPTS
) -> None:
    """Flush directories; again for some seconds if descriptors run out.

    The controller waits for a deletion, and asks again only when a directory goes offline.
    """

    def flushed(error: StorageError | None) -> None:
        if error is not None and error.left_nothing and attempts:
            host.call_later(FLUSH_AGAIN_S, again)
        else:
            done(error)

    def again() -> None:
        flush_until_durable(host, directories, done, attempts=attempts - 1)

    host.disk.flush(directories, flushed)


def remove_snapshots(log: LogState, *, above: int, among: Iterable[int] | None = None) -> bool:
    """Remove the producer snapshots above an offset. Returns whether there was one.

    `among` are the offsets of all that there are, from a caller that has listed the directory.
    """
    disk, directory = log.host.disk, log.directory
    offsets = snapshot_offsets(disk, directory) if among is None else among
    removed = [offset for offset in offsets if offset > above]
    for offset in removed:
        disk.unlink(segment_stem(directory, offset) + SNAPSHOT)
    return bool(removed)


def snapshot_offsets(disk: Disk, directory: str) -> list[int]:
    """The offsets of the producer snapshots, increasing."""
    names = (entry.name for entry in disk.list(directory))
    return [offset for offset in map(snapshot_offset, names) if offset is not None]


def snapshot_offset(name: str) -> int | None:
    """The offset of a producer snapshot by its file name; None for any other name."""
    if not name.endswith(SNAPSHOT):
        return None
    stem = name.removesuffix(SNAPSHOT)
    return offset_of(stem)


def offset_of(stem: str) -> int | None:
    """The offset in 20 digits of a file name; None for anything else, also above a long."""
    is_number = len(stem) == 20 and stem.isascii() and stem.isdigit()
    return int(stem) if is_number and int(stem) <= OFFSET_MAX else None
