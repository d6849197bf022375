"""What clients have sent and received, and which contradictions are violations.

Every record has a unique key (`p3/1234`) and a value derived from the key, so a reader can check
which client has sent it and whether it is intact. Compared, as soon as they are observed, are

    one offset, one record    in acknowledgements, by all readers, on all disks, before and after a
                              crash
    sent once, stored once    for idempotent producers
    nothing else              every record that is read was sent, to this partition
    offsets                   the HW never decreases, the log start offset not while a broker runs
    deleted is deleted        no topic id is seen again after its deletion was acknowledged

Expected losses are recorded explicitly: `cut` when the power failed, `delete_asked` when a client
deletes records, `has_retention` for topics with retention.

A partition with several replicas guarantees less about uncommitted records, and more about
committed ones. An offset is bound to its record once it was acknowledged with acks=all or read by a
consumer; before, a later leader may write another record there. A batch on disk has a leader epoch,
and that epoch has one record at an offset, on all disks (log matching). Nothing is ever cut: one
power loss at a time loses no record that was acknowledged with acks=all.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple
from zlib import crc32

from odradek.record.batch import BatchHeader, Bytes, CorruptBatchError, has_valid_crc, iter_batches
from odradek.record.message_set import iter_messages
from odradek.record.message_set import iter_records as message_records
from odradek.record.records import iter_records

_FILLER: Final = b"the quick brown fox jumps over the lazy dog. " * 16

PartitionKey = tuple[bytes, int]  # topic id, partition


def value_of(key: bytes) -> bytes:
    """The value that belongs to a key."""
    return key + _FILLER[: crc32(key) % 300]


@lru_cache(maxsize=100_000)
def _keys_in(batch: bytes) -> tuple[bytes | None, ...]:
    """The keys of the records of a batch; None for one whose value does not match."""
    return tuple(
        record.key if record.key and record.value == value_of(record.key) else None
        for record in iter_records(batch)
    )


def read_batches(data: memoryview) -> Iterator[tuple[BatchHeader, tuple[bytes | None, ...]]]:
    """Each complete batch with a valid checksum, and the keys of its records; ends at the first
    other.

    A control batch has no keys. The result is cached by the bytes after the base offset, which the
    checksum does not cover.
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


def read_messages(data: Bytes) -> Iterator[tuple[int, bytes | None]]:
    """Offset and key of each record of a message set; None for one whose value does not match.

    Raises:
        CorruptBatchError, InvalidRecordError: it is damaged, or of format v2.
    """
    for message in iter_messages(data):
        for record in message_records(message):
            is_whole = record.key and record.value == value_of(record.key)
            yield record.offset, record.key if is_whole else None


@dataclass(slots=True)
class Topic:
    """One topic id: a topic from its creation to its deletion."""

    name: str
    id: bytes
    partitions: int
    has_retention: bool = False
    replicas: int = 1
    is_doomed: bool = False  # its deletion was requested
    is_deleted: bool = False  # ... and acknowledged


@dataclass(slots=True)
class Facts:
    """What is known about one partition of one topic id."""

    topic: Topic
    index: int
    at: dict[int, bytes] = field(default_factory=dict)  # offset -> key
    offset_of: dict[bytes, int] = field(default_factory=dict)  # of idempotent producers' records
    acked: set[int] = field(default_factory=set)
    cuts: int = 0  # the number of power losses that truncated it
    delete_asked: int = 0  # records below it may be deleted
    high_watermark: int = 0  # the highest one in a response
    log_start: int = 0  # the highest one in a response, in this process of its broker
    served_by: object = None  # the process and leader epoch of `log_start`
    written: dict[tuple[int, int], bytes] = field(default_factory=dict)  # by offset and epoch
    # The highest one in a response, by process and leader epoch.
    high_watermarks: dict[object, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.topic.name}-{self.index}"


class History:
    """Everything that happened in one simulation, from the clients' view."""

    def __init__(self, violated: Callable[[str], None]) -> None:
        self.topics: dict[str, Topic] = {}  # by name, those that exist now
        self.by_id: dict[bytes, Topic] = {}
        self.being_made: set[str] = set()  # names that were requested without a response
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
        """A topic was created."""
        self.being_made.discard(name)
        topic = Topic(name, topic_id, partitions, has_retention=retention, replicas=replicas)
        self.topics[name] = self.by_id[topic_id] = topic
        return topic

    def topic_deleted(self, topic: Topic) -> None:
        """The deletion of a topic was acknowledged."""
        topic.is_deleted = True
        if self.topics.get(topic.name) is topic:
            del self.topics[topic.name]

    def topic_seen(self, topic_id: bytes, where: str) -> None:
        """A response or a disk contains a topic id."""
        topic = self.by_id.get(topic_id)
        # With an offline replica, the response only means that the deletion is stored.
        if topic is not None and topic.is_deleted and topic.replicas == 1:
            self._violated(f"{where} shows {topic.name}, whose deletion was acknowledged")

    def of(self, topic: Topic, index: int) -> Facts:
        """What is known about a partition."""
        facts = self.facts.get((topic.id, index))
        if facts is None:
            facts = self.facts[topic.id, index] = Facts(topic, index)
        return facts

    # ------------------------------------------------------------------------- records

    def sending(self, key: bytes, topic: Topic, index: int, *, idempotent: bool) -> None:
        """A record is sent for the first time."""
        self.sent += 1
        self._destinations[key] = (topic.name, index, idempotent)

    def acked(
        self, facts: Facts, base_offset: int, keys: Sequence[bytes], *, by_all: bool = True
    ) -> None:
        """Records were acknowledged, with acks=all (`by_all`) or by the leader alone."""
        self.acknowledged += len(keys)
        if facts.topic.replicas > 1 and not by_all:
            return
        for offset, key in enumerate(keys, base_offset):
            self._stands(facts, offset, key, "an acknowledgement")
            facts.acked.add(offset)

    def seen(self, facts: Facts, offset: int, key: bytes | None, where: str) -> None:
        """A record was read."""
        self.read += 1
        if key is not None and facts.at.get(offset) == key:
            return  # checked before
        whole = self._whole(facts, offset, key, where)
        if whole is not None:
            self._stands(facts, offset, whole, where)

    def on_disk(
        self, facts: Facts, offset: int, leader_epoch: int, key: bytes | None, where: str
    ) -> None:
        """A record is on a disk, in a batch of that leader epoch."""
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
        """The key, if the record is intact and was sent to this partition; else None."""
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
                f"{facts}: {key!r} of an idempotent producer is at "
                f"{facts.offset_of[key]} and, by {where}, at {offset}"
            )

    def cut(self, facts: Facts, end_offset: int) -> None:
        """The power failed, and records from this offset on are lost: others may follow there."""
        facts.cuts += 1
        facts.high_watermark = min(facts.high_watermark, end_offset)
        for offset in [offset for offset in facts.at if offset >= end_offset]:
            key = facts.at.pop(offset)
            facts.acked.discard(offset)
            if facts.offset_of.get(key) == offset:
                del facts.offset_of[key]

    # ---------------------------------------------------------------------- watermarks

    def floor(self, facts: Facts, served_by: object) -> "Floor":
        """The lower bounds for the response to a request that is sent now."""
        log_start = facts.log_start if facts.served_by == served_by else 0
        high_watermark = facts.high_watermark
        if facts.topic.replicas > 1:  # a new leader's HW may be lower for a while
            high_watermark = facts.high_watermarks.get(served_by, 0)
        return Floor(served_by, facts.cuts, high_watermark, log_start)

    def watermarks(
        self, facts: Facts, floor: "Floor", *, high_watermark: int, log_start: int, where: str
    ) -> None:
        """A response contains the HW and the log start offset."""
        if facts.cuts != floor.cuts:
            return
        self._must_not_fall("high watermark", facts, floor.high_watermark, high_watermark, where)
        self._must_not_fall("log start", facts, floor.log_start, log_start, where)
        facts.high_watermark = max(facts.high_watermark, high_watermark)
        if facts.topic.replicas > 1:
            known = facts.high_watermarks.get(floor.served_by, 0)
            facts.high_watermarks[floor.served_by] = max(known, high_watermark)
        # Log start offsets are only checkpointed at times: a crash may bring records back.
        same_term = facts.served_by == floor.served_by
        facts.log_start = max(facts.log_start, log_start) if same_term else log_start
        facts.served_by = floor.served_by
        if log_start > facts.delete_asked and not facts.topic.has_retention:
            self._violated(
                f"{facts}: {where} has log start offset {log_start}; no client deleted "
                f"beyond {facts.delete_asked}"
            )

    def _must_not_fall(self, what: str, facts: Facts, floor: int, value: int, where: str) -> None:
        if value < floor:
            self._violated(f"{facts}: {where} answers {what} {value}; it was {floor}")


class Floor(NamedTuple):
    """The lower bounds of a response: what was known when the request was sent."""

    served_by: object
    cuts: int
    high_watermark: int
    log_start: int
