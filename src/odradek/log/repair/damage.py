"""A segment that ends in damage: the batches before it, what is wrong, what is intact behind it.

Nothing is changed here.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Final
from zlib import crc32

from odradek.log.disk import Data
from odradek.log.segment import RELATIVE_OFFSET_MAX, Segment
from odradek.model.errors import StartupError
from odradek.record.batch import (
    HEADER_BYTES,
    LENGTH_MIN,
    MAGIC,
    MAGIC_AT,
    OVERHEAD_BYTES,
    BatchHeader,
    CorruptBatchError,
    base_offset_at,
    has_valid_crc,
    iter_batches,
    read_header,
    size_at,
)

_CHUNK_BYTES: Final = 1 << 20


def why_invalid(segment: Segment, position: int, size: int, next_offset: int) -> str:
    """Why the valid part of a segment of `size` bytes ends at `position`.

    `next_offset` is the end offset of the valid part.
    """
    left = size - position
    head = segment.file.read_now(position, min(HEADER_BYTES, left))
    if not any(head):
        return "zeros follow, as after a power failure"
    if len(head) < HEADER_BYTES:
        return f"{left} bytes of a batch's header follow"
    header = read_header(head)
    if header.magic != MAGIC or header.size_bytes < HEADER_BYTES:
        return f"no batch follows (length {header.length}, format v{header.magic})"
    if header.size_bytes > left:
        return f"only {left} of the {header.size_bytes} bytes of the next batch are there"
    if not next_offset <= header.base_offset <= header.last_offset:
        return (
            f"the next batch has the offsets {header.base_offset} to {header.last_offset}, "
            f"instead of {next_offset}"
        )
    return "the checksum of the next batch is wrong"


def refusing_to_cut(segments: Sequence[Segment]) -> Iterator[None]:
    """Check after a clean shutdown that recovery of these segments removes nothing intact.

    Raises:
        StartupError: damage has intact batches behind it, or a segment begins within the one
            before.
    """
    end = segments[0].base_offset
    for segment, following in zip_longest(segments, segments[1:]):
        if segment.base_offset < end:
            raise _refusal(segment, 0, f"offset {end} was expected", segment.base_offset)
        position, end = 0, segment.base_offset
        for at, header, _ in good_batches(segment, 0, segment.size, end):
            position, end = at + header.size_bytes, header.next_offset
            yield
        if position == segment.size:
            continue
        intact = intact_behind(segment, position)
        if intact is None and following is not None:
            intact = following.base_offset
        if intact is not None:
            why = why_invalid(segment, position, segment.size, end)
            raise _refusal(segment, position, why, intact)


def _refusal(segment: Segment, position: int, reason: str, intact: int) -> StartupError:
    return StartupError(
        f"{segment.file.path} is damaged at position {position} after a clean shutdown: {reason}. "
        f"Intact batches from offset {intact} on are behind that. Restore the file; or move its "
        f"directory away, and the log is copied from the leader; or remove .kafka_cleanshutdown "
        f"from the log directory, and the log ends at the damage"
    )


def good_batches(
    segment: Segment, position: int, size: int, next_offset: int
) -> Iterator[tuple[int, BatchHeader, Data]]:
    """The batches of a segment from `position` on, up to the first invalid one."""
    length = _CHUNK_BYTES
    offset_max = segment.base_offset + RELATIVE_OFFSET_MAX
    while position < size:
        chunk = memoryview(segment.file.read_now(position, min(length, size - position)))
        if len(chunk) < HEADER_BYTES:
            return
        end = 0
        try:
            for at, header in iter_batches(chunk):
                if not (
                    next_offset <= header.base_offset <= header.last_offset <= offset_max
                    and has_valid_crc(chunk, at, header)
                ):
                    return
                end = at + header.size_bytes
                next_offset = header.next_offset
                yield position + at, header, chunk[at:end]
        except CorruptBatchError:
            return
        # A batch larger than one read: read again with enough room.
        length = _CHUNK_BYTES if end else read_header(chunk).size_bytes
        if not end and position + length > size:
            return
        position += end


def intact_behind(segment: Segment, position: int) -> int | None:
    """The offset of the first intact batch or old message at or behind `position`.

    It has a valid checksum, and an offset of this segment. None: there is none.
    """
    likely, size = _beginnings(segment.base_offset), segment.size
    while size - position > MAGIC_AT:
        chunk = bytes(segment.file.read_now(position, min(_CHUNK_BYTES, size - position)))
        for found in likely.finditer(chunk):
            offset = _intact_at(segment, position + found.start(), size)
            if offset is not None:
                return offset
        position += max(len(chunk) - MAGIC_AT, 1)
    return None


def _beginnings(base_offset: int) -> re.Pattern[bytes]:
    """What the first 17 bytes of a batch or message look like: offset, length, magic."""
    tops = {(base_offset + more >> 32).to_bytes(4, "big") for more in (0, RELATIVE_OFFSET_MAX)}
    top = b"|".join(map(re.escape, sorted(tops)))
    # A length of 0 is excluded here, so that an area of zeros is passed quickly.
    return re.compile(rb"(?s)(?=(?:%b).{4}(?!\0{4})[\0-\x7f].{7}[\0-\2])" % top)


def _intact_at(segment: Segment, position: int, size: int) -> int | None:
    head = segment.file.read_now(position, min(HEADER_BYTES, size - position))
    offset, end = base_offset_at(head, 0), position + size_at(head, 0)
    if end > size or not 0 <= offset - segment.base_offset <= RELATIVE_OFFSET_MAX:
        return None
    least = HEADER_BYTES if head[MAGIC_AT] == MAGIC else OVERHEAD_BYTES + LENGTH_MIN
    if end - position < least:
        return None
    data = memoryview(segment.file.read_now(position, end - position))
    if head[MAGIC_AT] == MAGIC:
        return offset if has_valid_crc(data, 0, read_header(data)) else None
    stored = int.from_bytes(data[OVERHEAD_BYTES:MAGIC_AT], "big")
    return offset if stored == crc32(data[MAGIC_AT:]) else None
