"""The accumulated batches of one partition: waiting, in flight, and to be retried.

The records of an idempotent producer have sequence numbers per partition. Up to five batches may be
in flight; the leader accepts them only in order. Therefore a failed batch is sent again before any
new one, and never while an earlier one is in flight. If the outcome of a batch stays unknown, its
sequence numbers cannot be used for other records: the partition starts again at sequence 0 in a new
producer epoch (KIP-360), as soon as none of its batches is in flight.

A batch whose earlier attempt may have been written never gets new sequence numbers, because the
broker could not recognise it as a duplicate. Java's producer renumbers such a batch after
OUT_OF_ORDER_SEQUENCE_NUMBER; but a former leader that was paused returns that error, too:

1. Leader B writes batch 1.
2. B writes batch 2, and its response is lost.
3. The former leader A resumes, still in its old leader epoch, and receives batch 2: its log does
   not have batch 1.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from odradek.client.producer.settings import ProducerSettings
from odradek.model.partition import TopicPartition
from odradek.record.batch import (
    HEADER_BYTES,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    SEQUENCE_MAX,
)
from odradek.record.records import Record, build_batch

# Length, attributes, timestamp delta, offset delta, key length, value length, header count: Java's
# estimate, before the deltas are known.
RECORD_OVERHEAD_BYTES: Final = 21
_HEADER_OVERHEAD_BYTES: Final = 10


class RecordMetadata(NamedTuple):
    """Where a record was written. The offset is -1 if it is not known (acks=0)."""

    partition: TopicPartition
    offset: int
    timestamp: int


class ProducerIdAndEpoch(NamedTuple):
    """Producer id and epoch of a sender."""

    producer_id: int
    producer_epoch: int


NO_PRODUCER: Final = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


def size_of(record: Record) -> int:
    """An upper bound of a record's bytes in a batch."""
    size = RECORD_OVERHEAD_BYTES
    if record.key is not None:
        size += len(record.key)
    if record.value is not None:
        size += len(record.value)
    for name, value in record.headers:
        size += _HEADER_OVERHEAD_BYTES + len(name) + (len(value) if value is not None else 0)
    return size


def whole_size_of(record: Record) -> int:
    """An upper bound of the bytes of a batch with only this record: Java's size for its limits."""
    size = HEADER_BYTES + RECORD_OVERHEAD_BYTES
    for data in (record.key, record.value):
        size += 1 if data is None else _varint_bytes(len(data)) + len(data)
    size += _varint_bytes(len(record.headers))
    for name, value in record.headers:
        length = len(name.encode("utf-8", "surrogateescape"))
        size += _varint_bytes(length) + length
        size += 1 if value is None else _varint_bytes(len(value)) + len(value)
    return size


def _varint_bytes(value: int) -> int:
    return max(1, ((value << 1).bit_length() + 6) // 7)


@dataclass(slots=True, eq=False, repr=False)
class ProducerBatch:
    """Records of one partition that are sent together, and the callbacks for its completion.

    `await` waits for the completion, successful or not.
    """

    partition: TopicPartition
    created_s: float
    records: list[Record] = field(default_factory=list)
    size_bytes: int = HEADER_BYTES
    attempts: int = 0
    not_before_s: float = 0.0  # earliest time of the next attempt
    identity: ProducerIdAndEpoch = NO_PRODUCER
    base_sequence: int = NO_SEQUENCE
    encoded: bytes | bytearray | None = None
    is_done: bool = False
    is_in_doubt: bool = False  # an attempt may have been written, but its response was lost
    error: Exception | None = None
    base_offset: int = -1
    log_append_time_ms: int = -1
    waiting: list[Callable[["ProducerBatch"], None]] = field(default_factory=list)

    @property
    def record_count(self) -> int:
        return len(self.records)

    def encode(self, settings: ProducerSettings) -> bytes | bytearray:
        """The batch with its producer id, epoch and sequence numbers, compressed."""
        return build_batch(
            self.records,
            codec=settings.codec,
            levels=settings.levels,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            base_sequence=self.base_sequence,
            transactional=settings.transactional_id is not None,
        )

    def add(self, record: Record, size_bytes: int) -> int:
        """Append a record; returns its index in the batch."""
        self.records.append(record)
        self.size_bytes += size_bytes
        return len(self.records) - 1

    def finish(
        self,
        *,
        base_offset: int = -1,
        log_append_time_ms: int = -1,
        error: Exception | None = None,
    ) -> None:
        """Complete the batch, successfully or with an error, and run the callbacks. Idempotent."""
        if self.is_done:
            return
        self.is_done = True
        self.base_offset, self.log_append_time_ms = base_offset, log_append_time_ms
        self.error = error
        waiting, self.waiting = self.waiting, []
        for call in waiting:
            call(self)

    def metadata(self, index: int) -> RecordMetadata:
        """The metadata of the record at this index."""
        timestamp = self.log_append_time_ms
        if timestamp < 0:
            timestamp = self.records[index].timestamp
        offset = self.base_offset + index if self.base_offset >= 0 else -1
        return RecordMetadata(self.partition, offset, timestamp)

    def __await__(self) -> Generator[Any, None, None]:
        if not self.is_done:
            done = asyncio.get_running_loop().create_future()
            self.waiting.append(lambda _: None if done.done() else done.set_result(None))
            yield from done


class Delivery:
    """The future of one record: `await` it, or register a callback."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: ProducerBatch, index: int) -> None:
        self._batch = batch
        self._index = index

    @property
    def is_done(self) -> bool:
        """Whether the record was acknowledged or has failed."""
        return self._batch.is_done

    @property
    def error(self) -> Exception | None:
        """Why the record has failed; None if it has not."""
        return self._batch.error

    def result(self) -> RecordMetadata:
        """The record's metadata; only after it is done.

        Raises:
            the batch's error.
        """
        if self._batch.error is not None:
            raise self._batch.error
        return self._batch.metadata(self._index)

    def when_done(self, call: Callable[["Delivery"], None]) -> None:
        """Run a callback when the record is done, at once if it is done already."""
        if self._batch.is_done:
            call(self)
        else:
            self._batch.waiting.append(lambda _: call(self))

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        yield from self._batch.__await__()
        return self.result()


class PartitionQueue:
    """The batches of one partition, in the order in which they must be written."""

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.waiting: deque[ProducerBatch] = deque()
        self.under_way: list[ProducerBatch] = []
        self._identity = NO_PRODUCER
        self._next_sequence = 0
        self._last_acknowledged = NO_SEQUENCE
        self._must_begin_anew = False

    @property
    def is_idle(self) -> bool:
        """Whether no batch is waiting or in flight."""
        return not self.waiting and not self.under_way

    def append(
        self, record: Record, size_bytes: int, *, batch_bytes: int, now_s: float
    ) -> tuple[ProducerBatch, int]:
        """Append a record to the last batch, or to a new one. Returns the batch and the index."""
        last = self.waiting[-1] if self.waiting else None
        if last is None or last.attempts or last.size_bytes + size_bytes > batch_bytes:
            last = ProducerBatch(self.partition, now_s)
            self.waiting.append(last)
        return last, last.add(record, size_bytes)

    def due_s(self, *, batch_bytes: int, linger_s: float) -> float | None:
        """The earliest time to send the first waiting batch; None if no batch is waiting."""
        if not self.waiting:
            return None
        first = self.waiting[0]
        if first.attempts:
            return first.not_before_s
        full = len(self.waiting) > 1 or first.size_bytes >= batch_bytes
        return 0.0 if full else first.created_s + linger_s

    def may_send(self, *, in_flight_max: int) -> bool:
        """Whether the first waiting batch may be sent in addition to those in flight."""
        if not self.waiting or len(self.under_way) >= in_flight_max:
            return False
        return not self.under_way or not (self.waiting[0].attempts or self._must_begin_anew)

    def take(self, identity: ProducerIdAndEpoch) -> ProducerBatch:
        """Move the first waiting batch to those in flight; numbers it if idempotent."""
        batch = self.waiting.popleft()
        batch.attempts += 1
        if identity is not NO_PRODUCER:
            self._number(batch, identity)
        self.under_way.append(batch)
        return batch

    def _number(self, batch: ProducerBatch, identity: ProducerIdAndEpoch) -> None:
        numbered = batch.base_sequence != NO_SEQUENCE
        # A batch that was sent in the former epoch keeps its numbers, unless that epoch has failed.
        may_change = not self.under_way and (not numbered or self._must_begin_anew)
        may_change = may_change and not any(b.is_in_doubt for b in (batch, *self.waiting))
        if self._identity != identity and may_change:
            self._begin_anew(identity)
            numbered = False
        if numbered:
            return
        batch.identity = self._identity
        batch.base_sequence = self._next_sequence
        batch.encoded = None
        self._next_sequence = (self._next_sequence + batch.record_count) & SEQUENCE_MAX

    def _begin_anew(self, identity: ProducerIdAndEpoch) -> None:
        self._identity = identity
        self._next_sequence = 0
        self._last_acknowledged = NO_SEQUENCE
        self._must_begin_anew = False
        for batch in self.waiting:
            batch.base_sequence = NO_SEQUENCE
            batch.encoded = None

    # ---------------------------------------------------------------------- outcomes

    def acknowledged(self, batch: ProducerBatch) -> None:
        """A batch was written: it is not in flight any more."""
        self.under_way.remove(batch)
        if batch.identity == self._identity and batch.base_sequence != NO_SEQUENCE:
            self._last_acknowledged = (batch.base_sequence + batch.record_count - 1) & SEQUENCE_MAX

    def failed(self, batch: ProducerBatch) -> None:
        """A batch has failed for good: it is not in flight any more."""
        self.under_way.remove(batch)

    def again(self, batch: ProducerBatch, not_before_s: float) -> None:
        """Queue a failed batch for a retry, before all later batches."""
        self.under_way.remove(batch)
        batch.not_before_s = not_before_s
        later = 0
        for other in self.waiting:
            if not other.attempts or other.created_s > batch.created_s:
                break
            if _is_before(batch, other):
                break
            later += 1
        self.waiting.insert(later, batch)

    def split(self, batch: ProducerBatch) -> None:
        """A batch is too large for the broker: queue two halves with the same sequence numbers."""
        self.under_way.remove(batch)
        middle = len(batch.records) // 2
        halves = []
        for start, end in ((0, middle), (middle, len(batch.records))):
            half = ProducerBatch(batch.partition, batch.created_s)
            for record in batch.records[start:end]:
                half.add(record, size_of(record))
            half.attempts = 1
            half.identity = batch.identity
            half.is_in_doubt = batch.is_in_doubt
            if batch.base_sequence != NO_SEQUENCE:
                half.base_sequence = (batch.base_sequence + start) & SEQUENCE_MAX
            halves.append(half)
        _hand_on(batch, halves[0], halves[1], middle)
        self.waiting.extendleft(reversed(halves))

    def is_next(self, batch: ProducerBatch) -> bool:
        """Whether the batch is the next one in sequence after the last acknowledged one."""
        if self._last_acknowledged == NO_SEQUENCE:
            return batch.base_sequence == 0
        return batch.base_sequence == (self._last_acknowledged + 1) & SEQUENCE_MAX

    def begin_anew(self) -> None:
        """Restart the partition's sequence numbers at 0 in the next producer epoch."""
        self._must_begin_anew = True


def _is_before(batch: ProducerBatch, other: ProducerBatch) -> bool:
    if NO_SEQUENCE in (batch.base_sequence, other.base_sequence):
        return False
    # Sequence numbers wrap; those of waiting batches are less than half the range apart.
    return (other.base_sequence - batch.base_sequence) & SEQUENCE_MAX < SEQUENCE_MAX // 2


def _hand_on(
    batch: ProducerBatch, first: ProducerBatch, second: ProducerBatch, middle: int
) -> None:
    """Complete a batch that was split when both halves are done."""

    def half_done(_: ProducerBatch) -> None:
        if first.is_done and second.is_done:
            error = first.error or second.error
            base_offset = first.base_offset
            if error is None and second.base_offset not in (-1, base_offset + middle):
                base_offset = -1  # the halves are not adjacent: there is no common base offset
            batch.finish(
                base_offset=base_offset,
                log_append_time_ms=second.log_append_time_ms,
                error=error,
            )

    first.waiting.append(half_done)
    second.waiting.append(half_done)
