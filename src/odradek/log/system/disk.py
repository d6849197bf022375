"""The disk of the operating system. No module of `log` outside this package makes system calls.

What may have to wait for the device runs in a few threads that only wait in system calls (no work
in Python beside the event loop), and `done` is called through the `call_soon` given at
construction.

The descriptor of a file is opened at first use; above a limit those not used lately are closed
again (second chance: a use costs one attribute, not a list operation).
"""

import errno
import fcntl
import os
import resource
import shutil
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, Final

from odradek.log.disk import (
    NO_DESCRIPTORS,
    Data,
    DirectoryEntry,
    Done,
    File,
    ReadDone,
    StorageError,
)
from odradek.log.system.read_ahead import read_logs
from odradek.log.system.replacing import DIRECTORY, Replacement, replace
from odradek.log.system.resident import is_resident

THREADS: Final = 4
# Errors of filesystems without RWF_NOWAIT (tmpfs, some network filesystems). On them a read may
# wait for the device.
_NOWAIT_UNKNOWN: Final = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})
_GIVEN_UP: Final = 16  # descriptors that are closed when none is free


class RealFile:
    """A file of the operating system, with or without an open descriptor."""

    __slots__ = ("_disk", "_fd", "_pins", "_rest_when_unpinned", "_used", "path")

    def __init__(self, disk: "RealDisk", path: str, fd: int = -1) -> None:
        self.path = path
        self._disk = disk
        self._fd = fd
        self._used = True
        self._pins = 0
        self._rest_when_unpinned = False

    def write(self, position: int, buffers: Sequence[Data]) -> None:
        self._used = True
        fd = self._fd if self._fd >= 0 else self._ready()
        try:
            written = os.pwritev(fd, buffers, position)
            if written != sum(map(len, buffers)):
                self._write_rest(position + written, b"".join(buffers)[written:])
        except OSError as error:
            raise _storage_error(self.path, error) from error

    def _write_rest(self, position: int, rest: bytes) -> None:
        # A full disk makes a write short (the next write then fails), and so does 2 GiB.
        while rest:
            written = os.pwrite(self._fd, rest, position)
            position += written
            rest = rest[written:]

    def read(self, position: int, length: int) -> Data | None:
        buffer = bytearray(length)
        got = self._read_cached(position, buffer)
        if got == length:
            return buffer
        if got is None or position + got < self.size():
            return None
        del buffer[got:]
        return buffer

    def read_into(self, position: int, into: memoryview) -> bool:
        return self._read_cached(position, into) == len(into)

    def send(self, position: int, length: int, to: int) -> int:
        self._used = True
        try:
            fd = self._fd if self._fd >= 0 else self._open()
            if not is_resident(fd, position, length):
                return 0
            return os.sendfile(to, fd, position, length)
        except OSError:
            # The socket's buffer is full, or the socket or the file has an error. After a 0 the
            # caller reads the file and writes to the transport, and these report the error.
            return 0

    def _read_cached(self, position: int, into: bytearray | memoryview) -> int | None:
        """Read in one call, and return the number of bytes; None: nothing is in the page cache."""
        self._used = True
        try:
            fd = self._fd if self._fd >= 0 else self._open()
            if not self._disk.nowait_unknown:
                try:
                    return os.preadv(fd, (into,), position, os.RWF_NOWAIT)
                except BlockingIOError:
                    return None
                except OSError as error:
                    if error.errno not in _NOWAIT_UNKNOWN:
                        raise
                self._disk.nowait_unknown = True
            return os.preadv(fd, (into,), position)
        except OSError as error:
            raise _read_error(self.path, error) from error

    def read_now(self, position: int, length: int) -> bytes:
        self._used = True
        try:
            return _read_fully(self._fd if self._fd >= 0 else self._open(), position, length)
        except OSError as error:
            raise _read_error(self.path, error) from error

    def read_later(self, position: int, length: int, done: ReadDone) -> None:
        try:
            fd = self.pin()
        except StorageError as error:
            self._disk.call_soon(done, error)
            return

        def finish(result: Data | StorageError) -> None:
            self.unpin()
            done(result)

        self._disk.run_later(
            lambda: _read_fully(fd, position, length), self.path, finish, StorageError.of_read
        )

    def size(self) -> int:
        return self._stat().st_size

    def mtime_ms(self) -> int:
        return self._stat().st_mtime_ns // 1_000_000

    def _stat(self) -> os.stat_result:
        try:
            return os.fstat(self._fd) if self._fd >= 0 else os.stat(self.path)
        except OSError as error:
            raise _read_error(self.path, error) from error

    def truncate(self, size: int) -> None:
        self._used = True
        fd = self._fd if self._fd >= 0 else self._ready()
        try:
            os.ftruncate(fd, size)
        except OSError as error:
            raise _storage_error(self.path, error) from error

    def pin(self) -> int:
        if self._fd < 0:
            self._ready()
        self._pins += 1
        return self._fd

    def unpin(self) -> None:
        self._pins -= 1
        assert self._pins >= 0, self.path
        if self._rest_when_unpinned and not self._pins:
            self.rest()

    def rest(self) -> None:
        # A pinned file closes its descriptor when it is unpinned.
        self._rest_when_unpinned = self._pins > 0
        if self._fd >= 0 and not self._pins:
            self._disk.closed(self)
            os.close(self._fd)
            self._fd = -1

    @property
    def is_open(self) -> bool:
        """Whether it has an open descriptor."""
        return self._fd >= 0

    def has_rested(self) -> bool:
        """Whether it was not used since the last call of this method."""
        if self._used or self._pins:
            self._used = False
            return False
        return True

    def _ready(self) -> int:
        try:
            return self._open()
        except OSError as error:
            raise _open_error(self.path, error) from error

    def _open(self) -> int:
        self._fd = self._disk.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        self._disk.opened(self)
        return self._fd


class RealLock:
    """A POSIX record lock, as Kafka's Java lock is, so that each sees the other's.

    And a flock, because a record lock does not exclude a second broker in the same process.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class RealDisk:
    """The filesystems of the operating system."""

    def __init__(
        self,
        call_soon: Callable[..., object],
        *,
        descriptors_max: int | None = None,
        threads: int = THREADS,
    ) -> None:
        """`call_soon(callback, *arguments)` is called from threads."""
        self.call_soon = call_soon
        self.nowait_unknown = False
        self._descriptors_max = descriptors_max or _descriptors_allowed()
        self._open: OrderedDict[RealFile, None] = OrderedDict()
        self._replacing: dict[str, Replacement] = {}
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads_wanted = threads
        self._threads: list[threading.Thread] = []

    def close(self) -> None:
        """Finish the outstanding operations, and end the threads."""
        for _ in self._threads:
            self._work.put(None)
        for thread in self._threads:
            thread.join()
        self._threads = []

    # ---- files

    def file(self, path: str) -> RealFile:
        return RealFile(self, path)

    def create(self, path: str) -> RealFile:
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            file = RealFile(self, path, self.open(path, flags))
        except OSError as error:
            raise _open_error(path, error) from error
        self.opened(file)
        return file

    def open(self, path: str, flags: int) -> int:
        """Open a file. When no descriptor is free, files that were not used lately close theirs."""
        try:
            return os.open(path, flags, 0o644)
        except OSError as error:
            if error.errno not in NO_DESCRIPTORS or not self._open:
                raise
        self._give_up_some()
        return os.open(path, flags, 0o644)

    def _give_up_some(self) -> None:
        for file in list(self._open)[:_GIVEN_UP]:
            file.rest()

    def opened(self, file: RealFile) -> None:
        """A file has opened a descriptor: another one may have to close its own."""
        self._open[file] = None
        if len(self._open) <= self._descriptors_max:
            return
        for _ in range(2 * len(self._open)):
            candidate = next(iter(self._open))
            if candidate is not file and candidate.has_rested():
                candidate.rest()
                return
            self._open.move_to_end(candidate)

    def closed(self, file: RealFile) -> None:
        self._open.pop(file, None)

    @property
    def descriptors(self) -> int:
        return len(self._open)

    def read_file(self, path: str) -> bytes | None:
        try:
            fd = self.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _read_error(path, error) from error
        try:
            return _read_fully(fd, 0, os.fstat(fd).st_size)
        except OSError as error:
            raise _read_error(path, error) from error
        finally:
            os.close(fd)

    def replace_now(self, path: str, data: bytes) -> None:
        try:
            self._replace_now(path, data)
        except OSError as error:
            if error.errno not in NO_DESCRIPTORS:
                raise _storage_error(path, error) from error
            self._give_up_some()
            try:
                self._replace_now(path, data)
            except OSError as again:
                raise _open_error(path, again) from again

    def _replace_now(self, path: str, data: bytes) -> None:
        running = self._replacing.get(path)
        if running is None:
            replace(path, data)
        else:
            running.overtake(path, data)

    def replace_later(self, path: str, data: bytes, done: Done) -> None:
        running = self._replacing.get(path)
        if running is None:
            self._start_replacing(path, data, [done])
        else:
            running.next_data = data
            running.next_done.append(done)

    def _start_replacing(self, path: str, data: bytes, dones: list[Done]) -> None:
        running = self._replacing[path] = Replacement()

        def finish(result: StorageError | None) -> None:
            del self._replacing[path]
            if running.next_done:
                self._start_replacing(path, running.next_data, running.next_done)
            for done in dones:
                done(result)

        self._open_later(lambda: running.run(path, data), path, finish)

    def _open_later(self, job: Callable[[], None], path: str, done: Done) -> None:
        """Run a job that opens files before it changes anything; again when some are closed."""

        def tried(result: StorageError | None) -> None:
            if result is not None and result.left_nothing:
                self._give_up_some()
                self.run_later(job, path, done, StorageError.of_open)
            else:
                done(result)

        self.run_later(job, path, tried, StorageError.of_open)

    # ---- directories

    def list(self, path: str) -> list[DirectoryEntry]:
        try:
            with os.scandir(path) as entries:
                return sorted(filter(None, map(_entry, entries)))
        except OSError as error:
            raise _read_error(path, error) from error

    def read_ahead(self, directories: Sequence[str]) -> None:
        self.run_later(lambda: read_logs(directories), "", lambda _: None)

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def mkdir(self, path: str) -> None:
        try:
            os.makedirs(path, exist_ok=True)
        except OSError as error:
            raise _storage_error(path, error) from error

    def rename(self, old: str, new: str) -> None:
        try:
            os.rename(old, new)
        except OSError as error:
            raise _storage_error(old, error) from error

    def unlink(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise _storage_error(path, error) from error

    def remove(self, paths: Sequence[str], done: Done) -> None:
        self.run_later(lambda: _remove(paths), paths[0] if paths else "", done)

    # ---- durability

    def flush(self, targets: Sequence[File | str], done: Done) -> None:
        opened = _FlushTargets()
        try:
            for target in targets:
                opened.add(target)
        except StorageError as error:
            opened.close()
            self.call_soon(done, error)
            return

        def finish(result: StorageError | None) -> None:
            opened.close()
            done(result)

        first = targets[0] if targets else ""
        path = first if isinstance(first, str) else first.path
        self._open_later(opened.run, path, finish)

    def flush_now(self, targets: Sequence[File | str]) -> None:
        for target in targets:
            opened = _FlushTargets()
            try:
                opened.add(target)
                opened.run()
            except OSError as error:
                path = target if isinstance(target, str) else target.path
                raise _open_error(path, error) from error
            finally:
                opened.close()

    # ---- locks and space

    def lock(self, path: str) -> RealLock | None:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise _storage_error(path, error) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                return None
            raise _storage_error(path, error) from error
        return RealLock(fd)

    def usable_bytes(self, path: str) -> int:
        return self._statvfs(path, "f_bavail")

    def total_bytes(self, path: str) -> int:
        return self._statvfs(path, "f_blocks")

    def _statvfs(self, path: str, field: str) -> int:
        try:
            found = os.statvfs(path)
        except OSError as error:
            raise _read_error(path, error) from error
        blocks: int = getattr(found, field)
        return blocks * found.f_frsize

    # ---- threads

    def run_later(
        self,
        job: Callable[[], Any],
        path: str,
        done: Callable[[Any], None],
        failed: Callable[[str, int], StorageError] = StorageError,
    ) -> None:
        """Run `job` in a thread; `done` gets what it returns, or the StorageError of `failed`."""

        def run() -> None:
            try:
                result = job()
            except OSError as error:
                result = failed(path, error.errno or errno.EIO)
            self.call_soon(done, result)

        if len(self._threads) < self._threads_wanted:
            # Daemons: a disk that hangs does not keep the process from ending.
            thread = threading.Thread(target=self._serve, name="disk", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._work.put(run)

    def _serve(self) -> None:
        while (run := self._work.get()) is not None:
            run()


class _FlushTargets:
    """Files and directories, all of them open before the first one is flushed.

    Directories are open only while they are flushed: hundreds of flushes may wait for a thread.
    """

    def __init__(self) -> None:
        self._pinned: list[RealFile] = []
        self._files: list[int] = []
        self._directories: list[str] = []

    def add(self, target: File | str) -> None:
        """Open a file, or note a directory.

        Raises:
            StorageError: it cannot be opened.
        """
        if isinstance(target, RealFile):
            self._files.append(target.pin())
            self._pinned.append(target)
        else:
            assert isinstance(target, str), target
            self._directories.append(target)

    def run(self) -> None:
        """Open the directories and flush all, the files first."""
        opened: list[int] = []
        try:
            opened.extend(os.open(path, DIRECTORY) for path in self._directories)
            for fd in self._files:
                os.fdatasync(fd)
            for fd in opened:
                os.fsync(fd)
        finally:
            for fd in opened:
                os.close(fd)

    def close(self) -> None:
        """Allow the files to be closed."""
        for file in self._pinned:
            file.unpin()


def _read_error(path: str, error: OSError) -> StorageError:
    return StorageError.of_read(path, error.errno or errno.EIO)


def _open_error(path: str, error: OSError) -> StorageError:
    return StorageError.of_open(path, error.errno or errno.EIO)


def _storage_error(path: str, error: OSError) -> StorageError:
    return StorageError(path, error.errno or errno.EIO)


def _entry(found: "os.DirEntry[str]") -> DirectoryEntry | None:
    try:
        stat = found.stat()
    except FileNotFoundError:  # a thread has removed it meanwhile
        return None
    return DirectoryEntry(found.name, found.is_dir(), stat.st_size, stat.st_mtime_ns // 1_000_000)


def _descriptors_allowed() -> int:
    # Half of the process's limit: the other half is for sockets.
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 50_000 if soft == resource.RLIM_INFINITY else max(64, soft // 2)


def _read_fully(fd: int, position: int, length: int) -> bytes:
    data = os.pread(fd, length, position)
    while len(data) < length:
        more = os.pread(fd, length - len(data), position + len(data))
        if not more:
            break
        data += more
    return data


def _remove(paths: Sequence[str]) -> None:
    for path in paths:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        except IsADirectoryError:
            shutil.rmtree(path)
