"""The time index: the largest timestamp so far, and the offset at which it came. Sparse.

12 bytes an entry, big-endian: a timestamp (i64) and an offset relative to the segment's base
offset (i32): the last offset of the batch that brought the timestamp. No batch up to that
offset has a larger timestamp. Entries grow strictly in both. An entry is made along with one
of the offset index, if there was a new maximum; and a last one when the segment is rolled or
closed, so that the last entry of a closed segment has its largest timestamp.
"""

from struct import Struct
from typing import Final, NamedTuple

from odradek.log.index_file import IndexFile

ENTRY_BYTES: Final = 12
_ENTRY: Final = Struct(">qi")


class TimestampAndOffset(NamedTuple):
    """A timestamp, and the relative offset where it stands."""

    timestamp: int
    offset: int


class TimeIndex(IndexFile):
    """The time index of one segment. All offsets here are relative."""

    __slots__ = ()

    def __len__(self) -> int:
        return len(self._entries) // ENTRY_BYTES

    def append(self, timestamp: int, offset: int) -> None:
        """Note a new maximum; anything else is no news."""
        last = self.last()
        if timestamp > (last.timestamp if last else -1):
            self._entries += _ENTRY.pack(timestamp, offset)

    def last(self) -> TimestampAndOffset | None:
        """The largest timestamp noted."""
        return self._entry(len(self) - 1) if self._entries else None

    def lookup(self, timestamp: int) -> int:
        """The offset from which on to look for a batch that reaches that timestamp.

        No batch in front of the answer does.
        """
        count = self._count(timestamp, field=0)
        return self._entry(count - 1).offset if count else 0

    def truncate(self, offset: int) -> None:
        """Forget that offset and those above it."""
        self._cut(self._count(offset, field=1) * ENTRY_BYTES)

    def is_sane(self) -> bool:
        """Whether the end looks as it should: Kafka's preallocated file has zeros there."""
        if len(self._entries) % ENTRY_BYTES:
            return False
        if len(self) < 2:
            return True
        before, last = self._entry(len(self) - 2), self._entry(len(self) - 1)
        return before.timestamp < last.timestamp and 0 <= before.offset <= last.offset

    def _entry(self, index: int) -> TimestampAndOffset:
        return TimestampAndOffset._make(_ENTRY.unpack_from(self._entries, index * ENTRY_BYTES))

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
