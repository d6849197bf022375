"""Producer state of one partition: sequences of idempotent producers, and open transactions.

Idempotence. Each batch of an idempotent producer has its producer id, producer epoch and the
sequence of its first record. The partition keeps the last five batches of each producer:

    equals one of the last five (epoch, first and last sequence)     a duplicate: not appended,
                                                                     answered with its offset
    an epoch below the producer's                                    INVALID_PRODUCER_EPOCH
    a new epoch, sequence not 0                                      OUT_OF_ORDER_SEQUENCE_NUMBER
    sequence not the last one + 1 (after 2^31-1 comes 0)             OUT_OF_ORDER_SEQUENCE_NUMBER
    a producer id without state                                      any sequence is accepted: its
                                                                     batches may have been deleted
    the first batch of a log (its LEO is 0), sequence not 0          UNKNOWN_PRODUCER_ID

The last row is a rule of Kafka since 4.5 (KAFKA-15591), which answers OUT_OF_ORDER_SEQUENCE_NUMBER.
1. A producer has batches 0-4 and 5-6 in flight. 2. The first is refused, because this broker does
not lead yet. 3. The second is appended. Before that rule 0-4 could never be appended from then on.
But a producer whose topic was deleted and created again sends such a sequence as well, and only
after UNKNOWN_PRODUCER_ID librdkafka goes on in a new epoch.

Transactions. A transaction begins with its first transactional batch here and ends with its
marker. Until the marker is below the high watermark the last stable offset is at most the
transaction's first offset. A marker with a coordinator epoch below the last one is refused:
TRANSACTION_COORDINATOR_FENCED.

A leader calls `check` and `check_marker` before it appends. `appended` and `marker_appended` record
what is in the log; a follower and recovery call only these.

Verification (KIP-890). Before the first batch of a transaction is appended, the leader asks the
transaction coordinator whether the partition belongs to the transaction: `begin_verification`
before the request, `check_verified` after the response. If a marker arrives in between, the
response was about a transaction that has ended, and the batch is refused (INVALID_TXN_STATE). And
if a batch is retried while the one after it has been verified, the latter is refused until the
first one is in the log.

Batches without a producer id never get here: a partition without idempotent producers costs a few
words of memory and no time.

The snapshot (`%020d.snapshot`) has the state at an offset, with the last batch of each producer:

    i16 version 1, u32 CRC-32C of the rest, i32 count, then for each producer 46 bytes:
    i64 producer id, i16 epoch, i32 last sequence, i64 last offset, i32 offset delta,
    i64 timestamp, i32 coordinator epoch, i64 first offset of the open transaction (-1: none)

After a truncation the newest snapshot at or below the new end is loaded, and the batches after it
are replayed.
"""

from collections.abc import Iterator
from itertools import pairwise
from struct import Struct
from typing import Final, NamedTuple

from odradek.model.clock import WallMs
from odradek.model.errors import ApiError, ErrorCode, OdradekError
from odradek.model.invariants import InvariantError
from odradek.record.batch import NO_SEQUENCE, SEQUENCE_MAX, TRANSACTIONAL_BIT, BatchHeader
from odradek.record.control import ControlType, Marker
from odradek.record.crc32c import crc32c

BATCHES_REMEMBERED: Final = 5
NO_OFFSET: Final = -1
NO_COORDINATOR_EPOCH: Final = -1

_SNAPSHOT_VERSION: Final = 1
_SNAPSHOT_HEAD: Final = Struct(">hI")
_SNAPSHOT_COUNT: Final = Struct(">i")
_SNAPSHOT_ENTRY: Final = Struct(">qhiqiqiq")
_ENTRIES_AT: Final = _SNAPSHOT_HEAD.size + _SNAPSHOT_COUNT.size


class CorruptSnapshotError(OdradekError):
    """The bytes are not a producer snapshot: an older one is used, or the log itself."""


class StoredBatch(NamedTuple):
    """The metadata of a producer's batch in the log (Kafka: `BatchMetadata`)."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def base_offset(self) -> int:
        """The offset in the produce response, also for a duplicate."""
        return self.last_offset - self.offset_delta

    @property
    def base_sequence(self) -> int:
        """The sequence of the batch's first record."""
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MAX


class CompletedTransaction(NamedTuple):
    """A transaction with an appended marker; an aborted one goes into the transaction index."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int  # after the marker, without regard to replication
    aborted: bool


class ActiveProducer(NamedTuple):
    """A producer's state for DescribeProducers and for the cleaner."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_first_offset: int  # NO_OFFSET: no transaction is open


class Verification:
    """An outstanding request to the coordinator about a producer's transaction (KIP-890)."""

    __slots__ = ("epoch", "lowest_sequence", "since_ms")

    def __init__(self, epoch: int, lowest_sequence: int, since_ms: int) -> None:
        self.epoch = epoch
        self.lowest_sequence = lowest_sequence
        self.since_ms = since_ms


class _Producer:
    """The state of one producer id. `batches` are the last five of this epoch, oldest first."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_timestamp",
        "transaction_first_offset",
    )

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        self.last_timestamp = -1
        self.transaction_first_offset = NO_OFFSET
        self.batches: list[StoredBatch] = []

    def enter(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()

    def check_batches(self, partition: object, producer_id: int, leo: int) -> None:
        offsets = [batch.last_offset for batch in self.batches]
        is_ordered = all(first < then for first, then in pairwise(offsets))
        if not is_ordered or len(offsets) > BATCHES_REMEMBERED or (offsets and offsets[-1] >= leo):
            raise InvariantError(
                f"{partition}: batches {offsets} of producer {producer_id}; the LEO is {leo}"
            )

    def is_expired(self, wall_ms: WallMs, expiration_ms: int) -> bool:
        return (
            self.transaction_first_offset == NO_OFFSET
            and wall_ms - self.last_timestamp >= expiration_ms
        )


class ProducerState:
    """The producer ids with state in one partition (Kafka: `ProducerStateManager`)."""

    __slots__ = (
        "_ongoing", "_producers", "_unreplicated", "_verifications", "first_unstable_offset",
    )  # fmt: skip

    def __init__(self) -> None:
        # None until it is needed: most of 10,000 partitions have no idempotent producers.
        self._producers: dict[int, _Producer] | None = None
        # Producer ids of open transactions by their first offset; new ones have larger offsets.
        self._ongoing: dict[int, int] = {}
        # Ended transactions with a marker above the high watermark: the marker's offset.
        self._unreplicated: dict[int, int] = {}
        # Verifications of producer ids without an open transaction here.
        self._verifications: dict[int, Verification] | None = None
        # The lowest first offset of all these, or NO_OFFSET.
        self.first_unstable_offset = NO_OFFSET

    @property
    def highest_id(self) -> int:
        """The highest producer id with state here; -1: there is none."""
        return max(self._producers or (), default=-1)

    # ------------------------------------------------------------------ checks of the leader

    def check(self, header: BatchHeader) -> StoredBatch | None:
        """Check a batch with a producer id before the append. Returns the duplicate, if it is one.

        Writes of a coordinator in a transaction have no sequence; only their epoch is checked.

        Raises:
            ApiError: as described above; INVALID_TXN_STATE for a batch outside the open
                transaction of its producer.
        """
        producer = self._producers.get(header.producer_id) if self._producers else None
        if producer is None:
            return None
        epoch, sequence = header.producer_epoch, header.base_sequence
        if epoch == producer.epoch:
            batches = producer.batches
            due = (batches[-1].last_sequence + 1) & SEQUENCE_MAX if batches else 0
            if sequence not in (due, NO_SEQUENCE):
                return _duplicate_of(header, batches, due)
        elif epoch < producer.epoch:
            raise _stale_epoch(header.producer_id, epoch, producer.epoch)
        elif sequence > 0:
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} begins epoch {epoch} with sequence {sequence}, "
                f"not 0; its epoch was {producer.epoch}",
            )
        if (
            producer.transaction_first_offset != NO_OFFSET
            and not header.attributes & TRANSACTIONAL_BIT
        ):
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} has a transaction open since offset "
                f"{producer.transaction_first_offset}, and this batch is not transactional",
            )
        return None

    def check_first(self, header: BatchHeader) -> None:
        """Check the first batch of a log with a producer id, before the append.

        Nothing of the producer can have been deleted from a log that has never had a record.

        Raises:
            ApiError: UNKNOWN_PRODUCER_ID.
        """
        if header.base_sequence > 0:
            raise ApiError(
                ErrorCode.UNKNOWN_PRODUCER_ID,
                f"producer {header.producer_id} in epoch {header.producer_epoch} sends sequence "
                f"{header.base_sequence} as the first record of the partition; expected 0",
            )

    def has_state(self, producer_id: int) -> bool:
        """Whether sequences of this producer id are checked against earlier ones."""
        return self._producers is not None and producer_id in self._producers

    def check_marker(
        self, producer_id: int, *, producer_epoch: int, coordinator_epoch: int
    ) -> None:
        """Check a marker before the append.

        Raises:
            ApiError: INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED.
        """
        producer = self._producers.get(producer_id) if self._producers else None
        if producer is None:
            return
        if producer_epoch < producer.epoch:
            raise _stale_epoch(producer_id, producer_epoch, producer.epoch)
        if coordinator_epoch < producer.coordinator_epoch:
            raise ApiError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"coordinator epoch {coordinator_epoch} for producer {producer_id}; "
                f"the last one is {producer.coordinator_epoch}",
            )

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a transaction of this producer in this epoch is open in the partition."""
        producer = self._producers.get(producer_id) if self._producers else None
        return (
            producer is not None
            and producer.transaction_first_offset != NO_OFFSET
            and producer.epoch == producer_epoch
        )

    def begin_verification(
        self, producer_id: int, epoch: int, sequence: int, *, wall_ms: WallMs
    ) -> Verification:
        """A request to the coordinator about a transaction is sent; `wall_ms` is wall time."""
        if self._verifications is None:
            self._verifications = {}
        known = self._verifications.get(producer_id)
        if known is None:
            known = self._verifications[producer_id] = Verification(epoch, sequence, wall_ms)
        elif epoch > known.epoch:
            known.epoch, known.lowest_sequence = epoch, sequence
        elif epoch == known.epoch:
            known.lowest_sequence = min(known.lowest_sequence, sequence)
        return known

    def is_verified(self, producer_id: int, verification: Verification) -> bool:
        """Whether no marker arrived since the request to the coordinator."""
        return (self._verifications or {}).get(producer_id) is verification

    def check_verified(
        self, header: BatchHeader, verification: Verification, *, begins_at_0: bool
    ) -> None:
        """Check a batch after the coordinator has confirmed its transaction.

        `begins_at_0`: every transaction has its own producer epoch, so that even a producer id
        without state begins with sequence 0.

        Raises:
            ApiError: as described above, and `check`.
        """
        producer_id = header.producer_id
        if self.check(header) is not None:
            return  # a duplicate
        if self.has_open_transaction(producer_id, header.producer_epoch):
            return
        if not self.is_verified(producer_id, verification):
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE,
                f"the transaction of producer {producer_id} ended during its verification",
            )
        is_unknown = not self.has_state(producer_id)
        lowest = 0 if begins_at_0 and is_unknown else verification.lowest_sequence
        if header.base_sequence > lowest:
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} in epoch {header.producer_epoch} sends sequence "
                f"{header.base_sequence}; expected {lowest}",
            )

    # ------------------------------------------------------------------- records of the log

    def appended(self, header: BatchHeader, base_offset: int) -> None:
        """Take note of a data batch with a producer id, appended at `base_offset`."""
        producer = self._enter(header.producer_id, header.producer_epoch)
        batches = producer.batches
        if len(batches) == BATCHES_REMEMBERED:
            del batches[0]
        delta = header.last_offset_delta
        batches.append(
            StoredBatch(header.last_sequence, base_offset + delta, delta, header.max_timestamp)
        )
        producer.last_timestamp = header.max_timestamp
        if header.attributes & TRANSACTIONAL_BIT and producer.transaction_first_offset == NO_OFFSET:
            producer.transaction_first_offset = base_offset
            self._ongoing[base_offset] = header.producer_id
            if self._verifications:
                self._verifications.pop(header.producer_id, None)
            if self.first_unstable_offset == NO_OFFSET:
                self.first_unstable_offset = base_offset

    def marker_appended(
        self, header: BatchHeader, marker: Marker, base_offset: int
    ) -> CompletedTransaction | None:
        """Take note of a marker appended at `base_offset`. None: no transaction was open here."""
        if self._verifications:
            self._verifications.pop(header.producer_id, None)
        producer = self._enter(header.producer_id, header.producer_epoch)
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.last_timestamp = header.max_timestamp
        first_offset = producer.transaction_first_offset
        if first_offset == NO_OFFSET:
            return None
        producer.transaction_first_offset = NO_OFFSET
        del self._ongoing[first_offset]
        self._unreplicated[first_offset] = base_offset
        return CompletedTransaction(
            header.producer_id,
            first_offset,
            base_offset,
            next(iter(self._ongoing), base_offset + 1),
            marker.type is ControlType.ABORT,
        )

    def _enter(self, producer_id: int, epoch: int) -> _Producer:
        if self._producers is None:
            self._producers = {}
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = _Producer(epoch)
        producer.enter(epoch)
        return producer

    # --------------------------------------------------------------------- last stable offset

    def high_watermark_advanced(self, high_watermark: int) -> None:
        """Transactions with a marker below `high_watermark` no longer hold back the LSO."""
        if not self._unreplicated:
            return
        for first_offset, marker_offset in list(self._unreplicated.items()):
            if marker_offset < high_watermark:
                del self._unreplicated[first_offset]
        self._find_first_unstable()

    def last_stable_offset(self, high_watermark: int) -> int:
        """The last stable offset: a read_committed consumer reads up to it."""
        first = self.first_unstable_offset
        return high_watermark if first == NO_OFFSET else min(first, high_watermark)

    def _find_first_unstable(self) -> None:
        self.first_unstable_offset = self._lowest_unstable()

    def _lowest_unstable(self) -> int:
        # Open ones are in offset order; ended ones are in the order of their ends, and few.
        first = min(self._unreplicated, default=NO_OFFSET)
        ongoing = next(iter(self._ongoing), NO_OFFSET)
        if first == NO_OFFSET or NO_OFFSET < ongoing < first:
            first = ongoing
        return first

    def validate(self, partition: object, *, leo: int, high_watermark: int) -> None:
        """Check what holds between two operations on the log of `partition`.

        Raises:
            InvariantError: something does not hold.
        """
        if self.first_unstable_offset != self._lowest_unstable():
            raise InvariantError(
                f"{partition}: first unstable offset {self.first_unstable_offset} is wrong"
            )
        for first_offset, marker_offset in self._unreplicated.items():
            if not max(first_offset, high_watermark) <= marker_offset < leo:
                raise InvariantError(
                    f"{partition}: the transaction [{first_offset}, {marker_offset}] holds back "
                    f"the LSO; the HW is {high_watermark}, the LEO {leo}"
                )
        if not self._producers:
            return
        ongoing = {}
        for producer_id, producer in self._producers.items():
            producer.check_batches(partition, producer_id, leo)
            if producer.transaction_first_offset != NO_OFFSET:
                ongoing[producer.transaction_first_offset] = producer_id
        is_ordered = all(first < then for first, then in pairwise(self._ongoing))
        if ongoing != self._ongoing or not is_ordered or (ongoing and max(ongoing) >= leo):
            raise InvariantError(
                f"{partition}: open transactions {self._ongoing} are not {ongoing}"
            )

    # ------------------------------------------------------------------------- housekeeping

    def __len__(self) -> int:
        """The number of producer ids with state."""
        return len(self._producers) if self._producers else 0

    def active_producers(self) -> Iterator[ActiveProducer]:
        """Every producer id with state."""
        for producer_id, producer in (self._producers or {}).items():
            last = producer.batches[-1] if producer.batches else _NO_BATCH
            yield ActiveProducer(
                producer_id,
                producer.epoch,
                last.last_sequence,
                last.last_offset,
                producer.last_timestamp,
                producer.coordinator_epoch,
                producer.transaction_first_offset,
            )

    def expire(self, *, wall_ms: WallMs, expiration_ms: int) -> int:
        """Remove producer ids idle for `producer.id.expiration.ms`. Returns their number."""
        for producer_id, verification in list((self._verifications or {}).items()):
            if wall_ms - verification.since_ms >= expiration_ms:
                del (self._verifications or {})[producer_id]
        if not self._producers:
            return 0
        expired = [
            producer_id
            for producer_id, producer in self._producers.items()
            if producer.is_expired(wall_ms, expiration_ms)
        ]
        for producer_id in expired:
            del self._producers[producer_id]
        return len(expired)

    def clear(self) -> None:
        """Remove all state: the log is empty, or a snapshot is about to be loaded."""
        self._producers = self._verifications = None
        self._ongoing.clear()
        self._unreplicated.clear()
        self.first_unstable_offset = NO_OFFSET

    # ------------------------------------------------------------------------------ snapshot

    def encode_snapshot(self) -> bytes:
        """The content of a `.snapshot` file."""
        producers = self._producers or {}
        out = bytearray(_SNAPSHOT_COUNT.pack(len(producers)))
        for producer_id, producer in producers.items():
            last = producer.batches[-1] if producer.batches else _NO_BATCH
            out += _SNAPSHOT_ENTRY.pack(
                producer_id,
                producer.epoch,
                last.last_sequence,
                last.last_offset,
                last.offset_delta,
                producer.last_timestamp,
                producer.coordinator_epoch,
                producer.transaction_first_offset,
            )
        return _SNAPSHOT_HEAD.pack(_SNAPSHOT_VERSION, crc32c(out)) + bytes(out)

    def load_snapshot(self, data: bytes, *, wall_ms: WallMs, expiration_ms: int) -> None:
        """Replace the state by that of a snapshot, without expired producer ids.

        Raises:
            CorruptSnapshotError: the bytes are not a snapshot; the state is empty then.
        """
        self.clear()
        entries = snapshot_entries(data)
        producers = {}
        ongoing = {}
        for entry in entries:
            producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, first = entry
            producer = _Producer(epoch)
            producer.coordinator_epoch = coordinator_epoch
            producer.last_timestamp = timestamp
            if offset >= 0:
                producer.batches.append(StoredBatch(sequence, offset, delta, timestamp))
            if first >= 0:
                producer.transaction_first_offset = first
                ongoing[first] = producer_id
            if not producer.is_expired(wall_ms, expiration_ms):
                producers[producer_id] = producer
        self._producers = producers or None
        self._ongoing.update(sorted(ongoing.items()))
        self._find_first_unstable()


_NO_BATCH: Final = StoredBatch(NO_SEQUENCE, NO_OFFSET, 0, -1)


def snapshot_entries(data: bytes) -> Iterator[tuple[int, ...]]:
    """The entries of a `.snapshot` file, in the layout above.

    Raises:
        CorruptSnapshotError: the bytes are not a snapshot.
    """
    if len(data) < _ENTRIES_AT:
        raise CorruptSnapshotError(f"{len(data)} bytes; the header alone has {_ENTRIES_AT}")
    version, checksum = _SNAPSHOT_HEAD.unpack_from(data)
    (count,) = _SNAPSHOT_COUNT.unpack_from(data, _SNAPSHOT_HEAD.size)
    if version != _SNAPSHOT_VERSION:
        raise CorruptSnapshotError(f"version {version}, not {_SNAPSHOT_VERSION}")
    if checksum != crc32c(data[_SNAPSHOT_HEAD.size :]):
        raise CorruptSnapshotError(f"the checksum {checksum} is wrong")
    if count * _SNAPSHOT_ENTRY.size != len(data) - _ENTRIES_AT:
        raise CorruptSnapshotError(f"{count} producers in {len(data) - _ENTRIES_AT} bytes")
    return _SNAPSHOT_ENTRY.iter_unpack(data[_ENTRIES_AT:])


def _duplicate_of(header: BatchHeader, batches: list[StoredBatch], due: int) -> StoredBatch:
    for batch in batches:
        if batch.base_sequence == header.base_sequence:
            if batch.last_sequence == header.last_sequence:
                return batch
            break
    raise ApiError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {header.producer_id} in epoch {header.producer_epoch} sends sequence "
        f"{header.base_sequence}; expected {due}",
    )


def _stale_epoch(producer_id: int, epoch: int, known: int) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"producer {producer_id} in epoch {epoch}; its current epoch is {known}",
    )
