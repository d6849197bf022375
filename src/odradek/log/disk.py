"""The disk interface of the log; `odradek.log.system.disk` implements it by the operating system.

* Calls that end in the page cache are plain calls: open, write, read, truncate, rename, list.
* Calls that may have to wait for the device end in a callback: `flush`, `replace_later`,
  `read_later`, `remove`. Their `_now` forms are for start and shutdown.
* `File.read` never waits for the device: it returns None if the data is not in the page cache.
* Every failure is a `StorageError` with path and cause, so that the log directory can be taken
  offline. A change of the disk either leaves nothing or takes the directory offline: the disk says
  which errors left nothing, and `changing` withdraws that once a first step was taken.

Thousands of partitions must not hold thousands of file descriptors: a `File` is only a path. Its
descriptor is opened at first use.
"""

import errno
import os
from collections.abc import Callable, Sequence
from contextlib import ContextDecorator
from typing import Final, NamedTuple, Protocol, Self, TypeAlias

from odradek.model.errors import OdradekError

Data: TypeAlias = bytes | bytearray | memoryview
# The process or the host has no free file descriptors: not an error of the disk.
NO_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})
# The process or the host lacks a resource: the disk itself is as good as before.
_SHORTAGES: Final = NO_DESCRIPTORS | {errno.ENOMEM}


class StorageError(OdradekError):
    """An I/O error. The log directory of `path` cannot be trusted any longer, with one exception.

    `left_nothing`: descriptors or memory ran out before anything was changed, so that the directory
    stays online and the operation may be repeated.
    """

    def __init__(self, path: str, error_number: int, *, left_nothing: bool = False) -> None:
        super().__init__(f"{path}: {os.strerror(error_number)} (errno {error_number})")
        self.path = path
        self.errno = error_number
        self.left_nothing = left_nothing
        self.half_done = False  # an operation of several steps ended between two of them

    @classmethod
    def of_read(cls, path: str, error_number: int) -> Self:
        """The error of a call that changes nothing."""
        return cls(path, error_number, left_nothing=error_number in _SHORTAGES)

    @classmethod
    def of_open(cls, path: str, error_number: int) -> Self:
        """The error of a call that opens a file: a descriptor is taken before anything else."""
        return cls(path, error_number, left_nothing=error_number in NO_DESCRIPTORS)


class changing(ContextDecorator):  # noqa: N801 - read as a statement: `with changing():`
    """The steps of a change after its first one: an error there takes the directory offline.

    What the change needs (descriptors, files, reads) is made ready before this block.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        """Begin with the first step."""

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, StorageError):
            error.left_nothing = False
            error.half_done = True


Done: TypeAlias = Callable[[StorageError | None], None]
ReadDone: TypeAlias = Callable[[Data | StorageError], None]


class DirectoryEntry(NamedTuple):
    """An entry of a directory."""

    name: str
    is_dir: bool
    size: int
    mtime_ms: int


class File(Protocol):
    """An existing file. The caller that renames it or its directory sets `path`."""

    path: str

    def write(self, position: int, buffers: Sequence[Data]) -> None:
        """Write all buffers one after the other, in one system call; at most 1,000."""

    def read(self, position: int, length: int) -> Data | None:
        """The bytes at `position`; None if they are not in the page cache.

        Shorter than `length` only at the end of the file.
        """

    def read_into(self, position: int, into: memoryview) -> bool:
        """Fill `into` with the bytes at `position`; False: not all are in the page cache."""

    def send(self, position: int, length: int, to: int) -> int:
        """Send the bytes at `position` to a socket, by its descriptor; how many it has taken.

        0: it takes none now, or not all of the bytes are in the page cache, or this cannot be told.
        """

    def read_now(self, position: int, length: int) -> Data:
        """The bytes at `position`; may wait for the device."""

    def read_later(self, position: int, length: int, done: ReadDone) -> None:
        """Read the bytes at `position` in a thread; `done` gets them."""

    def size(self) -> int:
        """The size in bytes."""

    def mtime_ms(self) -> int:
        """The time of its last modification (wall time)."""

    def truncate(self, size: int) -> None:
        """Truncate the file, or extend it with zeros."""

    def pin(self) -> int:
        """The descriptor (-1 if there is none), kept open until `unpin`."""

    def unpin(self) -> None:
        """Allow the descriptor to be closed again."""

    def rest(self) -> None:
        """Close the descriptor; the next use opens the file again."""


class Lock(Protocol):
    """A lock on a file, held until the process ends at the latest."""

    def release(self) -> None:
        """Release the lock, so that another process may take it."""


class Disk(Protocol):
    """A filesystem: the operating system's, or the simulator's."""

    def file(self, path: str) -> File:
        """An existing file. It is not opened yet."""

    def create(self, path: str) -> File:
        """A new file; an existing one is truncated."""

    def read_file(self, path: str) -> bytes | None:
        """The content of a small file, None if it does not exist."""

    def replace_now(self, path: str, data: bytes) -> None:
        """Replace a small file atomically and durably; waits for the device."""

    def replace_later(self, path: str, data: bytes, done: Done) -> None:
        """Replace a small file atomically and durably, in a thread.

        Replacements of one path take effect in the order of the calls.
        """

    def list(self, path: str) -> list[DirectoryEntry]:
        """The entries of a directory, sorted by name."""

    def read_ahead(self, directories: Sequence[str]) -> None:
        """Read what loading the logs in these directories reads, in a thread, into the page cache.

        Errors are left to the loading, which reads the same.
        """

    def exists(self, path: str) -> bool:
        """Whether there is a file or directory of this name."""

    def mkdir(self, path: str) -> None:
        """Make a directory and its parents; it may exist already."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file or a directory within its directory; a file at `new` is replaced."""

    def unlink(self, path: str) -> None:
        """Remove a file, if it exists."""

    def remove(self, paths: Sequence[str], done: Done) -> None:
        """Remove files and whole directories in a thread; missing ones are not an error."""

    def flush(self, targets: Sequence[File | str], done: Done) -> None:
        """Flush these files and directories in a thread."""

    def flush_now(self, targets: Sequence[File | str]) -> None:
        """Flush these files and directories; waits for the device."""

    def lock(self, path: str) -> Lock | None:
        """Take the lock on a file; None if another process holds it."""

    def usable_bytes(self, path: str) -> int:
        """Free space in the filesystem of `path`."""

    def total_bytes(self, path: str) -> int:
        """The size of the filesystem of `path`."""
