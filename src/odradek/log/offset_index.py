"""The offset index: where in a segment to begin looking for an offset. Sparse.

8 bytes an entry, two big-endian i32: an offset relative to the segment's base offset, and the
position of a batch in the `.log` file. The offset is the last one of that batch, so whatever
comes after the offset lies behind the position. Entries grow strictly in both.
"""

from struct import Struct
from typing import Final

from odradek.log.index_file import IndexFile

ENTRY_BYTES: Final = 8
_ENTRY: Final = Struct(">ii")


class OffsetIndex(IndexFile):
    """The offset index of one segment. All offsets here are relative."""

    __slots__ = ()

    def __len__(self) -> int:
        return len(self._entries) // ENTRY_BYTES

    def append(self, offset: int, position: int) -> None:
        """Note that the batch at `position` ends with that offset."""
        self._entries += _ENTRY.pack(offset, position)

    def lookup(self, offset: int) -> int:
        """The position from which on to look for an offset: never behind it."""
        count = self._count(offset + 1, field=0)
        return self._entry(count - 1)[1] if count else 0

    def offset_at_or_behind(self, position: int) -> int | None:
        """An offset that no batch in front of `position` has; None if none is known."""
        count = self._count(position, field=1)
        return self._entry(count)[0] if count < len(self) else None

    def last_position(self) -> int:
        """The position of the last entry, 0 if there is none."""
        return self._entry(len(self) - 1)[1] if self._entries else 0

    def truncate(self, offset: int) -> None:
        """Forget that offset and those above it."""
        self._cut(self._count(offset, field=0) * ENTRY_BYTES)

    def is_sane(self, log_bytes: int) -> bool:
        """Whether this can be the index of a log of that size.

        Looks at the end alone, where Kafka's preallocated file has zeros after a crash.
        """
        if len(self._entries) % ENTRY_BYTES:
            return False
        last_offset, last_position = self._entry(len(self) - 1) if self._entries else (0, 0)
        if len(self) > 1 and (last_offset == 0 or last_position == 0):
            return False
        return 0 <= last_position <= log_bytes and last_offset >= 0

    def _entry(self, index: int) -> tuple[int, int]:
        entry: tuple[int, int] = _ENTRY.unpack_from(self._entries, index * ENTRY_BYTES)
        return entry

    def _count(self, bound: int, *, field: int) -> int:
        """How many entries have less than `bound` in that field."""
        low, high = 0, len(self)
        entries, unpack = self._entries, _ENTRY.unpack_from
        while low < high:
            middle = (low + high) // 2
            if unpack(entries, middle * ENTRY_BYTES)[field] < bound:
                low = middle + 1
            else:
                high = middle
        return low
