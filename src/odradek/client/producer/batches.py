"""What a producer holds for one partition: batches that grow, wait, are sent and repeated. Pure.

An idempotent producer numbers its records for each partition. Up to five batches may be under way
at once; a leader takes them only in their order, so what failed is sent again before anything new,
and never while an earlier one is still under way. When the outcome of a batch stays unknown its
numbers cannot be used for others: the partition then begins at 0 again, in a new producer epoch
(KIP-360), as soon as nothing of it is under way.

A batch of which an earlier attempt may stand in the log is never numbered anew, or it would stand
there twice. Java's producer does that when a leader says OUT_OF_ORDER_SEQUENCE_NUMBER; but a leader
that was paused, and does not know yet that it was replaced, says so as well: 1. batch 1 is written
by leader B. 2. Batch 2 is written by B, whose answer is lost. 3. The old leader A goes on, still
holds itself for the leader, and is sent batch 2: it does not have batch 1.
"""

from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Final, NamedTuple

from odradek.model.partition import TopicPartition
from odradek.record.batch import (
    HEADER_BYTES,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    SEQUENCE_MAX,
)
from odradek.record.records import Record

# Length, attributes, timestamp, offset, key's and value's length, header count: as Java counts
# before it knows the deltas.
RECORD_OVERHEAD_BYTES: Final = 21
_HEADER_OVERHEAD_BYTES: Final = 10


class RecordMetadata(NamedTuple):
    """Where a record has gone. The offset is -1 where acks=0 does not tell."""

    partition: TopicPartition
    offset: int
    timestamp: int


class Identity(NamedTuple):
    """Who writes, in which of its lives."""

    producer_id: int
    producer_epoch: int


NOBODY: Final = Identity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


def size_of(record: Record) -> int:
    """The bytes of a record in a batch, at most."""
    size = RECORD_OVERHEAD_BYTES
    if record.key is not None:
        size += len(record.key)
    if record.value is not None:
        size += len(record.value)
    for name, value in record.headers:
        size += _HEADER_OVERHEAD_BYTES + len(name) + (len(value) if value is not None else 0)
    return size


def whole_size_of(record: Record) -> int:
    """The bytes of a batch with this record alone, at most: what Java holds against its limits."""
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


class Batch:
    """Records that travel together, and who waits for them."""

    __slots__ = (
        "attempts",
        "base_offset",
        "base_sequence",
        "created_s",
        "encoded",
        "error",
        "identity",
        "is_done",
        "is_in_doubt",
        "log_append_time_ms",
        "not_before_s",
        "partition",
        "records",
        "size_bytes",
        "waiting",
    )

    def __init__(self, partition: TopicPartition, created_s: float) -> None:
        self.partition = partition
        self.created_s = created_s
        self.records: list[Record] = []
        self.size_bytes = HEADER_BYTES
        self.attempts = 0
        self.not_before_s = 0.0  # after a failure
        self.identity = NOBODY
        self.base_sequence = NO_SEQUENCE
        self.encoded: bytes | None = None
        self.is_done = False
        self.is_in_doubt = False  # an attempt may have been written, without our being told
        self.error: Exception | None = None
        self.base_offset = -1
        self.log_append_time_ms = -1
        self.waiting: list[Callable[[Batch], None]] = []

    def add(self, record: Record, size_bytes: int) -> int:
        """One more record; returns its place."""
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
        """It is written, or never will be: everybody is told, once."""
        if self.is_done:
            return
        self.is_done = True
        self.base_offset, self.log_append_time_ms = base_offset, log_append_time_ms
        self.error = error
        waiting, self.waiting = self.waiting, []
        for told in waiting:
            told(self)

    def metadata(self, index: int) -> RecordMetadata:
        """Where the record at this place has gone."""
        timestamp = self.log_append_time_ms
        if timestamp < 0:
            timestamp = self.records[index].timestamp
        offset = self.base_offset + index if self.base_offset >= 0 else -1
        return RecordMetadata(self.partition, offset, timestamp)


class Delivery:
    """One record on its way: `await` it, or be called back."""

    __slots__ = ("_batch", "_index", "_wait")

    def __init__(
        self, batch: Batch, index: int, wait: Callable[[Batch], Generator[Any, None, None]]
    ) -> None:
        self._batch = batch
        self._index = index
        self._wait = wait

    @property
    def is_done(self) -> bool:
        """Whether it has arrived, or never will."""
        return self._batch.is_done

    @property
    def error(self) -> Exception | None:
        """Why it never will."""
        return self._batch.error

    def result(self) -> RecordMetadata:
        """Where it has gone; whoever asks knows that it is done.

        Raises:
            the batch's error.
        """
        if self._batch.error is not None:
            raise self._batch.error
        return self._batch.metadata(self._index)

    def when_done(self, call: Callable[["Delivery"], None]) -> None:
        """Call back when it is done, at once if it is."""
        if self._batch.is_done:
            call(self)
        else:
            self._batch.waiting.append(lambda _: call(self))

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        if not self._batch.is_done:
            yield from self._wait(self._batch)
        return self.result()


class PartitionQueue:
    """The batches of one partition, in the order in which they must be written."""

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.waiting: deque[Batch] = deque()
        self.under_way: list[Batch] = []
        self._identity = NOBODY
        self._next_sequence = 0
        self._last_acknowledged = NO_SEQUENCE
        self._must_begin_anew = False

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to be done."""
        return not self.waiting and not self.under_way

    def append(
        self, record: Record, size_bytes: int, *, batch_bytes: int, now_s: float
    ) -> tuple[Batch, int]:
        """Put a record into the last batch, or a new one. Returns the batch and the place."""
        last = self.waiting[-1] if self.waiting else None
        if last is None or last.attempts or last.size_bytes + size_bytes > batch_bytes:
            last = Batch(self.partition, now_s)
            self.waiting.append(last)
        return last, last.add(record, size_bytes)

    def due_s(self, *, batch_bytes: int, linger_s: float) -> float | None:
        """When the first batch may be sent at the earliest; None if there is none."""
        if not self.waiting:
            return None
        first = self.waiting[0]
        if first.attempts:
            return first.not_before_s
        full = len(self.waiting) > 1 or first.size_bytes >= batch_bytes
        return 0.0 if full else first.created_s + linger_s

    def may_send(self, *, in_flight_max: int) -> bool:
        """Whether the first batch may be sent beside those under way."""
        if not self.waiting or len(self.under_way) >= in_flight_max:
            return False
        return not self.under_way or not (self.waiting[0].attempts or self._must_begin_anew)

    def take(self, identity: Identity) -> Batch:
        """The first batch, to be sent now; an idempotent producer's is numbered."""
        batch = self.waiting.popleft()
        batch.attempts += 1
        if identity is not NOBODY:
            self._number(batch, identity)
        self.under_way.append(batch)
        return batch

    def _number(self, batch: Batch, identity: Identity) -> None:
        numbered = batch.base_sequence != NO_SEQUENCE
        # What was sent in the former epoch stays there, unless that epoch is what failed.
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
        self._next_sequence = (self._next_sequence + len(batch.records)) & SEQUENCE_MAX

    def _begin_anew(self, identity: Identity) -> None:
        self._identity = identity
        self._next_sequence = 0
        self._last_acknowledged = NO_SEQUENCE
        self._must_begin_anew = False
        for batch in self.waiting:
            batch.base_sequence = NO_SEQUENCE
            batch.encoded = None

    # ---------------------------------------------------------------------- what became of it

    def acknowledged(self, batch: Batch) -> None:
        """It is written."""
        self.under_way.remove(batch)
        if batch.identity == self._identity and batch.base_sequence != NO_SEQUENCE:
            self._last_acknowledged = (batch.base_sequence + len(batch.records) - 1) & SEQUENCE_MAX

    def failed(self, batch: Batch) -> None:
        """It is given up."""
        self.under_way.remove(batch)

    def again(self, batch: Batch, not_before_s: float) -> None:
        """It is to be sent again, before all that came later."""
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

    def split(self, batch: Batch) -> None:
        """It is too large for the broker: two halves go instead, with the same numbers."""
        self.under_way.remove(batch)
        middle = len(batch.records) // 2
        halves = []
        for start, end in ((0, middle), (middle, len(batch.records))):
            half = Batch(batch.partition, batch.created_s)
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

    def is_next(self, batch: Batch) -> bool:
        """Whether the leader should have been waiting for just this batch."""
        if self._last_acknowledged == NO_SEQUENCE:
            return batch.base_sequence == 0
        return batch.base_sequence == (self._last_acknowledged + 1) & SEQUENCE_MAX

    def begin_anew(self) -> None:
        """What was numbered cannot be trusted: number anew in the next life of the producer."""
        self._must_begin_anew = True


def _is_before(batch: Batch, other: Batch) -> bool:
    if NO_SEQUENCE in (batch.base_sequence, other.base_sequence):
        return False
    # Sequences wrap; no two that wait are further apart than half of them.
    return (other.base_sequence - batch.base_sequence) & SEQUENCE_MAX < SEQUENCE_MAX // 2


def _hand_on(batch: Batch, first: Batch, second: Batch, middle: int) -> None:
    """Who waits for a batch that was split is told when both halves are done."""

    def told(_: Batch) -> None:
        if first.is_done and second.is_done:
            error = first.error or second.error
            base_offset = first.base_offset
            if error is None and second.base_offset not in (-1, base_offset + middle):
                base_offset = -1  # others wrote in between: no one offset tells where all are
            batch.finish(
                base_offset=base_offset,
                log_append_time_ms=second.log_append_time_ms,
                error=error,
            )

    first.waiting.append(told)
    second.waiting.append(told)
