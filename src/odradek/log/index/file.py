"""What the offset index and the time index of a segment share: entries in memory, and a file.

The entries are kept in memory in file format and searched there. The entries of
the active segment are written to the file when the segment is rolled, truncated or closed, not at
each append or flush: recovery after a crash rebuilds them from the log. Files are not preallocated.
"""

from struct import Struct
from typing import ClassVar, Self

from odradek.log.disk import Data, Disk


class IndexFile:
    """The entries of one index, and how many of them are in its file."""

    __slots__ = ("_entries", "_file_bytes", "_written")
    ENTRY: ClassVar[Struct]
    OFFSET_FIELD: ClassVar[int]  # of an entry

    def __init__(self, entries: Data | None = None) -> None:
        """`entries` is the content of the file; None: there is no file yet."""
        self._entries = bytearray(entries or b"")
        self._file_bytes = -1 if entries is None else len(entries)
        self._written = len(self._entries)

    @classmethod
    def unread(cls, file_bytes: int) -> Self:
        """No entries, and a file of that size (-1: none) that will be written again."""
        index = cls()
        index._file_bytes = file_bytes
        return index

    def __len__(self) -> int:
        return len(self._entries) // self.ENTRY.size

    def lacks_room(self, entries: int, index_bytes: int) -> bool:
        """Whether it would have more than `index_bytes` with so many more entries."""
        return len(self._entries) + entries * self.ENTRY.size > index_bytes

    @property
    def has_file(self) -> bool:
        """Whether the file exists, whatever its content."""
        return self._file_bytes >= 0

    @property
    def size_bytes(self) -> int:
        """The size of the file once it is saved."""
        return len(self._entries)

    def truncate(self, offset: int) -> None:
        """Remove entries at or above the offset."""
        self._cut(self._count(offset, field=self.OFFSET_FIELD) * self.ENTRY.size)

    def clear(self) -> None:
        """Remove all entries."""
        self._cut(0)

    def save(self, disk: Disk, path: str) -> bool:
        """Write changed entries to the file, and create it if needed. Whether anything changed."""
        size = len(self._entries)
        if self._file_bytes == size == self._written:
            return False
        file = disk.create(path) if self._file_bytes < 0 else disk.file(path)
        if size > self._written:
            file.write(self._written, (bytes(self._entries[self._written :]),))
        if self._file_bytes > size:
            file.truncate(size)
        file.rest()
        self._file_bytes = self._written = size
        return True

    def _count(self, bound: int, *, field: int) -> int:
        """How many entries have less than `bound` in that field."""
        low, high = 0, len(self)
        entries, unpack, size = self._entries, self.ENTRY.unpack_from, self.ENTRY.size
        while low < high:
            middle = (low + high) // 2
            if unpack(entries, middle * size)[field] < bound:
                low = middle + 1
            else:
                high = middle
        return low

    def _cut(self, size_bytes: int) -> None:
        del self._entries[size_bytes:]
        self._written = min(self._written, size_bytes)
