"""What the two sparse indexes of a segment share: entries in memory, and their file.

The entries are held as they stand in the file and searched where they are. Those of the
active segment reach the file when the segment is flushed, rolled or closed, not with each
append: after a crash they are made anew from the log anyway. Nothing is preallocated.
"""

from typing import Self

from odradek.log.disk import Data, Disk


class IndexFile:
    """The entries of one index, and how much of them its file has."""

    __slots__ = ("_entries", "_file_bytes", "_written")

    def __init__(self, entries: Data | None = None) -> None:
        """Take over what stands in the file; None: there is no file yet."""
        self._entries = bytearray(entries or b"")
        self._file_bytes = -1 if entries is None else len(entries)
        self._written = len(self._entries)

    @classmethod
    def unread(cls, file_bytes: int) -> Self:
        """No entries, over a file of that size (-1: none) which will be written anew."""
        index = cls()
        index._file_bytes = file_bytes
        return index

    @property
    def has_file(self) -> bool:
        """Whether there is a file, whatever stands in it."""
        return self._file_bytes >= 0

    @property
    def size_bytes(self) -> int:
        """As it will be in the file."""
        return len(self._entries)

    def clear(self) -> None:
        """Forget everything."""
        self._cut(0)

    def save(self, disk: Disk, path: str) -> bool:
        """Bring the file up to date, and make it if there is none. Whether it had to change."""
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

    def _cut(self, size_bytes: int) -> None:
        del self._entries[size_bytes:]
        self._written = min(self._written, size_bytes)
