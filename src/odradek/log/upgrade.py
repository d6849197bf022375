"""Segments with messages of formats v0 and v1: converted to format v2 when their log is loaded.

Brokers before Kafka 0.11 wrote them, and later ones up to 3.9 with a lower
`log.message.format.version`. That option could be lowered and raised at any time, so the old
messages may be anywhere in a segment, also behind batches of format v2. Therefore a log that comes
from Apache Kafka is read once, header by header; up to which offset this was done is in the
`record-format-checkpoint` of its log directory. What Kafka appends later is above that offset.

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
from typing import Final, NamedTuple
from zlib import crc32

from odradek.log.disk import DirectoryEntry
from odradek.log.index.offsets import OffsetIndex
from odradek.log.log_state import LogState
from odradek.log.segment import INDEX, TIME_INDEX, Segment
from odradek.model.errors import ApiError, StartupError
from odradek.record.batch import (
    HEADER_BYTES,
    LENGTH_MIN,
    MAGIC,
    MAGIC_AT,
    OVERHEAD_BYTES,
    base_offset_at,
    next_offset_at,
    read_header,
    size_at,
)
from odradek.record.conversion import Upgraded, upgrade
from odradek.record.message_set import LAST_MAGIC

log = logging.getLogger(__name__)

CHUNK_BYTES: Final = 256 << 10
UNFINISHED: Final = ".cleaned"  # a suffix of files that are removed at the next start
_HEAD: Final = Struct(">qiIb")  # offset, size, CRC-32, magic
_LENGTH_MAGIC: Final = Struct(">i4xb").unpack_from


class TornEnd(NamedTuple):
    """The end of a log after a crash that could not be converted."""

    size_bytes: int
    reason: str


def first_old_message(
    segment: Segment, files: dict[str, DirectoryEntry], *, known_below: int
) -> Generator[None, None, int | None]:
    """The position of the first message of format v0 or v1; None if there is none.

    The batches below the offset `known_below` are of format v2. The search ends at damage: what
    is behind it is left to recovery, or to the reader that gets there.
    """
    start = _known_up_to(segment, files, known_below)
    position, size = start, segment.size
    while size - position > MAGIC_AT:
        chunk = memoryview(segment.file.read_now(position, min(CHUNK_BYTES, size - position)))
        at, end = 0, len(chunk) - MAGIC_AT
        while at < end:
            length, magic = _LENGTH_MAGIC(chunk, at + 8)
            if magic != MAGIC or length < HEADER_BYTES - OVERHEAD_BYTES:
                return position + at if _is_old(segment, position + at) else None
            at += OVERHEAD_BYTES + length
        if not at:
            break
        position += at
        yield
    return None


def format_2_below(log: LogState) -> int | None:
    """What `record-format-checkpoint` says of a loaded log; None: it is not in the file.

    Kafka appends above that offset, should it run on the directory next.
    """
    return min(log.recovery_point, log.high_watermark) or None


def end_offset(segment: Segment) -> int:
    """The offset after the last batch or message of any format, by the headers alone."""
    position, end = 0, segment.base_offset
    while segment.size - position > MAGIC_AT:
        head = segment.file.read_now(position, HEADER_BYTES)
        if len(head) <= MAGIC_AT or size_at(head, 0) < OVERHEAD_BYTES + LENGTH_MIN:
            break
        if head[MAGIC_AT] <= LAST_MAGIC:
            end = base_offset_at(head, 0) + 1
        elif len(head) == HEADER_BYTES:
            end = next_offset_at(head, 0)
        position += size_at(head, 0)
    return end


def _known_up_to(segment: Segment, files: dict[str, DirectoryEntry], offset: int) -> int:
    """The position of a batch below `offset`, by the index; 0 if the index does not show one."""
    entry = files.get(f"{segment.base_offset:020d}{INDEX}")
    if offset <= segment.base_offset or entry is None or not entry.size:
        return 0
    index = OffsetIndex(segment.disk.read_file(segment.stem + INDEX) or b"")
    if not index.is_sane(segment.size):
        return 0
    position = index.lookup(offset - 1 - segment.base_offset)
    try:
        header = read_header(segment.file.read_now(position, HEADER_BYTES))
    except ApiError:
        return 0
    is_batch = header.magic == MAGIC and segment.base_offset <= header.last_offset < offset
    return position if is_batch and header.size_bytes >= HEADER_BYTES else 0


def _is_old(segment: Segment, position: int) -> bool:
    """Whether a message of format v0 or v1 is there: its checksum shows it safely."""
    head = segment.file.read_now(position, _HEAD.size)
    if len(head) < _HEAD.size:
        return False
    _, size, checksum, magic = _HEAD.unpack_from(head)
    if not 0 <= magic <= LAST_MAGIC:
        return False
    if not LENGTH_MIN <= size <= segment.size - position - OVERHEAD_BYTES:
        return False
    message = memoryview(segment.file.read_now(position, OVERHEAD_BYTES + size))
    return crc32(message[MAGIC_AT:]) == int(checksum)


def upgrading(
    segment: Segment,
    directory: str,
    files: dict[str, DirectoryEntry],
    *,
    old_at: int = 0,
    may_be_torn: bool,
) -> Generator[None, None, tuple[Segment, TornEnd | None]]:
    """Convert a segment; its indexes are removed from the directory and from `files`.

    What is before `old_at` is copied as it is. Returns the new segment, and what was cut.

    Raises:
        StartupError: damage that is not the torn end of the log.
        StorageError: an I/O error.
    """
    disk, old = segment.disk, segment.file
    new = disk.create(old.path + UNFINISHED)
    for position in range(0, old_at, CHUNK_BYTES):
        length = min(CHUNK_BYTES, old_at - position)
        new.write(position, (bytes(old.read_now(position, length)),))
        yield
    read = written = old_at
    torn = None
    while read < segment.size:
        part = _part(segment, read)
        if part.batches:
            new.write(written, (bytes(part.batches),))
        read += part.taken
        written += len(part.batches)
        if part.error is not None or not part.taken:
            torn = _refuse_or_cut(segment, read, part, may_be_torn=may_be_torn)
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
    converted = Segment.existing(
        disk, directory, segment.base_offset, size=written, mtime_ms=segment.created_ms
    )
    return converted, torn


def _refuse_or_cut(
    segment: Segment, position: int, part: Upgraded, *, may_be_torn: bool
) -> TornEnd:
    path = segment.file.path
    reason = "an incomplete message" if part.error is None else str(part.error)
    if not may_be_torn:
        raise StartupError(
            f"{path} has messages of a format before Kafka 0.11 and is damaged at position "
            f"{position}: {reason}. Restore the file, or move its directory away"
        )
    return TornEnd(segment.size - position, f"at position {position}: {reason}")


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
