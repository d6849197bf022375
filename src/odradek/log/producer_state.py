"""What one partition remembers of those who wrote to it: sequences, and open transactions.

Idempotence. Each batch of an idempotent producer has the producer's id and epoch and the
sequence of its first record. The partition remembers each producer's last five batches:

    exactly one of the last five (epoch, first and last sequence)    a duplicate: not appended,
                                                                     answered as it was then
    an epoch below the producer's                                    INVALID_PRODUCER_EPOCH
    a new epoch, sequence not 0                                      OUT_OF_ORDER_SEQUENCE_NUMBER
    sequence not the last one + 1 (after 2^31-1 comes 0)             OUT_OF_ORDER_SEQUENCE_NUMBER
    a producer of which nothing is known                             any sequence is accepted: its
                                                                     batches may have been deleted

Transactions. A transaction opens with its first transactional batch here and ends with its
marker. Until then, and until the marker is below the high watermark, it keeps the last stable
offset at its first offset. A marker from a coordinator older than the last one known is
refused: TRANSACTION_COORDINATOR_FENCED.

`check` and `check_marker` are the leader's questions before it appends; `appended` and
`marker_appended` record what stands in the log, and are all that a follower and recovery call.
Verification (KIP-890). Before the first batch of a transaction is appended, its leader asks the
coordinator whether the partition belongs to the transaction; `begin_verification` before it asks,
`check_verified` when it has heard. In between a marker may come: then what was heard is of a
transaction that is over, and the batch is refused (INVALID_TXN_STATE). And a batch may be tried
again while the one behind it has been verified: that one is refused until the first is there.

Batches without a producer id never come here: a partition without idempotent producers costs
its few words and nothing at all on the way of the data.

The snapshot (`%020d.snapshot`) holds the state at an offset, of each producer its last batch:

    i16 version 1, u32 CRC-32C of what follows, i32 count, then for each producer 46 bytes:
    i64 producer id, i16 epoch, i32 last sequence, i64 last offset, i32 offset delta,
    i64 timestamp, i32 coordinator epoch, i64 first offset of the open transaction (-1: none)

To truncate is to load the newest snapshot not above the new end, and to replay from there.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from odradek.model.errors import ApiError, ErrorCode, OdradekError
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
    """Bytes that are no producer snapshot: the one before has to do, or the log itself."""


class StoredBatch(NamedTuple):
    """A producer's batch that stands in the log."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def base_offset(self) -> int:
        """The offset which the producer was, and is again, told."""
        return self.last_offset - self.offset_delta

    @property
    def base_sequence(self) -> int:
        """The sequence of its first record."""
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MAX


class CompletedTransaction(NamedTuple):
    """A transaction whose marker was appended; an aborted one goes to the transaction index."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int  # as the marker leaves it, replication set aside
    aborted: bool


class ActiveProducer(NamedTuple):
    """What DescribeProducers tells of a producer, and the cleaner wants to know."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_first_offset: int  # NO_OFFSET: none is open


class Verification:
    """That the coordinator was asked about a producer's transaction here, and for which batches."""

    __slots__ = ("epoch", "lowest_sequence", "since_ms")

    def __init__(self, epoch: int, lowest_sequence: int, since_ms: int) -> None:
        self.epoch = epoch
        self.lowest_sequence = lowest_sequence
        self.since_ms = since_ms


class _Producer:
    """One producer's state. `batches` has the last five of the current epoch, oldest first."""

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

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        return (
            self.transaction_first_offset == NO_OFFSET
            and now_ms - self.last_timestamp >= expiration_ms
        )


class ProducerState:
    """The producers of one partition."""

    __slots__ = (
        "_ongoing", "_producers", "_unreplicated", "_verifications", "first_unstable_offset",
    )  # fmt: skip

    def __init__(self) -> None:
        # None until there is something to remember: most of 10,000 partitions never have.
        self._producers: dict[int, _Producer] | None = None
        # Open transactions by their first offset, which only rises: producer ids.
        self._ongoing: dict[int, int] = {}
        # Ended ones whose marker is not yet below the high watermark: the marker's offset.
        self._unreplicated: dict[int, int] = {}
        # Of producers whose transaction has not been written to here, as far as is known.
        self._verifications: dict[int, Verification] | None = None
        # The lowest first offset of either, or NO_OFFSET.
        self.first_unstable_offset = NO_OFFSET

    # ------------------------------------------------------------------ the leader's questions

    def check(self, header: BatchHeader) -> StoredBatch | None:
        """May this batch, which has a producer id, be appended? If it was before, what stands.

        A coordinator's own transactional writes have no sequence; the epoch alone is checked.

        Raises:
            ApiError: see the head of this file; INVALID_TXN_STATE for a batch outside the
                transaction that its producer has open.
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
                f"producer {header.producer_id} has a transaction open here since offset "
                f"{producer.transaction_first_offset}, and this batch is not of it",
            )
        return None

    def check_marker(
        self, producer_id: int, *, producer_epoch: int, coordinator_epoch: int
    ) -> None:
        """May this marker be appended?

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
                f"{producer.coordinator_epoch} is known",
            )

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a transaction that this producer began in this epoch is open here."""
        producer = self._producers.get(producer_id) if self._producers else None
        return (
            producer is not None
            and producer.transaction_first_offset != NO_OFFSET
            and producer.epoch == producer_epoch
        )

    def begin_verification(
        self, producer_id: int, epoch: int, sequence: int, *, now_ms: int
    ) -> Verification:
        """The coordinator is asked whether a batch may open a transaction; wall time."""
        if self._verifications is None:
            self._verifications = {}
        known = self._verifications.get(producer_id)
        if known is None:
            known = self._verifications[producer_id] = Verification(epoch, sequence, now_ms)
        elif epoch > known.epoch:
            known.epoch, known.lowest_sequence = epoch, sequence
        elif epoch == known.epoch:
            known.lowest_sequence = min(known.lowest_sequence, sequence)
        return known

    def is_verified(self, producer_id: int, verification: Verification) -> bool:
        """Whether nothing has come since the coordinator was asked."""
        return (self._verifications or {}).get(producer_id) is verification

    def check_verified(
        self, header: BatchHeader, verification: Verification, *, begins_at_0: bool
    ) -> None:
        """May this batch be appended, of whose transaction the coordinator has said that it is?

        `begins_at_0`: every transaction has an epoch of its own, so even a producer of which
        nothing is known begins with sequence 0.

        Raises:
            ApiError: see the head of this file, and `check`.
        """
        producer_id = header.producer_id
        if self.check(header) is not None:
            return  # a duplicate
        if self.has_open_transaction(producer_id, header.producer_epoch):
            return
        if not self.is_verified(producer_id, verification):
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE,
                f"the transaction of producer {producer_id} ended while it was asked about",
            )
        is_unknown = not self._producers or producer_id not in self._producers
        lowest = 0 if begins_at_0 and is_unknown else verification.lowest_sequence
        if header.base_sequence > lowest:
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} in epoch {header.producer_epoch} sends sequence "
                f"{header.base_sequence}; {lowest} is due",
            )

    # ------------------------------------------------------------------- what stands in the log

    def appended(self, header: BatchHeader, base_offset: int) -> None:
        """A data batch with a producer id stands in the log at `base_offset`."""
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
        """A marker stands in the log at `base_offset`. None: it ended nothing in here."""
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
        """Markers below `high_watermark` are replicated: their transactions are over."""
        if not self._unreplicated:
            return
        for first_offset, marker_offset in list(self._unreplicated.items()):
            if marker_offset < high_watermark:
                del self._unreplicated[first_offset]
        self._find_first_unstable()

    def last_stable_offset(self, high_watermark: int) -> int:
        """How far a read_committed consumer may read."""
        first = self.first_unstable_offset
        return high_watermark if first == NO_OFFSET else min(first, high_watermark)

    def oldest_transaction_timestamp(self) -> int:
        """When the producer of the oldest open transaction last wrote; -1 if none is open."""
        for producer_id in self._ongoing.values():
            assert self._producers is not None
            return self._producers[producer_id].last_timestamp
        return -1

    def _find_first_unstable(self) -> None:
        # The ongoing are in order; those that ended are in the order of their ends, and few.
        first = min(self._unreplicated, default=NO_OFFSET)
        ongoing = next(iter(self._ongoing), NO_OFFSET)
        if first == NO_OFFSET or NO_OFFSET < ongoing < first:
            first = ongoing
        self.first_unstable_offset = first

    # ------------------------------------------------------------------------- housekeeping

    def __len__(self) -> int:
        """How many producers are remembered."""
        return len(self._producers) if self._producers else 0

    def active_producers(self) -> Iterator[ActiveProducer]:
        """Every producer that is remembered."""
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

    def expire(self, *, now_ms: int, expiration_ms: int) -> int:
        """Forget producers that have been silent for `producer.id.expiration.ms`: how many."""
        for producer_id, verification in list((self._verifications or {}).items()):
            if now_ms - verification.since_ms >= expiration_ms:
                del (self._verifications or {})[producer_id]
        if not self._producers:
            return 0
        expired = [
            producer_id
            for producer_id, producer in self._producers.items()
            if producer.is_expired(now_ms, expiration_ms)
        ]
        for producer_id in expired:
            del self._producers[producer_id]
        return len(expired)

    def clear(self) -> None:
        """Forget everything: the log begins anew, or a snapshot is about to be loaded."""
        self._producers = self._verifications = None
        self._ongoing.clear()
        self._unreplicated.clear()
        self.first_unstable_offset = NO_OFFSET

    # ------------------------------------------------------------------------------ snapshot

    def encode_snapshot(self) -> bytes:
        """The state as it stands, for a `.snapshot` file."""
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

    def load_snapshot(self, data: bytes, *, now_ms: int, expiration_ms: int) -> None:
        """Forget everything, then remember what the snapshot says, except expired producers.

        Raises:
            CorruptSnapshotError: the bytes are no snapshot; nothing is remembered then.
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
            if not producer.is_expired(now_ms, expiration_ms):
                producers[producer_id] = producer
        self._producers = producers or None
        self._ongoing.update(sorted(ongoing.items()))
        self._find_first_unstable()


_NO_BATCH: Final = StoredBatch(NO_SEQUENCE, NO_OFFSET, 0, -1)


def snapshot_entries(data: bytes) -> Iterator[tuple[int, ...]]:
    """The entries of a `.snapshot` file, as its layout above has them.

    Raises:
        CorruptSnapshotError: it is none.
    """
    if len(data) < _ENTRIES_AT:
        raise CorruptSnapshotError(f"{len(data)} bytes; the head alone has {_ENTRIES_AT}")
    version, checksum = _SNAPSHOT_HEAD.unpack_from(data)
    (count,) = _SNAPSHOT_COUNT.unpack_from(data, _SNAPSHOT_HEAD.size)
    if version != _SNAPSHOT_VERSION:
        raise CorruptSnapshotError(f"version {version}, not {_SNAPSHOT_VERSION}")
    if checksum != crc32c(data[_SNAPSHOT_HEAD.size :]):
        raise CorruptSnapshotError(f"checksum {checksum} is not that of the content")
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
        f"{header.base_sequence}; {due} is due",
    )


def _stale_epoch(producer_id: int, epoch: int, known: int) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"producer {producer_id} in epoch {epoch}; its epoch here is {known}",
    )
