"""A log directory (one of `log.dirs`): its lock, its owner, and the names of what is in it.

    .lock                     held while a broker runs on it
    meta.properties           its owner: broker.id, cluster.id
    .kafka_cleanshutdown      written at a clean shutdown, removed at the next start: without it
                              the logs are recovered
    <checkpoints>             `odradek.log.checkpoints`
    odradek-store-counter     the broker's counter in the coordination store, as last written there
    <topic>-<n>/              a partition
    <topic>-<n>.<32 hex>-delete/   a partition that is being deleted
    <topic>-<n>.<32 hex>-future/   being copied here from another log directory
    <topic>-<n>.<32 hex>-stray/    replaced by another one of the same name: its topic was deleted
                                   while the broker did not run, or it held fewer records; kept

Anything with another name is ignored.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

from odradek.config.properties import parse, render
from odradek.log.checkpoints import NUMBER_MAX, CheckpointError, decode_offsets, encode_offsets
from odradek.log.disk import DirectoryEntry, Disk, Done, Lock, StorageError
from odradek.model.errors import StartupError
from odradek.model.partition import TopicPartition

LOCK_FILE: Final = ".lock"
META_FILE: Final = "meta.properties"
CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"
COUNTER_FILE: Final = "odradek-store-counter"
NO_EPOCH: Final = -1
NAME_CHARS_MAX: Final = 255
_PARTITION: Final = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<number>\d{1,10})")
_MARKED: Final = re.compile(rf"{_PARTITION.pattern}\.(?P<id>[0-9a-f]{{32}})-(?P<mark>\w+)")


class Mark(Enum):
    """The suffix of a partition's directory, and what it means."""

    NONE = ""
    DELETE = "delete"
    FUTURE = "future"
    STRAY = "stray"


_LOADED: Final = {Mark.NONE, Mark.FUTURE}
# Logs are read ahead by a thread's call for 16, up to 64 before the one that is being loaded.
_AT_ONCE: Final = 16
_AHEAD: Final = 64
_MARKS: Final = {mark.value: mark for mark in Mark if mark is not Mark.NONE}


class PartitionDirectory(NamedTuple):
    """A directory with the name of a partition."""

    partition: TopicPartition
    mark: Mark


class KeptCounter(NamedTuple):
    """A broker's counter in the coordination store, as its disks have it."""

    written: int = -1  # the store has acknowledged this value; -1: none
    begun: int = -1  # and may have this one, if no acknowledgement arrived


class MetaProperties(NamedTuple):
    """The owner of a log directory."""

    broker_id: int
    cluster_id: str


# ------------------------------------------------------------------------------------- names


def parse_name(name: str) -> PartitionDirectory | None:
    """The partition and mark of a directory by its name; None for any other name."""
    mark = _MARKS.get(name.rpartition("-")[2], Mark.NONE)
    found = None if mark is Mark.NONE else _MARKED.fullmatch(name)
    if found is None:
        mark, found = Mark.NONE, _PARTITION.fullmatch(name)
    if found is None or int(found["number"]) > NUMBER_MAX:
        return None
    partition = TopicPartition(found["topic"], int(found["number"]))
    return (
        PartitionDirectory(partition, mark)
        if mark is not Mark.NONE or name == str(partition)
        else None
    )


def marked_name(partition: TopicPartition, mark: Mark, unique_id: int) -> str:
    """The name of a marked directory; a long topic name is cut to the limit of a file name."""
    suffix = f"-{partition.partition}.{unique_id:032x}-{mark.value}"
    return partition.topic[: NAME_CHARS_MAX - len(suffix)] + suffix


# --------------------------------------------------------------------------------- directories


class LogDirectory:
    """One directory of `log.dirs` on its disk."""

    def __init__(self, path: str, disk: Disk) -> None:
        self.path = path
        self.is_offline = False
        self.is_loaded = False  # all its partitions are loaded
        self.is_new = False  # it had no meta.properties when it was opened
        self.was_clean = False  # the last shutdown was clean
        self.clean_epoch = NO_EPOCH  # the broker epoch of that shutdown, if recorded
        self.counter = KeptCounter()  # as read at the start
        self._disk = disk
        self._lock: Lock | None = None
        self.strays = 0  # number of its partition directories that were set aside
        self._written: dict[str, Mapping[TopicPartition, int]] = {}
        # The possible content of each checkpoint file: what is durable, then what is being written.
        self._may_say: dict[str, list[Mapping[TopicPartition, int]]] = {}

    def lock(self) -> None:
        """Take the lock.

        Raises:
            StartupError: another process holds it.
        """
        self._make()
        self._lock = self._disk.lock(self._file(LOCK_FILE))
        if self._lock is None:
            raise StartupError(
                f"{self.path} is locked: another broker uses it. Stop that broker, or give this "
                f"one other log.dirs"
            )

    def _make(self) -> None:
        parents = []
        missing = self.path
        while missing and not self._disk.exists(missing):
            missing = missing.rpartition("/")[0]
            parents.append(missing or "/")
        self._disk.mkdir(self.path)
        self._disk.flush_now(parents)

    def open(self) -> list[DirectoryEntry]:
        """Find out whether the last shutdown was clean. Returns the entries of the directory."""
        entries = self._disk.list(self.path)
        self.is_new = all(entry.name != META_FILE for entry in entries)
        self.was_clean = any(entry.name == CLEAN_SHUTDOWN_FILE for entry in entries)
        if self.was_clean:
            self.clean_epoch = _epoch_of(self._disk.read_file(self._file(CLEAN_SHUTDOWN_FILE)))
            self._disk.unlink(self._file(CLEAN_SHUTDOWN_FILE))
        self.counter = _counter_of(self._disk.read_file(self._file(COUNTER_FILE)))
        # Durable before anything is written, so that the file is not back after a power failure;
        # also if an earlier process has removed the file and stopped at once.
        self._disk.flush_now([self.path])
        return entries

    def partitions(self, entries: list[DirectoryEntry]) -> Iterator[tuple[str, PartitionDirectory]]:
        """The partition directories among its entries; a number of them is read ahead."""
        found = list(partition_directories(entries))
        logs = [self._file(name) for name, each in found if each.mark in _LOADED]
        for begin in range(_AT_ONCE, _AHEAD, _AT_ONCE):
            self._read_ahead(logs[begin : begin + _AT_ONCE])
        for number, each in enumerate(found):
            if not number % _AT_ONCE:
                begin = number + _AHEAD
                self._read_ahead(logs[begin : begin + _AT_ONCE])
            yield each

    def _read_ahead(self, logs: Sequence[str]) -> None:
        if logs:
            self._disk.read_ahead(logs)

    def mark_clean(self, broker_epoch: int) -> None:
        mark = f'{{"version":0,"brokerEpoch":{broker_epoch}}}'
        self._disk.replace_now(self._file(CLEAN_SHUTDOWN_FILE), mark.encode())

    def keep_counter_now(self, counter: KeptCounter) -> None:
        """Write the broker's counter in the coordination store; waits for the device."""
        self._disk.replace_now(self._file(COUNTER_FILE), _encoded(counter))

    def keep_counter(self, counter: KeptCounter, done: Done) -> None:
        """Write the broker's counter in the coordination store, in a thread."""
        self._disk.replace_later(self._file(COUNTER_FILE), _encoded(counter), done)

    def release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def identity(self) -> MetaProperties | None:
        """The owner in meta.properties; None if the file does not exist.

        Raises:
            StartupError: the file is damaged, or another kind of broker wrote it.
        """
        path = self._file(META_FILE)
        data = self._disk.read_file(path)
        if data is None:
            return None
        properties = parse(data.decode("utf-8", "replace"))
        if properties.get("version") == "1" or "node.id" in properties:
            raise StartupError(
                f"{path} belongs to a KRaft broker (version 1). This broker needs ZooKeeper or its "
                f"own coordination store: give it log.dirs of its own"
            )
        try:
            if properties["version"] == "0":
                return MetaProperties(
                    int(properties["broker.id"]), properties.get("cluster.id", "")
                )
        except (KeyError, ValueError):
            pass
        raise StartupError(
            f"{path}: {properties} is not version=0, broker.id=<number>, cluster.id=<id>; restore "
            f"the file, or move the directory away"
        )

    def is_there(self) -> bool:
        """Whether its meta.properties exists: the directory may be removed, or unmounted."""
        return self._disk.exists(self._file(META_FILE))

    def check(self, identity: MetaProperties) -> None:
        """Check that this broker owns it, or that it has no owner.

        Raises:
            StartupError: another broker or cluster owns it.
        """
        found = self.identity()
        if found is None:
            return
        if found.broker_id != identity.broker_id:
            raise StartupError(
                f"{self.path} belongs to broker {found.broker_id}; broker.id="
                f"{identity.broker_id}. Set broker.id={found.broker_id}, or give this broker "
                f"log.dirs of its own"
            )
        if found.cluster_id not in ("", identity.cluster_id):
            raise StartupError(
                f"{self.path} belongs to cluster {found.cluster_id}; the coordination store is "
                f"that of cluster {identity.cluster_id}. Check zookeeper.connect; or, if these "
                f"records are not needed, empty the directory"
            )

    def claim(self, identity: MetaProperties) -> None:
        """Make this broker the owner, if it has none."""
        found = self.identity()
        if found is not None and found.cluster_id:
            return
        properties = {"version": "0", "broker.id": str(identity.broker_id)}
        properties["cluster.id"] = identity.cluster_id
        self._disk.replace_now(self._file(META_FILE), render(properties).encode())

    # ---- checkpoints

    def read_checkpoint(self, name: str) -> dict[TopicPartition, int]:
        """The offsets in a checkpoint file; a damaged one has none, so that all start from 0."""
        try:
            offsets = decode_offsets(self._disk.read_file(self._file(name)) or b"")
        except CheckpointError:
            offsets = {}
        self._may_say[name] = [offsets]
        return offsets

    def checkpoints_with(self, partitions: Sequence[TopicPartition]) -> list[str]:
        """The checkpoint files that may contain any of these partitions after a crash."""
        return [
            name
            for name, texts in self._may_say.items()
            if any(not offsets.keys().isdisjoint(partitions) for offsets in texts)
        ]

    def write_checkpoint(self, name: str, offsets: dict[TopicPartition, int], done: Done) -> None:
        """Write a checkpoint file, if its content changes."""
        if self._written.get(name) != offsets:
            self.rewrite_checkpoint(name, offsets, done)

    def rewrite_checkpoint(self, name: str, offsets: dict[TopicPartition, int], done: Done) -> None:
        """Write a checkpoint file; when `done` is called, no older content can be read again."""
        self._written[name] = offsets
        texts = self._may_say.setdefault(name, [])
        texts.append(offsets)

        def written(error: StorageError | None) -> None:
            if error is not None:
                self._forget_written(name, offsets)
            else:
                found = [number for number, text in enumerate(texts) if text is offsets]
                del texts[: found[0] if found else 0]
            done(error)

        self._disk.replace_later(self._file(name), encode_offsets(offsets), written)

    def write_checkpoint_now(self, name: str, offsets: dict[TopicPartition, int]) -> None:
        self._written[name] = offsets
        self._may_say.setdefault(name, []).append(offsets)
        try:
            self._disk.replace_now(self._file(name), encode_offsets(offsets))
        except StorageError:
            self._forget_written(name, offsets)
            raise
        self._may_say[name] = [offsets]

    def _forget_written(self, name: str, offsets: dict[TopicPartition, int]) -> None:
        """Let the next checkpoint be written even if its content is that of the failed one."""
        if self._written.get(name) is offsets:
            del self._written[name]

    def _file(self, name: str) -> str:
        return f"{self.path}/{name}"


def partition_directories(
    entries: list[DirectoryEntry],
) -> Iterator[tuple[str, PartitionDirectory]]:
    """The partition directories among the entries, with their names."""
    for entry in entries:
        found = parse_name(entry.name) if entry.is_dir else None
        if found is not None:
            yield entry.name, found


def _epoch_of(mark: bytes | None) -> int:
    """The broker epoch in .kafka_cleanshutdown; older versions write an empty file."""
    try:
        epoch = json.loads(mark or b"{}").get("brokerEpoch", NO_EPOCH)
    except (ValueError, AttributeError):
        return NO_EPOCH
    return epoch if type(epoch) is int else NO_EPOCH


def _encoded(counter: KeptCounter) -> bytes:
    fields = {"version": 1, "written": counter.written, "begun": counter.begun}
    return json.dumps(fields).encode()


def _counter_of(data: bytes | None) -> KeptCounter:
    """The counter in its file; a missing or damaged file has none."""
    try:
        fields = json.loads(data or b"{}")
        kept = KeptCounter(fields["written"], fields["begun"])
    except (ValueError, KeyError, TypeError):
        return KeptCounter()
    return kept if all(type(number) is int for number in kept) else KeptCounter()
