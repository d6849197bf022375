"""Files and directories of a simulated disk: what is in the page cache, and what on the device."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

SECTOR_BYTES: Final = 512


@dataclass(slots=True, eq=False)
class Content:
    """The bytes of one file: in the page cache, and on the device."""

    data: bytearray = field(default_factory=bytearray)
    stable: bytearray = field(default_factory=bytearray)
    dirty: dict[int, int] = field(default_factory=dict)  # sector -> the write that touched it
    cuts: list[tuple[int, int]] = field(default_factory=list)  # write and size, not yet flushed
    writes: int = 0
    kept_up_to: int = 0  # all writes up to this one are on the device
    mtime_ms: int = 0
    # A cache of a reader of the first bytes: valid until these bytes change.
    known: object = None
    known_bytes: int = 0

    def resize(self, size: int) -> None:
        """Truncate, or extend with zeros."""
        before = len(self.data)
        _resize(self.data, size)
        self.touch(min(before, size), max(before, size))
        if size < before:
            self.cuts.append((self.writes, size))

    def touch(self, start: int, end: int) -> None:
        """These bytes have changed."""
        self.writes += 1
        if start < self.known_bytes:
            self.known, self.known_bytes = None, 0
        for sector in range(start // SECTOR_BYTES, -(-end // SECTOR_BYTES)):
            self.dirty[sector] = self.writes

    def keep(self, sectors: Sequence[int], size: int, *, up_to_write: int) -> None:
        """Write these sectors and the size to the device."""
        if up_to_write < self.kept_up_to:
            size = len(self.stable)  # a later flush has ended earlier
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
        """Lose a random part of what was not flushed."""
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
            # The size is in the inode and is written independently: zeros where it is ahead.
            _resize(self.stable, len(self.data))
        self.data, self.dirty = bytearray(self.stable), {}
        self.known, self.known_bytes = None, 0
        self.kept_up_to = self.writes


Node: TypeAlias = "Content | Directory"


@dataclass(slots=True, eq=False)
class Directory:
    """Names: as listed, as on the device, and the ordered changes in between."""

    entries: dict[str, Node] = field(default_factory=dict)
    stable: dict[str, Node] = field(default_factory=dict)
    pending: "list[list[tuple[str, Node | None]]]" = field(default_factory=list)

    def change(self, *changes: "tuple[str, Node | None]") -> None:
        """Add, replace or (None) remove these names, as one change."""
        _apply(self.entries, changes)
        self.pending.append(list(changes))

    def keep(self, count: int) -> None:
        """Write the first `count` changes to the device."""
        for changes in self.pending[:count]:
            _apply(self.stable, changes)
        del self.pending[:count]

    def lose_power(self, rng: random.Random) -> None:
        """Lose the last changes, and of each file what was not flushed."""
        self.keep(rng.randint(0, len(self.pending)))
        self.pending.clear()
        self.entries = dict(self.stable)
        for name in sorted(self.entries):
            self.entries[name].lose_power(rng)


def used_bytes(node: Node) -> int:
    """What a file, or all files below a directory, take in the page cache."""
    if isinstance(node, Content):
        return len(node.data)
    return sum(map(used_bytes, node.entries.values()))


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
