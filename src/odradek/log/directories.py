"""A log directory (one of `log.dirs`): who may use it, and how what lies in it is called.

    .lock                     held while a broker runs on it
    meta.properties           whose it is: broker.id, cluster.id
    .kafka_cleanshutdown      written at a clean stop, removed at the next start, so that its
                              absence says: recover
    <checkpoints>             `odradek.log.checkpoints`
    <topic>-<n>/              a partition
    <topic>-<n>.<32 hex>-delete/   is being deleted
    <topic>-<n>.<32 hex>-future/   is being copied here from another directory
    <topic>-<n>.<32 hex>-stray/    gave way to another of the same name: its topic was deleted
                                   while the broker was away, or it held less; left alone

What is named otherwise is left alone.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

from odradek.config.properties import parse, render
from odradek.log.checkpoints import CheckpointError, decode_offsets, encode_offsets
from odradek.log.disk import Disk, Done, Entry, Lock, StorageError
from odradek.model.errors import StartupError
from odradek.model.partition import TopicPartition

LOCK_FILE: Final = ".lock"
META_FILE: Final = "meta.properties"
CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"
NO_EPOCH: Final = -1
NAME_CHARS_MAX: Final = 255
_PARTITION: Final = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<number>\d{1,10})")
_MARKED: Final = re.compile(rf"{_PARTITION.pattern}\.(?P<id>[0-9a-f]{{32}})-(?P<mark>\w+)")


class Mark(Enum):
    """What is with a partition's directory."""

    NONE = ""
    DELETE = "delete"
    FUTURE = "future"
    STRAY = "stray"


class PartitionDirectory(NamedTuple):
    """A directory that is named like a partition's."""

    partition: TopicPartition
    mark: Mark


class Identity(NamedTuple):
    """Whose a log directory is."""

    broker_id: int
    cluster_id: str


# ------------------------------------------------------------------------------------- names


def parse_name(name: str) -> PartitionDirectory | None:
    """What a directory is by its name; None if it is nobody's business here."""
    for mark in (Mark.DELETE, Mark.FUTURE, Mark.STRAY):
        if name.endswith(f"-{mark.value}") and (found := _MARKED.fullmatch(name)):
            return PartitionDirectory(TopicPartition(found["topic"], int(found["number"])), mark)
    if found := _PARTITION.fullmatch(name):
        partition = TopicPartition(found["topic"], int(found["number"]))
        return PartitionDirectory(partition, Mark.NONE) if name == str(partition) else None
    return None


def marked_name(partition: TopicPartition, mark: Mark, unique_id: int) -> str:
    """The name of a directory on its way in or out; the topic's is cut to what a file may have."""
    suffix = f"-{partition.partition}.{unique_id:032x}-{mark.value}"
    return partition.topic[: NAME_CHARS_MAX - len(suffix)] + suffix


# --------------------------------------------------------------------------------- directories


class LogDirectory:
    """One directory of `log.dirs`."""

    def __init__(self, path: str, disk: Disk) -> None:
        self.path = path
        self.is_offline = False
        self.is_loaded = False  # all that lies in it is known
        self.is_new = False  # nothing said whose it was when it was opened
        self.was_clean = False  # the broker before us stopped as it should
        self.clean_epoch = NO_EPOCH  # in this broker epoch, if it says so
        self._disk = disk
        self._lock: Lock | None = None
        self.strays = 0  # how many logs lie in it that were set aside
        self._written: dict[str, Mapping[TopicPartition, int]] = {}
        # What each checkpoint file may say: what is durable, and then what is being written.
        self._may_say: dict[str, list[Mapping[TopicPartition, int]]] = {}

    def lock(self) -> None:
        """Keep others out.

        Raises:
            StartupError: somebody else is using it.
        """
        self._make()
        self._lock = self._disk.lock(self._file(LOCK_FILE))
        if self._lock is None:
            raise StartupError(
                f"{self.path} is locked: a broker is running on it. Stop that one, or give this "
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

    def open(self) -> list[Entry]:
        """Take note whether it was left cleanly. Returns what stands in it."""
        entries = self._disk.list(self.path)
        self.is_new = all(entry.name != META_FILE for entry in entries)
        self.was_clean = any(entry.name == CLEAN_SHUTDOWN_FILE for entry in entries)
        if self.was_clean:
            self.clean_epoch = _epoch_of(self._disk.read_file(self._file(CLEAN_SHUTDOWN_FILE)))
            self._disk.unlink(self._file(CLEAN_SHUTDOWN_FILE))
        # Durably, before anything is written: it must not come back after a power loss. Nor if it
        # was a life before this one that removed it, and died at once.
        self._disk.flush_now([self.path])
        return entries

    def mark_clean(self, broker_epoch: int) -> None:
        """Say that all was written as it should, in that life of the broker."""
        mark = f'{{"version":0,"brokerEpoch":{broker_epoch}}}'
        self._disk.replace_now(self._file(CLEAN_SHUTDOWN_FILE), mark.encode())

    def release(self) -> None:
        """Let others in."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def identity(self) -> Identity | None:
        """Whose it is, None if nobody has said so yet.

        Raises:
            StartupError: it is not one of ours to use.
        """
        path = self._file(META_FILE)
        data = self._disk.read_file(path)
        if data is None:
            return None
        properties = parse(data.decode("utf-8", "replace"))
        if properties.get("version") == "1" or "node.id" in properties:
            raise StartupError(
                f"{path} is of a KRaft broker (version 1). This broker lives with ZooKeeper or "
                f"with a store of its own: give it log.dirs of its own"
            )
        try:
            if properties["version"] == "0":
                return Identity(int(properties["broker.id"]), properties.get("cluster.id", ""))
        except (KeyError, ValueError):
            pass
        raise StartupError(
            f"{path}: {properties} is not version=0, broker.id=<number>, cluster.id=<id>; restore "
            f"the file, or move the directory away"
        )

    def is_there(self) -> bool:
        """Whether what makes it a log directory stands in it: it may be removed, or unmounted."""
        return self._disk.exists(self._file(META_FILE))

    def check(self, identity: Identity) -> None:
        """See that it is that broker's, or nobody's.

        Raises:
            StartupError: it is another's.
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
                f"that of cluster {identity.cluster_id}. Check zookeeper.connect; or, if the "
                f"records may go, empty the directory"
            )

    def claim(self, identity: Identity) -> None:
        """Make it that broker's, if it is nobody's."""
        found = self.identity()
        if found is not None and found.cluster_id:
            return
        properties = {"version": "0", "broker.id": str(identity.broker_id)}
        properties["cluster.id"] = identity.cluster_id
        self._disk.replace_now(self._file(META_FILE), render(properties).encode())

    # ---- checkpoints

    def read_checkpoint(self, name: str) -> dict[TopicPartition, int]:
        """The offsets in a checkpoint file. A damaged one says nothing: all starts from 0."""
        try:
            offsets = decode_offsets(self._disk.read_file(self._file(name)) or b"")
        except CheckpointError:
            offsets = {}
        self._may_say[name] = [offsets]
        return offsets

    def checkpoints_with(self, partitions: Sequence[TopicPartition]) -> list[str]:
        """The checkpoint files that may speak of any of these: who starts now may read it."""
        return [
            name
            for name, texts in self._may_say.items()
            if any(not offsets.keys().isdisjoint(partitions) for offsets in texts)
        ]

    def write_checkpoint(self, name: str, offsets: dict[TopicPartition, int], done: Done) -> None:
        """Write a checkpoint file, if it says anything new."""
        if self._written.get(name) != offsets:
            self.rewrite_checkpoint(name, offsets, done)

    def rewrite_checkpoint(self, name: str, offsets: dict[TopicPartition, int], done: Done) -> None:
        """Write a checkpoint file; when `done` is told, nothing older is in force any more."""
        self._written[name] = offsets
        texts = self._may_say.setdefault(name, [])
        texts.append(offsets)

        def written(error: StorageError | None) -> None:
            if error is None:
                found = [number for number, text in enumerate(texts) if text is offsets]
                del texts[: found[0] if found else 0]
            done(error)

        self._disk.replace_later(self._file(name), encode_offsets(offsets), written)

    def write_checkpoint_now(self, name: str, offsets: dict[TopicPartition, int]) -> None:
        """The same, waiting."""
        self._written[name] = offsets
        self._may_say.setdefault(name, []).append(offsets)
        self._disk.replace_now(self._file(name), encode_offsets(offsets))
        self._may_say[name] = [offsets]

    def _file(self, name: str) -> str:
        return f"{self.path}/{name}"


def partition_directories(entries: list[Entry]) -> Iterator[tuple[str, PartitionDirectory]]:
    """Those of the entries that are a partition's, with their names."""
    for entry in entries:
        found = parse_name(entry.name) if entry.is_dir else None
        if found is not None:
            yield entry.name, found


def _epoch_of(mark: bytes | None) -> int:
    """The broker epoch in a mark of a clean stop; older ones are empty."""
    try:
        epoch = json.loads(mark or b"{}").get("brokerEpoch", NO_EPOCH)
    except (ValueError, AttributeError):
        return NO_EPOCH
    return epoch if type(epoch) is int else NO_EPOCH
