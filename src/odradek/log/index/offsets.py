"""The offset index: from which position in a segment to search for an offset. Sparse.

8 bytes an entry, two big-endian i32: an offset relative to the segment's base offset, and the
position of a batch in the `.log` file. The offset is the last one of that batch, so every larger
offset is after that position. Entries increase strictly in both.
"""

from struct import Struct
from typing import Final

from odradek.log.index.file import IndexFile

ENTRY_BYTES: Final = 8
_ENTRY: Final = Struct(">ii")


class OffsetIndex(IndexFile):
    """The offset index of one segment. All offsets are relative to its base offset."""

    __slots__ = ()
    ENTRY = _ENTRY
    OFFSET_FIELD = 0

    def append(self, offset: int, position: int) -> None:
        """Add an entry: the batch at `position` ends with that offset."""
        self._entries += _ENTRY.pack(offset, position)

    def lookup(self, offset: int) -> int:
        """The position from which to search for an offset: at or before its batch."""
        count = self._count(offset + 1, field=0)
        return self._entry(count - 1)[1] if count else 0

    def offset_at_or_behind(self, position: int) -> int | None:
        """An offset that is not below `position`; None if no entry is there."""
        count = self._count(position, field=1)
        return self._entry(count)[0] if count < len(self) else None

    def last_position(self) -> int:
        """The position of the last entry, 0 without entries."""
        return self._entry(len(self) - 1)[1] if self._entries else 0

    def is_sane(self, log_bytes: int) -> bool:
        """Whether this can be the index of a log of that size.

        Checks the end alone, where Kafka's preallocated file has zeros after a crash.
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
