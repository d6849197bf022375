"""A disk that loses unflushed data at a power loss, tears writes, and fails on demand.

It implements `odradek.log.disk.Disk` (one test suite for both) and is deterministic for the
`random.Random` it is given. What a crash leaves:

    PROCESS   the page cache: everything written, but a write in progress may be torn
    POWER     of each file what was flushed, and of the rest any prefix or any subset of its
              512-byte sectors, with zeros or nothing in the gaps and at the end; of each
              directory what was flushed, and of the later creations, renames and removals
              the first few. If a truncation is lost, so are writes behind the new end, because
              journalling filesystems keep their order

A fault of the operation "open" strikes at the first use of a file, and at the flush of a directory.

A flush makes durable what was written before it was requested. After a failed flush the dirty pages
can be read, but are never written to the device. Completions come through `call_later`, delayed and
in any order. After a crash, files and pending completions belong to a dead process: using such a
file is an error of the test.
"""

import errno
import random
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from enum import Enum
from typing import Final

from odradek.log.disk import Data, DirectoryEntry, Done, File, ReadDone, StorageError
from odradek.model.clock import WallMs
from odradek.sim.world.descriptors import Descriptors
from odradek.sim.world.stored import Content, Directory, Node, used_bytes

UNLIMITED: Final = 1 << 40
_GIVEN_UP: Final = 16  # files that are closed when no descriptor is free
# Operations of which some errors leave nothing; all others may have changed something.
_ERRORS: Final[Mapping[str, Callable[[str, int], StorageError]]] = {
    "open": StorageError.of_open,
    "create": StorageError.of_open,
    **dict.fromkeys(("read", "size", "list", "statvfs"), StorageError.of_read),
}


class Crash(Enum):
    """What a crash ends."""

    PROCESS = "kill -9"
    POWER = "power loss"


class SimulatedCrash(BaseException):
    """Raised by the operation that `crash_after` chose. No `except Exception` catches it."""


@dataclass(slots=True)
class DiskFault:
    """A failing operation: the first `after` calls succeed, then `times` calls fail."""

    operation: str  # write, read, flush, rename, list, ...; "" for each
    path: str  # a part of the path
    errno: int = errno.EIO
    after: int = 0
    times: int = 1

    def strikes(self, operation: str, path: str) -> bool:
        """Whether this operation fails now; counts it."""
        if self.operation not in ("", operation) or self.path not in path or not self.times:
            return False
        if self.after:
            self.after -= 1
            return False
        self.times -= 1
        return True


class SimulatedFile:
    """A file of a `SimulatedDisk`."""

    __slots__ = ("_content", "_crashes", "_disk", "path")

    def __init__(self, disk: "SimulatedDisk", path: str, content: Content | None = None) -> None:
        self.path = path
        self._disk = disk
        self._crashes = disk.crashes
        self._content = content

    def write(self, position: int, buffers: Sequence[Data]) -> None:
        content = self._use("write")
        data = b"".join(buffers)
        allowed = self._disk.before_writing(content, position, data)
        if position > len(content.data):
            content.data.extend(bytes(position - len(content.data)))
        content.data[position : position + allowed] = data[:allowed]
        content.touch(position, position + allowed)
        content.mtime_ms = self._disk.wall_ms()
        self._disk.after_writing(self.path, allowed, len(data))

    def read(self, position: int, length: int) -> Data | None:
        if self._disk.is_cold():
            self._use("read")
            return None
        return self.read_now(position, length)

    def read_into(self, position: int, into: memoryview) -> bool:
        found = self.read(position, len(into))
        if found is None or len(found) != len(into):
            return False
        into[:] = found
        return True

    def send(self, position: int, length: int, to: int) -> int:  # noqa: ARG002
        return 0  # there are no sockets

    def read_now(self, position: int, length: int) -> Data:
        return bytes(self._use("read").data[position : position + length])

    def read_later(self, position: int, length: int, done: ReadDone) -> None:
        """See `File`. Reads this file, even if its name is removed or reused meanwhile."""

        def finish() -> None:
            try:
                self._disk.strike("read", self.path)
            except StorageError as error:
                done(error)
            else:
                done(bytes(content.data[position : position + length]))

        try:
            content = self.content()
        except StorageError as error:
            self._disk.complete_later(lambda error=error: done(error))  # type: ignore[misc]
        else:
            self._disk.complete_later(finish)

    def size(self) -> int:
        return len(self._use("size").data)

    def mtime_ms(self) -> int:
        return self._use("size").mtime_ms

    def truncate(self, size: int) -> None:
        content = self._use("truncate")
        self._disk.mutate(self.path)
        content.resize(size)
        content.mtime_ms = self._disk.wall_ms()

    def pin(self) -> int:
        self.content()
        return -1

    def unpin(self) -> None:
        """See `File`."""

    def rest(self) -> None:
        self._content = None
        self._disk.opened.pop(self, None)

    def content(self) -> Content:
        """The file's content, looked up once and then kept like a file descriptor."""
        assert self._crashes == self._disk.crashes, f"{self.path} belongs to a dead process"
        if self._content is None:
            self._disk.need("open", self.path)
            self._content = self._disk.content(self.path)
            self._disk.keep_open(self)
        return self._content

    def _use(self, operation: str) -> Content:
        content = self.content()
        self._disk.strike(operation, self.path)
        return content


class SimulatedLock:
    """See `odradek.log.disk.Lock`."""

    def __init__(self, held: set[str], path: str) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        self._held.discard(self._path)


class SimulatedDisk:
    """A filesystem in memory; the module's docstring describes its faults."""

    def __init__(
        self,
        rng: random.Random,
        call_later: Callable[[float, Callable[[], None]], object],
        *,
        wall_ms: Callable[[], WallMs] = lambda: WallMs(0),
        slowest_ms: int = 20,
        cold_share: float = 0.0,
        capacity_bytes: int = UNLIMITED,
    ) -> None:
        self.crashes = 0  # the number of crashes
        self.operations = 0  # the number of changes
        self.on_crash: Callable[[], None] = lambda: None  # called just before `SimulatedCrash`
        self.faults: list[DiskFault] = []
        self.opened: dict[SimulatedFile, None] = {}
        self.descriptors: Descriptors | None = None  # None: there are always enough
        self.files_max = UNLIMITED  # above it, the file that was opened first is closed
        self.wall_ms = wall_ms
        self.slowest_ms = slowest_ms
        self.cold_share = cold_share
        self.capacity_bytes = capacity_bytes
        self.rng = rng
        self._call_later = call_later
        self._crash_at: int | None = None
        self._root = Directory()
        self._found: dict[str, Directory] = {}  # by path, until a directory is renamed or removed
        self._locked: set[str] = set()

    # ---- what a test does to it

    def crash(self, mode: Crash) -> None:
        """Kill the process or fail the power; afterwards the disk is as the next start finds it."""
        self.crashes += 1
        self._crash_at = None
        self._locked.clear()
        self._found.clear()
        self.opened.clear()
        if mode is Crash.POWER:
            self._root.lose_power(self.rng)

    def crash_after(self, operations: int) -> None:
        """Raise `SimulatedCrash` within the n-th change from now."""
        self._crash_at = self.operations + operations

    def replace_with_empty(self) -> None:
        """Replace the disk with an empty one, while no process runs."""
        self._root = Directory()
        self._found.clear()

    def copy(self, path: str = "/", *, is_torn: bool = False) -> Directory:
        """A backup of a directory; `is_torn`: a snapshot of the device while the process writes."""
        backup = deepcopy(self._directory(path) if path != "/" else self._root)
        if is_torn:
            backup.lose_power(self.rng)
        return backup

    def put_back(self, backup: Directory, path: str = "/") -> None:
        """Replace a directory by a backup, while no process runs."""
        if path == "/":
            self._root = deepcopy(backup)
        else:
            parent, name = self._locate(path)
            parent.change((name, deepcopy(backup)))
            parent.keep(len(parent.pending))
        self._found.clear()

    def rest_all(self) -> None:
        """Close all open files, as a process that needs their descriptors may."""
        for file in list(self.opened):
            file.rest()

    def lose(self, path: str) -> None:
        """Let everything below a path fail from now on."""
        self.faults.append(DiskFault("", path, times=1 << 60))

    # ---- files

    def file(self, path: str) -> SimulatedFile:
        return SimulatedFile(self, path)

    def create(self, path: str) -> SimulatedFile:
        self.need("create", path)
        self.mutate(path)
        directory, name = self._locate(path)
        content = directory.entries.get(name)
        if isinstance(content, Directory):
            raise StorageError(path, errno.EISDIR)
        if content is None:
            content = Content(mtime_ms=self.wall_ms())
            directory.change((name, content))
        else:
            content.resize(0)
        file = SimulatedFile(self, path, content)
        self.keep_open(file)
        return file

    def read_file(self, path: str) -> bytes | None:
        self.need("open", path)
        self.strike("read", path)
        directory, name = self._locate(path)
        node = directory.entries.get(name)
        return bytes(node.data) if isinstance(node, Content) else None

    def replace_now(self, path: str, data: bytes) -> None:
        self._write_beside(path, data)
        self._start_flush(_parent(path), opens=False)()

    def _write_beside(self, path: str, data: bytes) -> None:
        temporary = f"{path}.tmp"
        self.need("open", _parent(path))
        file = self.create(temporary)
        file.write(0, (data,))
        self.flush_now([file])
        file.rest()
        self.rename(temporary, path)

    def replace_later(self, path: str, data: bytes, done: Done) -> None:
        """See `Disk`. Replaced at once, to keep the order; durable when `done` is called."""
        try:
            self._write_beside(path, data)
            keep = self._start_flush(_parent(path), opens=False)
        except StorageError as error:
            self.complete_later(lambda error=error: done(error))  # type: ignore[misc]
        else:
            self._flush_later([keep], done)

    # ---- directories

    def list(self, path: str) -> list[DirectoryEntry]:
        self.need("list", path)
        return [
            DirectoryEntry(name, is_dir=False, size=len(node.data), mtime_ms=node.mtime_ms)
            if isinstance(node, Content)
            else DirectoryEntry(name, is_dir=True, size=4096, mtime_ms=0)
            for name, node in sorted(self._directory(path).entries.items())
        ]

    def read_ahead(self, directories: Sequence[str]) -> None:
        """Nothing: there is no page cache."""

    def exists(self, path: str) -> bool:
        try:
            directory, name = self._locate(path)
        except StorageError:
            return False
        return name in directory.entries

    def mkdir(self, path: str) -> None:
        self.strike("mkdir", path)
        directory = self._root
        for name in path.strip("/").split("/"):
            node = directory.entries.get(name)
            if node is None:
                self.mutate(path)
                node = Directory()
                directory.change((name, node))
            if isinstance(node, Content):
                raise StorageError(path, errno.ENOTDIR)
            directory = node

    def rename(self, old: str, new: str) -> None:
        self.strike("rename", old)
        directory, old_name = self._locate(old)
        assert _parent(old) == _parent(new), (old, new)
        node = directory.entries.get(old_name)
        if node is None:
            raise StorageError(old, errno.ENOENT)
        self.mutate(old)
        if isinstance(node, Directory):
            self._found.clear()
        directory.change((old_name, None), (new.rpartition("/")[2], node))

    def unlink(self, path: str) -> None:
        self.strike("unlink", path)
        if self.exists(path):
            directory, name = self._locate(path)
            self.mutate(path)
            if isinstance(directory.entries[name], Directory):
                self._found.clear()
            directory.change((name, None))

    def remove(self, paths: Sequence[str], done: Done) -> None:

        def finish() -> None:
            try:
                for path in paths:
                    self.unlink(path)
            except StorageError as error:
                done(error)
            else:
                done(None)

        self.complete_later(finish)

    # ---- durability

    def flush(self, targets: Sequence[File | str], done: Done) -> None:
        try:
            keep = [self._start_flush(target) for target in targets]
        except StorageError as error:
            self.complete_later(lambda error=error: done(error))  # type: ignore[misc]
        else:
            self._flush_later(keep, done)

    def _flush_later(self, keep: Sequence[Callable[[], None]], done: Done) -> None:
        def finish() -> None:
            try:
                for make_durable in keep:
                    make_durable()
            except StorageError as error:
                done(error)
            else:
                done(None)

        self.complete_later(finish)

    def flush_now(self, targets: Sequence[File | str]) -> None:
        for target in targets:
            self._start_flush(target)()

    def _start_flush(self, target: File | str, *, opens: bool = True) -> Callable[[], None]:
        if isinstance(target, str):
            if opens:
                self.need("open", target)
            directory, count = self._directory(target), len(self._directory(target).pending)
            return lambda: self._finish_flush(target, lambda: directory.keep(count))
        assert isinstance(target, SimulatedFile)
        content = target.content()
        sectors, size, writes = sorted(content.dirty), len(content.data), content.writes

        def keep() -> None:
            content.keep(sectors, size, up_to_write=writes)

        return lambda: self._finish_flush(target.path, keep, content)

    def _finish_flush(
        self, path: str, keep: Callable[[], None], content: Content | None = None
    ) -> None:
        try:
            self.strike("flush", path)
        except StorageError:
            if content is not None:
                content.dirty.clear()
            raise
        self.mutate(path)
        keep()

    # ---- the rest

    def lock(self, path: str) -> SimulatedLock | None:
        if not self.exists(path):
            self.create(path)
        if path in self._locked:
            return None
        self._locked.add(path)
        return SimulatedLock(self._locked, path)

    def usable_bytes(self, path: str) -> int:
        self.strike("statvfs", path)
        return self.capacity_bytes - used_bytes(self._root)

    def total_bytes(self, path: str) -> int:
        self.strike("statvfs", path)
        return self.capacity_bytes

    # ---- how it is done

    def complete_later(self, finish: Callable[[], None]) -> None:
        """Call back after a delay, unless the process has died by then."""
        crashes = self.crashes

        def run() -> None:
            if crashes == self.crashes:
                finish()

        self._call_later(self.rng.uniform(0, self.slowest_ms) / 1000, run)

    def is_cold(self) -> bool:
        """Whether the next read misses the page cache."""
        return self.cold_share > 0 and self.rng.random() < self.cold_share

    def need(self, operation: str, path: str) -> None:
        """Fail if an operation finds no free descriptor, as `RealDisk` does.

        Some files that were opened first are closed before; not for the list of a directory.
        """
        self.strike(operation, path)
        held = self.descriptors
        if held is None or held.is_free():
            return
        if operation != "list":
            for file in list(self.opened)[:_GIVEN_UP]:
                file.rest()
            if held.is_free():
                return
        held.fail(f"{operation} of {path}")
        raise _ERRORS[operation](path, errno.EMFILE)

    def keep_open(self, file: SimulatedFile) -> None:
        """A file has opened a descriptor: another one may have to close its own."""
        self.opened[file] = None
        if len(self.opened) > self.files_max:
            next(iter(self.opened)).rest()

    @property
    def open_files(self) -> int:
        """The number of its descriptors."""
        return len(self.opened) + len(self._locked)

    def strike(self, operation: str, path: str) -> None:
        """Raise the error of a matching fault, if there is one."""
        for fault in self.faults:
            if fault.strikes(operation, path):
                raise _ERRORS.get(operation, StorageError)(path, fault.errno)

    def mutate(self, path: str) -> None:
        """Count a change, and crash instead of it if `crash_after` has chosen it."""
        self.operations += 1
        self._crash_if_due(path)

    def before_writing(self, content: Content, position: int, data: bytes) -> int:
        """How many bytes of a write are written."""
        self.operations += 1
        if self._crash_at is not None and self.operations > self._crash_at:
            return self.rng.choice((0, self.rng.randint(0, len(data)), len(data)))
        growth = position + len(data) - len(content.data)
        if growth > 0 and self.capacity_bytes < UNLIMITED:
            left = self.capacity_bytes - used_bytes(self._root)
            return len(data) if growth <= left else max(0, len(data) - growth + left)
        return len(data)

    def after_writing(self, path: str, written: int, requested: int) -> None:
        """Raise the error of an incomplete write."""
        self._crash_if_due(path)
        if written < requested:
            raise StorageError(path, errno.ENOSPC)

    def _crash_if_due(self, path: str) -> None:
        if self._crash_at is not None and self.operations > self._crash_at:
            self.on_crash()
            raise SimulatedCrash(path)

    def content(self, path: str) -> Content:
        """The content of the file at a path."""
        directory, name = self._locate(path)
        node = directory.entries.get(name)
        if not isinstance(node, Content):
            raise StorageError(path, errno.ENOENT)
        return node

    def _directory(self, path: str) -> Directory:
        found = self._found.get(path)
        if found is None:
            found = self._found[path] = self._walk(path)
        return found

    def _walk(self, path: str) -> Directory:
        node: Node = self._root
        for name in filter(None, path.split("/")):
            found = node.entries.get(name) if isinstance(node, Directory) else None
            if found is None:
                raise StorageError(path, errno.ENOENT)
            node = found
        if isinstance(node, Content):
            raise StorageError(path, errno.ENOTDIR)
        return node

    def _locate(self, path: str) -> tuple[Directory, str]:
        parent, _, name = path.rpartition("/")
        return self._directory(parent), name


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
