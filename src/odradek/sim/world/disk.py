"""A disk that forgets what was not flushed, tears what was being written, and fails on order.

It keeps the contract of `odradek.log.disk.Disk` (one test suite for both) and is a function of
the `random.Random` it is given. What a crash leaves:

    PROCESS   the page cache: all that was written, though a write under way may be torn
    POWER     of each file what was flushed, and of the rest any prefix or any subset of its
              512-byte sectors, with zeros or nothing in the gaps and at the end; of each
              directory what was flushed, and of the later creations, renames and removals
              the first few. A truncation that is lost takes with it what was written behind
              the cut, for journalling filesystems do not mix the two

A flush makes durable what was written before it was asked for. A flush that failed has lost
its pages: they read as written, yet nothing will ever write them. Completions come through
`call_later`, late and in any order. After a crash all files and pending completions belong to
a dead process: using such a file is an error of the test.
"""

import errno
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeAlias

from odradek.log.disk import Data, DirectoryEntry, Done, File, ReadDone, StorageError
from odradek.model.clock import WallMs

SECTOR_BYTES: Final = 512
UNLIMITED: Final = 1 << 40


class Crash(Enum):
    """What dies."""

    PROCESS = "kill -9"
    POWER = "power loss"


class SimulatedCrash(BaseException):
    """The moment of `crash_after` has come. Not an Exception: no code of ours survives it."""


@dataclass(slots=True)
class Fault:
    """An operation that fails: after some that succeed, as many times as said."""

    operation: str  # write, read, flush, rename, list, ...; "" for each
    path: str  # that contains this
    errno: int = errno.EIO
    after: int = 0
    times: int = 1

    def strikes(self, operation: str, path: str) -> bool:
        """Whether this operation fails."""
        if self.operation not in ("", operation) or self.path not in path or not self.times:
            return False
        if self.after:
            self.after -= 1
            return False
        self.times -= 1
        return True


@dataclass(slots=True, eq=False)
class Content:
    """One file's bytes: as read, and as the platter has them."""

    data: bytearray = field(default_factory=bytearray)
    stable: bytearray = field(default_factory=bytearray)
    dirty: dict[int, int] = field(default_factory=dict)  # sector -> the write that touched it
    cuts: list[tuple[int, int]] = field(default_factory=list)  # write and size, not yet flushed
    writes: int = 0
    kept_up_to: int = 0  # the write up to which the device has it all
    mtime_ms: int = 0
    # What an onlooker has made of the first bytes, and of how many: until one of these changes.
    known: object = None
    known_bytes: int = 0

    def resize(self, size: int) -> None:
        """Cut it, or fill it up with zeros."""
        before = len(self.data)
        _resize(self.data, size)
        self.touch(min(before, size), max(before, size))
        if size < before:
            self.cuts.append((self.writes, size))

    def touch(self, start: int, end: int) -> None:
        """These bytes are other ones now."""
        self.writes += 1
        if start < self.known_bytes:
            self.known, self.known_bytes = None, 0
        for sector in range(start // SECTOR_BYTES, -(-end // SECTOR_BYTES)):
            self.dirty[sector] = self.writes

    def keep(self, sectors: Sequence[int], size: int, *, up_to_write: int) -> None:
        """The device has these sectors, and knows of that size."""
        if up_to_write < self.kept_up_to:
            size = len(self.stable)  # a flush that began later has ended sooner
        size = min(size, len(self.data))
        self.kept_up_to = max(self.kept_up_to, up_to_write)
        self.cuts = [cut for cut in self.cuts if cut[0] > up_to_write]
        _resize(self.stable, size)
        for sector in sectors:
            start = sector * SECTOR_BYTES
            end = min(start + SECTOR_BYTES, size)
            if start < end:
                self.stable[start:end] = self.data[start:end]
            if self.dirty.get(sector, up_to_write + 1) <= up_to_write:
                del self.dirty[sector]

    def lose_power(self, rng: random.Random) -> None:
        """What was not flushed may be gone."""
        dirty = sorted(self.dirty)
        match rng.randrange(4):
            case 0:
                kept: list[int] = []
            case 1:
                kept = dirty
            case 2:
                kept = dirty[: rng.randint(0, len(dirty))]
            case _:
                kept = [sector for sector in dirty if rng.random() < 0.5]
        if self.cuts:
            cut = min(size for _, size in self.cuts)
            if rng.random() < 0.5:
                _resize(self.stable, min(cut, len(self.stable)))
            else:
                kept = [sector for sector in kept if (sector + 1) * SECTOR_BYTES <= cut]
                self.data = self.data[:cut] + self.stable[cut:]
        self.cuts = []
        for sector in kept:
            start = sector * SECTOR_BYTES
            chunk = self.data[start : start + SECTOR_BYTES]
            if chunk and len(self.stable) < start:
                _resize(self.stable, start)
            self.stable[start : start + len(chunk)] = chunk
        if rng.random() < 0.5:
            # The size is the inode's and travels by itself: zeros where it ran ahead of the data.
            _resize(self.stable, len(self.data))
        self.data, self.dirty = bytearray(self.stable), {}
        self.known, self.known_bytes = None, 0
        self.kept_up_to = self.writes


Node: TypeAlias = "Content | _Directory"


@dataclass(slots=True, eq=False)
class _Directory:
    """Names: as listed, as the platter has them, and what lies between, in order."""

    entries: dict[str, Node] = field(default_factory=dict)
    stable: dict[str, Node] = field(default_factory=dict)
    pending: "list[list[tuple[str, Node | None]]]" = field(default_factory=list)

    def change(self, *changes: "tuple[str, Node | None]") -> None:
        _apply(self.entries, changes)
        self.pending.append(list(changes))

    def keep(self, count: int) -> None:
        for changes in self.pending[:count]:
            _apply(self.stable, changes)
        del self.pending[:count]

    def lose_power(self, rng: random.Random) -> None:
        self.keep(rng.randint(0, len(self.pending)))
        self.pending.clear()
        self.entries = dict(self.stable)
        for name in sorted(self.entries):
            self.entries[name].lose_power(rng)


class SimulatedFile:
    """A file of a `SimulatedDisk`."""

    __slots__ = ("_content", "_disk", "_life", "path")

    def __init__(self, disk: "SimulatedDisk", path: str) -> None:
        self.path = path
        self._disk = disk
        self._life = disk.life
        self._content: Content | None = None

    def write(self, position: int, buffers: Sequence[Data]) -> None:
        """See `File`."""
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
        """See `File`."""
        if self._disk.is_cold():
            self._use("read")
            return None
        return self.read_now(position, length)

    def read_now(self, position: int, length: int) -> Data:
        """See `File`."""
        return bytes(self._use("read").data[position : position + length])

    def read_later(self, position: int, length: int, done: ReadDone) -> None:
        """See `File`. Whatever becomes of the name meanwhile, it is this file that is read."""

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
        """See `File`."""
        return len(self._use("size").data)

    def mtime_ms(self) -> int:
        """See `File`."""
        return self._use("size").mtime_ms

    def truncate(self, size: int) -> None:
        """See `File`."""
        content = self._use("truncate")
        self._disk.mutate(self.path)
        content.resize(size)
        content.mtime_ms = self._disk.wall_ms()

    def pin(self) -> int:
        """See `File`."""
        return -1

    def unpin(self) -> None:
        """See `File`."""

    def rest(self) -> None:
        """See `File`."""
        self._content = None

    def content(self) -> Content:
        """What this names, found once and then held like a descriptor."""
        assert self._life == self._disk.life, f"{self.path} belongs to a process that died"
        if self._content is None:
            self._content = self._disk.content(self.path)
        return self._content

    def _use(self, operation: str) -> Content:
        self._disk.strike(operation, self.path)
        return self.content()


class SimulatedLock:
    """See `Lock`."""

    def __init__(self, held: set[str], path: str) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        """See `Lock`."""
        self._held.discard(self._path)


class SimulatedDisk:
    """A filesystem in memory. See this module's docstring for what makes it interesting."""

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
        self.life = 0  # counts crashes
        self.operations = 0  # counts what changes the disk
        self.on_crash: Callable[[], None] = lambda: None  # told just before `SimulatedCrash`
        self.faults: list[Fault] = []
        self.wall_ms = wall_ms
        self.slowest_ms = slowest_ms
        self.cold_share = cold_share
        self.capacity_bytes = capacity_bytes
        self._rng = rng
        self._call_later = call_later
        self._crash_at: int | None = None
        self._root = _Directory()
        self._found: dict[str, _Directory] = {}  # by path, until a directory moves or goes
        self._locked: set[str] = set()

    # ---- what a test does to it

    def crash(self, mode: Crash) -> None:
        """The process dies, or the power fails. The disk is then as the next start finds it."""
        self.life += 1
        self._crash_at = None
        self._locked.clear()
        self._found.clear()
        if mode is Crash.POWER:
            self._root.lose_power(self._rng)

    def crash_after(self, operations: int) -> None:
        """Raise `SimulatedCrash` within the operation after so many that change something."""
        self._crash_at = self.operations + operations

    def replace_with_empty(self) -> None:
        """While no process runs: somebody puts another disk in its place."""
        self._root = _Directory()
        self._found.clear()

    def lose(self, path: str) -> None:
        """From now on everything under that path fails."""
        self.faults.append(Fault("", path, times=1 << 60))

    # ---- files

    def file(self, path: str) -> SimulatedFile:
        """See `Disk`."""
        return SimulatedFile(self, path)

    def create(self, path: str) -> SimulatedFile:
        """See `Disk`."""
        self.strike("create", path)
        self.mutate(path)
        directory, name = self._locate(path)
        content = directory.entries.get(name)
        if isinstance(content, _Directory):
            raise StorageError(path, errno.EISDIR)
        if content is None:
            directory.change((name, Content(mtime_ms=self.wall_ms())))
        else:
            content.resize(0)
        return SimulatedFile(self, path)

    def read_file(self, path: str) -> bytes | None:
        """See `Disk`."""
        self.strike("read", path)
        directory, name = self._locate(path)
        node = directory.entries.get(name)
        return bytes(node.data) if isinstance(node, Content) else None

    def replace_now(self, path: str, data: bytes) -> None:
        """See `Disk`."""
        temporary = f"{path}.tmp"
        file = self.create(temporary)
        file.write(0, (data,))
        self.flush_now([file])
        self.rename(temporary, path)
        self.flush_now([_parent(path)])

    def replace_later(self, path: str, data: bytes, done: Done) -> None:
        """See `Disk`. Replaced at once, for order; durable when `done` says so."""
        try:
            file = self.create(f"{path}.tmp")
            file.write(0, (data,))
            self.flush_now([file])
            self.rename(f"{path}.tmp", path)
        except StorageError as error:
            self.complete_later(lambda error=error: done(error))  # type: ignore[misc]
        else:
            self.flush([_parent(path)], done)

    # ---- directories

    def list(self, path: str) -> list[DirectoryEntry]:
        """See `Disk`."""
        self.strike("list", path)
        return [
            DirectoryEntry(name, is_dir=False, size=len(node.data), mtime_ms=node.mtime_ms)
            if isinstance(node, Content)
            else DirectoryEntry(name, is_dir=True, size=4096, mtime_ms=0)
            for name, node in sorted(self._directory(path).entries.items())
        ]

    def exists(self, path: str) -> bool:
        """See `Disk`."""
        try:
            directory, name = self._locate(path)
        except StorageError:
            return False
        return name in directory.entries

    def mkdir(self, path: str) -> None:
        """See `Disk`."""
        self.strike("mkdir", path)
        directory = self._root
        for name in path.strip("/").split("/"):
            node = directory.entries.get(name)
            if node is None:
                self.mutate(path)
                node = _Directory()
                directory.change((name, node))
            if isinstance(node, Content):
                raise StorageError(path, errno.ENOTDIR)
            directory = node

    def rename(self, old: str, new: str) -> None:
        """See `Disk`."""
        self.strike("rename", old)
        directory, old_name = self._locate(old)
        assert _parent(old) == _parent(new), (old, new)
        node = directory.entries.get(old_name)
        if node is None:
            raise StorageError(old, errno.ENOENT)
        self.mutate(old)
        if isinstance(node, _Directory):
            self._found.clear()
        directory.change((old_name, None), (new.rpartition("/")[2], node))

    def unlink(self, path: str) -> None:
        """See `Disk`."""
        self.strike("unlink", path)
        if self.exists(path):
            directory, name = self._locate(path)
            self.mutate(path)
            if isinstance(directory.entries[name], _Directory):
                self._found.clear()
            directory.change((name, None))

    def remove(self, paths: Sequence[str], done: Done) -> None:
        """See `Disk`."""

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
        """See `Disk`."""
        try:
            keep = [self._start_flush(target) for target in targets]
        except StorageError as error:
            self.complete_later(lambda error=error: done(error))  # type: ignore[misc]
            return

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
        """See `Disk`."""
        for target in targets:
            self._start_flush(target)()

    def _start_flush(self, target: File | str) -> Callable[[], None]:
        if isinstance(target, str):
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
        """See `Disk`."""
        if not self.exists(path):
            self.create(path)
        if path in self._locked:
            return None
        self._locked.add(path)
        return SimulatedLock(self._locked, path)

    def usable_bytes(self, path: str) -> int:
        """See `Disk`."""
        self.strike("statvfs", path)
        return self.capacity_bytes - _used(self._root)

    def total_bytes(self, path: str) -> int:
        """See `Disk`."""
        self.strike("statvfs", path)
        return self.capacity_bytes

    # ---- how it is done

    def complete_later(self, finish: Callable[[], None]) -> None:
        """Call back after a while, unless the process is dead by then."""
        life = self.life

        def run() -> None:
            if life == self.life:
                finish()

        self._call_later(self._rng.uniform(0, self.slowest_ms) / 1000, run)

    def is_cold(self) -> bool:
        """Whether the next read finds its pages evicted."""
        return self.cold_share > 0 and self._rng.random() < self.cold_share

    def strike(self, operation: str, path: str) -> None:
        """Let an ordered fault happen."""
        for fault in self.faults:
            if fault.strikes(operation, path):
                raise StorageError(path, fault.errno)

    def mutate(self, path: str) -> None:
        """Count a change, and crash instead of it if its time has come."""
        self.operations += 1
        self._crash_if_due(path)

    def before_writing(self, content: Content, position: int, data: bytes) -> int:
        """How much of a write takes place."""
        self.operations += 1
        if self._crash_at is not None and self.operations > self._crash_at:
            return self._rng.choice((0, self._rng.randint(0, len(data)), len(data)))
        growth = position + len(data) - len(content.data)
        if growth > 0 and self.capacity_bytes < UNLIMITED:
            left = self.capacity_bytes - _used(self._root)
            return len(data) if growth <= left else max(0, len(data) - growth + left)
        return len(data)

    def after_writing(self, path: str, written: int, wanted: int) -> None:
        """What the writer hears of it."""
        self._crash_if_due(path)
        if written < wanted:
            raise StorageError(path, errno.ENOSPC)

    def _crash_if_due(self, path: str) -> None:
        if self._crash_at is not None and self.operations > self._crash_at:
            self.on_crash()
            raise SimulatedCrash(path)

    def content(self, path: str) -> Content:
        """The bytes of the file at a path."""
        directory, name = self._locate(path)
        node = directory.entries.get(name)
        if not isinstance(node, Content):
            raise StorageError(path, errno.ENOENT)
        return node

    def _directory(self, path: str) -> _Directory:
        found = self._found.get(path)
        if found is None:
            found = self._found[path] = self._walk(path)
        return found

    def _walk(self, path: str) -> _Directory:
        node: Node = self._root
        for name in filter(None, path.split("/")):
            found = node.entries.get(name) if isinstance(node, _Directory) else None
            if found is None:
                raise StorageError(path, errno.ENOENT)
            node = found
        if isinstance(node, Content):
            raise StorageError(path, errno.ENOTDIR)
        return node

    def _locate(self, path: str) -> tuple[_Directory, str]:
        parent, _, name = path.rpartition("/")
        return self._directory(parent), name


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _resize(data: bytearray, size: int) -> None:
    if size < len(data):
        del data[size:]
    else:
        data.extend(bytes(size - len(data)))


def _apply(entries: dict[str, Node], changes: "Sequence[tuple[str, Node | None]]") -> None:
    for name, node in changes:
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


def _used(node: Node) -> int:
    if isinstance(node, Content):
        return len(node.data)
    return sum(map(_used, node.entries.values()))
