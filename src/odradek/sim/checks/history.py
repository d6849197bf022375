"""What clients did and saw, and what must never be among it.

Every record has a key of its own (`p3/1234`) and a value that follows from the key, so whoever
reads one knows who sent it and whether it is whole. Held against each other at once, as things are
seen, are

    one offset, one record    whoever says so: an acknowledgement, any reader, a disk, before and
                              after a crash
    sent once, there once     for idempotent producers
    nothing from nowhere      every record that is read was sent, to this partition
    watermarks                the HW never goes back, the log's start not while a broker lives
    deleted is deleted        no topic id is seen again after its deletion was acknowledged

What may be forgotten is said, not guessed: `cut` when the power failed, `delete_asked` when
somebody asked for it, `has_retention` where time passes.

A partition with several replicas promises less about what is not committed, and more about what
is. An offset has its record once that was acknowledged by all or read by a consumer; before, a
newer leader may put another there. What a disk holds is of one leader epoch, and that epoch has
one record at an offset, on whichever disk (log matching). Nothing is ever cut: one power loss at a
time takes nothing that was acknowledged by all.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple
from zlib import crc32

from odradek.record.batch import BatchHeader, CorruptBatchError, has_valid_crc, iter_batches
from odradek.record.records import iter_records

_FILLER: Final = b"the quick brown fox jumps over the lazy dog. " * 16

PartitionKey = tuple[bytes, int]  # topic id, partition


def value_of(key: bytes) -> bytes:
    """The value that belongs to a key."""
    return key + _FILLER[: crc32(key) % 300]


@lru_cache(maxsize=100_000)
def _keys_in(batch: bytes) -> tuple[bytes | None, ...]:
    """The keys of the records of a batch; None for one whose value is not its own."""
    return tuple(
        record.key if record.key and record.value == value_of(record.key) else None
        for record in iter_records(batch)
    )


def read_batches(data: memoryview) -> Iterator[tuple[BatchHeader, tuple[bytes | None, ...]]]:
    """Each whole batch with a good checksum, and the keys of its records; ends at the first other.

    A marker has no keys.

    The base offset stands outside the checksum, and the records are the same wherever they stand.
    """
    try:
        for position, header in iter_batches(data):
            if not has_valid_crc(data, position, header):
                return
            if header.is_control:
                yield header, ()
                continue
            batch = data[position + 16 : position + header.size_bytes]
            yield header, _keys_in(bytes(8) + header.length.to_bytes(4) + bytes(4) + bytes(batch))
    except CorruptBatchError:
        return


@dataclass(slots=True)
class Topic:
    """One incarnation of a topic."""

    name: str
    id: bytes
    partitions: int
    has_retention: bool = False
    replicas: int = 1
    is_doomed: bool = False  # somebody has asked for its deletion
    is_deleted: bool = False  # ... and heard that it is done


@dataclass(slots=True)
class Facts:
    """What is known of one partition of one incarnation."""

    topic: Topic
    index: int
    at: dict[int, bytes] = field(default_factory=dict)  # offset -> key
    offset_of: dict[bytes, int] = field(default_factory=dict)  # of idempotent producers' records
    acked: set[int] = field(default_factory=set)
    cuts: int = 0  # how often the power took the end of it
    delete_asked: int = 0  # up to where somebody asked to delete records
    high_watermark: int = 0  # the highest that anybody was told
    log_start: int = 0  # likewise, in this life of its broker
    life: object = None
    written: dict[tuple[int, int], bytes] = field(default_factory=dict)  # by offset and epoch
    reigns: dict[object, int] = field(default_factory=dict)  # the high watermark told in each

    def __str__(self) -> str:
        return f"{self.topic.name}-{self.index}"


class History:
    """All that happened in one simulation, as its clients know it."""

    def __init__(self, violated: Callable[[str], None]) -> None:
        self.topics: dict[str, Topic] = {}  # the present incarnations
        self.by_id: dict[bytes, Topic] = {}
        self.being_made: set[str] = (
            set()
        )  # names that were asked for, nobody knows with what result
        self.facts: dict[PartitionKey, Facts] = {}
        self.sent = 0
        self.acknowledged = 0
        self.read = 0
        self._violated = violated
        self._destinations: dict[bytes, tuple[str, int, bool]] = {}  # by record key

    # -------------------------------------------------------------------------- topics

    def topic_made(
        self, name: str, topic_id: bytes, partitions: int, *, retention: bool, replicas: int = 1
    ) -> Topic:
        """A topic exists."""
        self.being_made.discard(name)
        topic = Topic(name, topic_id, partitions, has_retention=retention, replicas=replicas)
        self.topics[name] = self.by_id[topic_id] = topic
        return topic

    def topic_deleted(self, topic: Topic) -> None:
        """Its deletion was acknowledged."""
        topic.is_deleted = True
        if self.topics.get(topic.name) is topic:
            del self.topics[topic.name]

    def topic_seen(self, topic_id: bytes, where: str) -> None:
        """Somebody says that there is such a topic."""
        topic = self.by_id.get(topic_id)
        # With a replica offline, the answer says only that the deletion is noted.
        if topic is not None and topic.is_deleted and topic.replicas == 1:
            self._violated(f"{where} shows {topic.name}, whose deletion was acknowledged")

    def of(self, topic: Topic, index: int) -> Facts:
        """What is known of a partition."""
        facts = self.facts.get((topic.id, index))
        if facts is None:
            facts = self.facts[topic.id, index] = Facts(topic, index)
        return facts

    # ------------------------------------------------------------------------- records

    def sending(self, key: bytes, topic: Topic, index: int, *, idempotent: bool) -> None:
        """A record is on its way, for the first time."""
        self.sent += 1
        self._destinations[key] = (topic.name, index, idempotent)

    def acked(
        self, facts: Facts, base_offset: int, keys: Sequence[bytes], *, by_all: bool = True
    ) -> None:
        """A producer was told that its records stand there, on all replicas in sync or on one."""
        self.acknowledged += len(keys)
        if facts.topic.replicas > 1 and not by_all:
            return
        for offset, key in enumerate(keys, base_offset):
            self._stands(facts, offset, key, "an acknowledgement")
            facts.acked.add(offset)

    def seen(self, facts: Facts, offset: int, key: bytes | None, where: str) -> None:
        """Somebody has read a record."""
        self.read += 1
        if key is not None and facts.at.get(offset) == key:
            return  # known to be whole, and to stand there
        whole = self._whole(facts, offset, key, where)
        if whole is not None:
            self._stands(facts, offset, whole, where)

    def on_disk(
        self, facts: Facts, offset: int, leader_epoch: int, key: bytes | None, where: str
    ) -> None:
        """A disk holds a record, written in that epoch."""
        if facts.topic.replicas == 1:
            self.seen(facts, offset, key, where)
            return
        whole = self._whole(facts, offset, key, where)
        if whole is None:
            return
        known = facts.written.setdefault((offset, leader_epoch), whole)
        if known != whole:
            self._violated(
                f"{facts} at {offset}: {where} has {whole!r} of leader epoch {leader_epoch}; "
                f"elsewhere that epoch wrote {known!r} there"
            )

    def _whole(self, facts: Facts, offset: int, key: bytes | None, where: str) -> bytes | None:
        """The key, if the record is as it was sent, and to this partition."""
        if key is None:
            self._violated(f"{facts} at {offset}: {where} has a value that is not its key's")
            return None
        destination = self._destinations.get(key)
        if destination is None or destination[:2] != (facts.topic.name, facts.index):
            self._violated(f"{facts} at {offset}: {where} has {key!r}, sent to {destination}")
            return None
        return key

    def _stands(self, facts: Facts, offset: int, key: bytes, where: str) -> None:
        known = facts.at.setdefault(offset, key)
        if known != key:
            self._violated(f"{facts} at {offset}: {where} has {key!r}; it was {known!r}")
        if self._destinations[key][2] and facts.offset_of.setdefault(key, offset) != offset:
            self._violated(
                f"{facts}: {key!r} of an idempotent producer stands at "
                f"{facts.offset_of[key]} and, says {where}, at {offset}"
            )

    def cut(self, facts: Facts, end_offset: int) -> None:
        """The power failed, and what stood from there on is lost: others may take its place."""
        facts.cuts += 1
        facts.high_watermark = min(facts.high_watermark, end_offset)
        for offset in [offset for offset in facts.at if offset >= end_offset]:
            key = facts.at.pop(offset)
            facts.acked.discard(offset)
            if facts.offset_of.get(key) == offset:
                del facts.offset_of[key]

    # ---------------------------------------------------------------------- watermarks

    def floor(self, facts: Facts, life: object) -> "Floor":
        """What a request that is sent now, to a broker in that life, must at least be told."""
        log_start = facts.log_start if facts.life == life else 0
        high_watermark = facts.high_watermark
        if facts.topic.replicas > 1:  # the next leader may know less for a moment
            high_watermark = facts.reigns.get(life, 0)
        return Floor(life, facts.cuts, high_watermark, log_start)

    def watermarks(
        self, facts: Facts, floor: "Floor", *, high_watermark: int, log_start: int, where: str
    ) -> None:
        """Somebody was told how far it may be read, and from where on."""
        if facts.cuts != floor.cuts:
            return
        self._must_not_fall("high watermark", facts, floor.high_watermark, high_watermark, where)
        self._must_not_fall("log start", facts, floor.log_start, log_start, where)
        facts.high_watermark = max(facts.high_watermark, high_watermark)
        if facts.topic.replicas > 1:
            known = facts.reigns.get(floor.life, 0)
            facts.reigns[floor.life] = max(known, high_watermark)
        # Where a log starts is written now and then only: a crash may bring records back.
        same_life = facts.life == floor.life
        facts.log_start = max(facts.log_start, log_start) if same_life else log_start
        facts.life = floor.life
        if log_start > facts.delete_asked and not facts.topic.has_retention:
            self._violated(
                f"{facts}: {where} says that it starts at {log_start}; nobody asked to delete "
                f"beyond {facts.delete_asked}"
            )

    def _must_not_fall(self, what: str, facts: Facts, floor: int, told: int, where: str) -> None:
        if told < floor:
            self._violated(f"{facts}: {where} says {what} {told}; it was {floor}")


class Floor(NamedTuple):
    """What was known when a question was asked: no answer may fall below it."""

    life: object
    cuts: int
    high_watermark: int
    log_start: int
