"""How files of a log go: renamed at once, removed after a while.

The suffix `.deleted` takes a file out of the log, also for whoever starts after a crash; the
bytes stay for `file.delete.delay.ms`, for those who are reading them.
"""

from collections.abc import Sequence

from odradek.log.disk import Disk, StorageError
from odradek.log.log_config import LogHost
from odradek.log.segment import DELETED, SEGMENT_SUFFIXES, SNAPSHOT, Segment, segment_stem


def remove_segments(host: LogHost, segments: Sequence[Segment], *, delay_ms: int) -> None:
    """Take segments out of their log, in this order, with the snapshots at their base."""
    renamed = []
    for segment in segments:
        host.index_cache.forget(segment)
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
    """Take the last segments out of their log, durably, before the one in front is cut.

    Should they come back after a power loss behind a segment that was cut, there would be a
    hole in the log, which cannot be told from one that compaction has left. It is rare
    enough to wait for the disk.
    """
    remove_segments(host, segments[::-1], delay_ms=delay_ms)
    host.disk.flush_now([segments[0].stem.rpartition("/")[0]])


def remove_later(host: LogHost, paths: Sequence[str], *, delay_ms: int) -> None:
    """Remove files or directories after a while, behind the scenes."""

    def removed(error: StorageError | None) -> None:
        if error is not None:
            host.failed(error)

    host.call_later(delay_ms / 1000, lambda: host.disk.remove(paths, removed))


def remove_snapshots(disk: Disk, directory: str, *, above: int) -> None:
    """Remove the producer snapshots that say more than the log now holds."""
    for offset in snapshot_offsets(disk, directory):
        if offset > above:
            disk.unlink(segment_stem(directory, offset) + SNAPSHOT)


def snapshot_offsets(disk: Disk, directory: str) -> list[int]:
    """The offsets at which there are producer snapshots, rising."""
    names = (entry.name for entry in disk.list(directory))
    return [offset for offset in map(snapshot_offset, names) if offset is not None]


def snapshot_offset(name: str) -> int | None:
    """The offset of a snapshot, by the name of its file; None if it is no such name."""
    stem, dot, suffix = name.partition(".")
    if dot + suffix != SNAPSHOT or len(stem) != 20 or not (stem.isascii() and stem.isdigit()):
        return None
    return int(stem)
