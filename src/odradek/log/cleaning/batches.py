"""What compaction keeps of a batch, by the rules of Kafka's `LogCleaner`. Bytes in, bytes out.

A record of a data batch stays if no later record has its key, and if it has a value or its
batch's delete horizon is in the future. Records after the last offset of the offset map stay.
Offsets never change: a batch keeps its base offset and last offset however few records are left,
and with the last offset its last sequence.

    batch of an aborted transaction   its records are removed
    marker                            stays while data of its transaction is left, and after that
                                      until its delete horizon
    the last batch of a producer      stays, without records if need be: it has the sequence
    the last batch of the round       stays, too: it has the end offset of the log
    any other batch without records   is removed

The delete horizon (KIP-534) is set by the compaction that first finds a tombstone, or a marker
whose transaction has no data any more: now + `delete.retention.ms`. It replaces the batch's base
timestamp, and the records' timestamps are written relative to it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from odradek.log.index.transactions import AbortedTransaction
from odradek.log.producer_state import NO_OFFSET
from odradek.model.clock import WallMs
from odradek.record.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    NO_TIMESTAMP,
    BatchHeader,
)
from odradek.record.compression import Codec, compress
from odradek.record.control import ControlType, read_marker
from odradek.record.outline import Outline, outline
from odradek.record.records import assemble, build_batch, iter_records, records_bytes


class LastOfProducer(NamedTuple):
    """What has to stay of an active producer id: its last batch, or its last marker."""

    last_offset: int  # of its last data batch; NO_OFFSET: it has written none in this epoch
    producer_epoch: int


class CleanedTransactions:
    """Which batches belong to aborted transactions, and which markers are not needed any more.

    It has to be called for each batch of a log in order, from some offset on, and needs the
    aborted transactions that overlap this range (Kafka: `CleanedTransactionMetadata`).
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._waiting = sorted(aborted, key=lambda transaction: transaction.first_offset)[::-1]
        self._aborted: dict[int, AbortedTransaction] = {}  # open at this offset, by producer id
        self._observed: set[int] = set()  # of these, those with a batch in the range
        self._committed: set[int] = set()  # producer ids of other open transactions in the range

    def is_aborted(self, header: BatchHeader) -> bool:
        """Take note of a data batch. Whether its transaction was aborted."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborted:
            self._observed.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def marker_met(
        self, header: BatchHeader, batch: memoryview
    ) -> tuple[bool, AbortedTransaction | None]:
        """Take note of a control batch: may it be removed, and which aborted transaction ends?"""
        self._begin_up_to(header.last_offset)
        if not header.record_count:
            return True, None  # an earlier compaction has removed its record
        marker = read_marker(batch)
        if marker is None:
            return False, None  # of an unknown type
        producer_id = header.producer_id
        if marker.type is ControlType.COMMIT:
            met = producer_id in self._committed
            self._committed.discard(producer_id)
            return not met, None
        transaction = self._aborted.pop(producer_id, None)
        if transaction is None or producer_id not in self._observed:
            return True, None
        self._observed.discard(producer_id)
        return False, transaction

    def _begin_up_to(self, offset: int) -> None:
        waiting = self._waiting
        while waiting and waiting[-1].first_offset <= offset:
            transaction = waiting.pop()
            self._aborted.setdefault(transaction.producer_id, transaction)


# What an entry of the map costs besides the key's own bytes: the key's object, the offset's
# object, and their share of the table.
_ENTRY_BYTES: Final = 160


class OffsetMap:
    """The offset of each key's last record; exact, with a limit on memory.

    `end_offset` is the first dirty offset of the next round: after the last complete batch.
    """

    def __init__(self, *, bytes_max: int, start_offset: int) -> None:
        self.offsets: dict[bytes, int] = {}
        self.start_offset = start_offset
        self.end_offset = start_offset
        self.bytes_max = bytes_max
        self.bytes_used = 0

    @property
    def is_full(self) -> bool:
        """Whether the memory limit is reached."""
        return self.bytes_used >= self.bytes_max

    @property
    def utilization(self) -> float:
        """The used part of the memory limit."""
        return min(1.0, self.bytes_used / max(1, self.bytes_max))

    def take(self, header: BatchHeader, batch: memoryview) -> None:
        """Add the keys of a data batch: its records are the last ones of these keys so far.

        Raises:
            InvalidRecordError, DecompressionError: the batch is corrupt.
        """
        offsets, base_offset, start_offset = self.offsets, header.base_offset, self.start_offset
        before = len(offsets)
        key_bytes = 0
        if header.record_count:
            body = records_bytes(batch, header)
            for _, _, _, delta, key, _ in outline(body, header.record_count):
                if key is not None and base_offset + delta >= start_offset:
                    if key not in offsets:
                        key_bytes += len(key)
                    offsets[key] = base_offset + delta
        self.bytes_used += key_bytes + _ENTRY_BYTES * (len(offsets) - before)
        self.reach(header.next_offset)

    def reach(self, offset: int) -> None:
        """Move `end_offset`: no keys have to be added below `offset`."""
        self.end_offset = max(self.end_offset, offset)


@dataclass(slots=True)
class Counts:
    """What one cleaning has read and kept (Kafka: `CleanerStats`)."""

    records_read: int = 0
    records_kept: int = 0
    bytes_read: int = 0
    bytes_kept: int = 0
    keyless: int = 0
    map_records: int = 0
    map_bytes: int = 0


class BatchFilter:
    """What stays of each batch of one log in one round, from the log's first batch on."""

    def __init__(
        self,
        offset_map: OffsetMap,
        *,
        aborted: Collection[AbortedTransaction],
        producers: Mapping[int, LastOfProducer],
        end_of_round: int,
        delete_retention_ms: int,
        wall_ms: WallMs,
    ) -> None:
        """`end_of_round` is the offset up to which the log may be cleaned now."""
        self._offsets = offset_map.offsets
        self._known_end = offset_map.end_offset
        self._transactions = CleanedTransactions(aborted)
        self._producers = producers
        self._end_of_round = end_of_round
        self._delete_retention_ms = delete_retention_ms
        self._wall_ms = wall_ms
        self.counts = Counts()
        self.ended: AbortedTransaction | None = None  # by the last marker that was kept

    def keep(self, header: BatchHeader, batch: memoryview) -> bytes | memoryview | None:
        """What stays of a batch; None if it is removed.

        Raises:
            InvalidRecordError, DecompressionError: the batch is corrupt.
        """
        counts = self.counts
        counts.bytes_read += header.size_bytes
        counts.records_read += header.record_count
        self.ended = None
        if header.attributes & CONTROL_BIT:
            kept = self._keep_marker(header, batch)
        elif self._transactions.is_aborted(header):
            kept = None
        else:
            kept = self._keep_records(header, batch)
        if kept is None and self._header_stays(header):
            kept = _header_alone(header)
        if kept is not None:
            counts.bytes_kept += len(kept)
        return kept

    def _keep_marker(self, header: BatchHeader, batch: memoryview) -> bytes | memoryview | None:
        may_go, self.ended = self._transactions.marker_met(header, batch)
        horizon_ms = header.delete_horizon_ms
        expired = may_go and horizon_ms is not None and horizon_ms <= self._wall_ms
        if expired or not header.record_count:
            return None
        self.counts.records_kept += 1
        if may_go and horizon_ms is None:
            return self._with_horizon(header, batch, None)
        return batch

    def _keep_records(self, header: BatchHeader, batch: memoryview) -> bytes | memoryview | None:
        if not header.record_count:
            return None
        body = records_bytes(batch, header)
        records = outline(body, header.record_count)
        horizon_ms = header.delete_horizon_ms
        nulls_stay = horizon_ms is None or self._wall_ms < horizon_ms
        offsets, base_offset, known_end = self._offsets, header.base_offset, self._known_end
        find = offsets.get
        kept: list[Outline] = []
        tombstones = False
        for record in records:
            key, has_value = record[4], record[5]
            offset = base_offset + record[3]
            if offset < known_end:
                if key is None:
                    self.counts.keyless += 1
                    continue
                if offset < find(key, -1) or not (has_value or nulls_stay):
                    continue
            kept.append(record)
            if not has_value:
                tombstones = True
        self.counts.records_kept += len(kept)
        if not kept:
            return None
        if tombstones and horizon_ms is None:
            return self._with_horizon(header, batch, {record[3] for record in kept})
        return batch if len(kept) == len(records) else _shortened(header, body, kept)

    def _header_stays(self, header: BatchHeader) -> bool:
        if header.next_offset == self._end_of_round:
            return True
        last = self._producers.get(header.producer_id) if header.producer_id >= 0 else None
        if last is None:
            return False
        if last.last_offset != NO_OFFSET:
            return header.last_offset == last.last_offset
        return header.is_control and header.producer_epoch == last.producer_epoch

    def _with_horizon(
        self, header: BatchHeader, batch: memoryview, kept: Collection[int] | None
    ) -> bytes:
        """The batch, or these records of it, with a delete horizon as base timestamp."""
        return build_batch(
            [
                record
                for record in iter_records(batch)
                if kept is None or record.offset - header.base_offset in kept
            ],
            base_offset=header.base_offset,
            codec=Codec(header.codec),
            timestamp_type=header.timestamp_type,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            transactional=header.is_transactional,
            control=header.is_control,
            leader_epoch=header.leader_epoch,
            append_time_ms=header.max_timestamp,
            last_offset=header.last_offset,
            delete_horizon_ms=self._wall_ms + self._delete_retention_ms,
        )


def _shortened(header: BatchHeader, body: bytes, kept: Sequence[Outline]) -> bytes:
    """The batch with these of its records, their bytes unchanged."""
    pieces = []
    first = 0
    for index, (record, following) in enumerate(pairwise(kept)):
        if record[1] != following[0]:  # a gap: copy the records before it
            pieces.append(body[kept[first][0] : record[1]])
            first = index + 1
    pieces.append(body[kept[first][0] : kept[-1][1]])
    max_timestamp = header.max_timestamp
    if not header.attributes & LOG_APPEND_TIME_BIT:
        max_timestamp = header.base_timestamp + max(record[2] for record in kept)
    shortened = header._replace(record_count=len(kept), max_timestamp=max_timestamp)
    return bytes(assemble(shortened, compress(Codec(header.codec), b"".join(pieces))))


def _header_alone(header: BatchHeader) -> bytes:
    """The batch without records, as Kafka leaves it: it keeps the producer's last sequence."""
    alone = header._replace(
        attributes=header.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT),
        base_timestamp=NO_TIMESTAMP,
        record_count=0,
    )
    return bytes(assemble(alone, b""))
