"""Segments of brokers before Kafka 0.11: converted to format v2 when their log is loaded.

The offsets, timestamps, keys and codecs stay, so that everything else (indexes, compaction, search
by time, replication, our tools) has batches of one format. The converted segment is written beside
the old one and replaces it by one rename, so after a crash the old one is there and is converted
again. Its indexes are removed first; a segment without indexes gets new ones.

A damaged message ends the conversion. In the last segment after an unclean shutdown it is the torn
end of the log, as in recovery. Anywhere else the broker does not start: what follows would be lost.
"""

import logging
from collections.abc import Generator
from struct import Struct
from typing import Final
from zlib import crc32

from odradek.log.disk import DirectoryEntry
from odradek.log.segment import INDEX, TIME_INDEX, Segment
from odradek.model.errors import StartupError
from odradek.record.batch import LENGTH_MIN, MAGIC_AT, OVERHEAD_BYTES, size_at
from odradek.record.conversion import Upgraded, upgrade
from odradek.record.message_set import LAST_MAGIC

log = logging.getLogger(__name__)

CHUNK_BYTES: Final = 256 << 10
UNFINISHED: Final = ".cleaned"  # a suffix of files that are removed at the next start
_HEAD: Final = Struct(">qiIb")  # offset, size, CRC-32, magic


def is_old(segment: Segment) -> bool:
    """Whether a segment begins with a message of format v0 or v1.

    These have a checksum of their own, so they are recognised safely.
    """
    if segment.size < _HEAD.size:
        return False
    head = segment.file.read_now(0, _HEAD.size)
    if len(head) < _HEAD.size:
        return False
    _, size, checksum, magic = _HEAD.unpack_from(head)
    if not 0 <= magic <= LAST_MAGIC or not LENGTH_MIN <= size <= segment.size:
        return False
    message = memoryview(segment.file.read_now(0, OVERHEAD_BYTES + size))
    return crc32(message[MAGIC_AT:]) == int(checksum)


def upgrading(
    segment: Segment, directory: str, files: dict[str, DirectoryEntry], *, may_be_torn: bool
) -> Generator[None, None, Segment]:
    """Convert a segment; its indexes are removed from the directory and from `files`.

    Raises:
        StartupError: damage that is not the torn end of the log.
        StorageError: an I/O error.
    """
    disk, old = segment.disk, segment.file
    new = disk.create(old.path + UNFINISHED)
    read = written = 0
    while read < segment.size:
        part = _part(segment, read)
        if part.batches:
            new.write(written, (bytes(part.batches),))
        read += part.taken
        written += len(part.batches)
        if part.error is not None or not part.taken:
            _refuse_or_cut(segment, read, part, may_be_torn=may_be_torn)
            break
        yield
    disk.flush_now([new])
    new.rest()
    old.rest()
    for suffix in (INDEX, TIME_INDEX):
        name = f"{segment.base_offset:020d}{suffix}"
        if files.pop(name, None) is not None:
            disk.unlink(f"{directory}/{name}")
    disk.rename(old.path + UNFINISHED, old.path)
    log.info("%s was converted to record format v2: %d bytes, %d before", old.path, written, read)
    return Segment.existing(
        disk, directory, segment.base_offset, size=written, mtime_ms=segment.created_ms
    )


def _refuse_or_cut(segment: Segment, position: int, part: Upgraded, *, may_be_torn: bool) -> None:
    path = segment.file.path
    reason = "an incomplete message" if part.error is None else str(part.error)
    if not may_be_torn:
        raise StartupError(
            f"{path} is of a broker before Kafka 0.11 and is damaged at position {position}: "
            f"{reason}. Restore the file, or move its directory away"
        )
    log.warning("%s: %d bytes are cut: %s", path, segment.size - position, reason)


def _part(segment: Segment, position: int) -> Upgraded:
    """The next batches; of one message at least, however large."""
    left = segment.size - position
    view = memoryview(segment.file.read_now(position, min(CHUNK_BYTES, left)))
    part = upgrade(view)
    if part.taken or part.error is not None or len(view) < OVERHEAD_BYTES:
        return part
    needed = size_at(view, 0)
    if not len(view) < needed <= left:
        return part
    return upgrade(memoryview(segment.file.read_now(position, needed)))
