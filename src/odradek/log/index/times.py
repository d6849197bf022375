"""The time index: the largest timestamp so far, and the offset where it was reached. Sparse.

12 bytes an entry, big-endian: a timestamp (i64) and an offset relative to the segment's base
offset (i32): the last offset of the batch with that timestamp. No batch up to that offset has a
larger timestamp. Entries increase strictly in both. An entry is added together with one of the
offset index if there is a new maximum, and a last one when the segment is rolled or closed: the
last entry of a closed segment has its largest timestamp.
"""

from struct import Struct
from typing import Final, NamedTuple

from odradek.log.index.file import IndexFile

ENTRY_BYTES: Final = 12
_ENTRY: Final = Struct(">qi")
_TIMESTAMP: Final = Struct(">q").unpack_from


class TimestampAndOffset(NamedTuple):
    """A timestamp, and the relative offset of its batch."""

    timestamp: int
    offset: int


class TimeIndex(IndexFile):
    """The time index of one segment. All offsets are relative to its base offset."""

    __slots__ = ()
    ENTRY = _ENTRY
    OFFSET_FIELD = 1

    def append(self, timestamp: int, offset: int) -> None:
        """Add an entry for a new maximum; anything else is ignored."""
        entries = self._entries
        last = _TIMESTAMP(entries, len(entries) - ENTRY_BYTES)[0] if entries else -1
        if timestamp > last:
            entries += _ENTRY.pack(timestamp, offset)

    def last(self) -> TimestampAndOffset | None:
        return self._entry(len(self) - 1) if self._entries else None

    def lookup(self, timestamp: int) -> int:
        """The offset from which to search for a batch with that timestamp or a later one.

        All earlier batches have smaller timestamps.
        """
        count = self._count(timestamp, field=0)
        return self._entry(count - 1).offset if count else 0

    def is_sane(self) -> bool:
        """Whether the last entry is plausible: Kafka's preallocated file ends with zeros."""
        if len(self._entries) % ENTRY_BYTES:
            return False
        if len(self) < 2:
            return True
        before, last = self._entry(len(self) - 2), self._entry(len(self) - 1)
        return before.timestamp < last.timestamp and 0 <= before.offset <= last.offset

    def _entry(self, index: int) -> TimestampAndOffset:
        return TimestampAndOffset._make(_ENTRY.unpack_from(self._entries, index * ENTRY_BYTES))
