"""What compaction leaves of a batch. Bytes in, bytes out; the rules are Kafka's `LogCleaner`.

A record of a data batch stays if no later record has its key, and if it has a value or its
batch's delete horizon has not come. Whatever lies behind the last offset that the map of keys
knows stays. Offsets never change: a batch keeps its base offset and last offset however few of
its records are left, and with the last offset its last sequence.

    batch of an aborted transaction   its records go
    marker                            stays until no data of its transaction is left, and from
                                      then on until its delete horizon has come
    the last batch of a producer      stays, if need be empty: its header has the sequence
    the last batch of the round       likewise: it says how far the log reaches
    any other batch without records   goes

The delete horizon (KIP-534) is set by the compaction that first meets a tombstone, or a marker
whose transaction has no data any more: now + `delete.retention.ms`. It takes the place of the
batch's base timestamp, and the records' timestamps are written relative to it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from odradek.log.producer_state import NO_OFFSET
from odradek.log.transaction_index import AbortedTransaction
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
    """What has to stay of a producer that is still known: its last batch, or its last marker."""

    last_offset: int  # of its last data batch; NO_OFFSET: it has written nothing in its epoch
    producer_epoch: int


class CleanedTransactions:
    """Which batches belong to aborted transactions, and which markers nobody needs any more.

    It is told of each batch of a log in its order, from some offset on, and of the aborted
    transactions that reach into that range.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._waiting = sorted(aborted, key=lambda transaction: transaction.first_offset)[::-1]
        self._aborted: dict[int, AbortedTransaction] = {}  # open here, by producer
        self._observed: set[int] = set()  # of these, those of which a batch was met
        self._committed: set[int] = set()  # producers of other transactions that were met

    def is_aborted(self, header: BatchHeader) -> bool:
        """A data batch is met. Whether its transaction was aborted."""
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
        """A control batch is met: may it go, and which aborted transaction does it still end?"""
        self._begin_up_to(header.last_offset)
        if not header.record_count:
            return True, None  # cleaned before
        marker = read_marker(batch)
        if marker is None:
            return False, None  # of a type that we do not know
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


# An entry of the map costs about this much besides the key's own bytes: the key's object, the
# offset's, and their share of the table.
_ENTRY_BYTES: Final = 160


class OffsetMap:
    """Of each key the offset of its last record; exact, and bounded by memory.

    `end_offset` is where the next round begins: behind the last batch that was taken in whole.
    """

    def __init__(self, *, bytes_max: int, start_offset: int) -> None:
        self.offsets: dict[bytes, int] = {}
        self.start_offset = start_offset
        self.end_offset = start_offset
        self.bytes_max = bytes_max
        self.bytes_used = 0

    @property
    def is_full(self) -> bool:
        """Whether what was taken in fills the memory that there is."""
        return self.bytes_used >= self.bytes_max

    @property
    def utilization(self) -> float:
        """How full it is."""
        return min(1.0, self.bytes_used / max(1, self.bytes_max))

    def take(self, header: BatchHeader, batch: memoryview) -> None:
        """Take in a batch that counts: of the keys in it these are the last records so far.

        Raises:
            InvalidRecordError, DecompressionError: damage.
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
        """There is nothing of interest below `offset`."""
        self.end_offset = max(self.end_offset, offset)


@dataclass(slots=True)
class Counts:
    """What one cleaning has read and left."""

    records_read: int = 0
    records_kept: int = 0
    bytes_read: int = 0
    bytes_kept: int = 0
    keyless: int = 0
    map_records: int = 0
    map_bytes: int = 0


class BatchFilter:
    """What stays of each batch of one log in one round, from its first batch on."""

    def __init__(
        self,
        offset_map: OffsetMap,
        *,
        aborted: Collection[AbortedTransaction],
        producers: Mapping[int, LastOfProducer],
        end_of_round: int,
        delete_retention_ms: int,
        now_ms: int,
    ) -> None:
        """`end_of_round` is the offset up to which the log may be cleaned now."""
        self._offsets = offset_map.offsets
        self._known_end = offset_map.end_offset
        self._transactions = CleanedTransactions(aborted)
        self._producers = producers
        self._end_of_round = end_of_round
        self._delete_retention_ms = delete_retention_ms
        self._now_ms = now_ms
        self.counts = Counts()
        self.ended: AbortedTransaction | None = None  # by the marker that was last kept

    def keep(self, header: BatchHeader, batch: memoryview) -> bytes | memoryview | None:
        """What stays of a batch; None if it goes.

        Raises:
            InvalidRecordError, DecompressionError: damage.
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
        gone = may_go and horizon_ms is not None and horizon_ms <= self._now_ms
        if gone or not header.record_count:
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
        nulls_stay = horizon_ms is None or self._now_ms < horizon_ms
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
        """The batch, or those of its records, with a delete horizon: every timestamp is moved."""
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
            delete_horizon_ms=self._now_ms + self._delete_retention_ms,
        )


def _shortened(header: BatchHeader, body: bytes, kept: Sequence[Outline]) -> bytes:
    """The batch with these of its records alone, each as the bytes it was."""
    pieces = []
    first = 0
    for index, (record, following) in enumerate(pairwise(kept)):
        if record[1] != following[0]:  # a gap: copy the run before it
            pieces.append(body[kept[first][0] : record[1]])
            first = index + 1
    pieces.append(body[kept[first][0] : kept[-1][1]])
    max_timestamp = header.max_timestamp
    if not header.attributes & LOG_APPEND_TIME_BIT:
        max_timestamp = header.base_timestamp + max(record[2] for record in kept)
    shortened = header._replace(record_count=len(kept), max_timestamp=max_timestamp)
    return bytes(assemble(shortened, compress(Codec(header.codec), b"".join(pieces))))


def _header_alone(header: BatchHeader) -> bytes:
    """The batch without records, as Kafka leaves it: it still says who wrote how far."""
    alone = header._replace(
        attributes=header.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT),
        base_timestamp=NO_TIMESTAMP,
        record_count=0,
    )
    return bytes(assemble(alone, b""))
