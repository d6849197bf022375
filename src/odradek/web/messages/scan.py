"""Searches the fetched bytes of one partition for records that match. Pure.

Batch after batch: the header decides first (control batch, largest timestamp), then the
decompressed bytes (`Matcher.may_match`), and only then records are decoded. Every offset that is
passed is counted as in `odradek.web.messages.progress`.

A damaged batch, or one of a format before 0.11, does not end the search: its offsets are reported
as not decodable, as far as its length can be trusted.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from odradek.client.fetch.aborted import AbortedBatches
from odradek.model.errors import ApiError
from odradek.record.batch import (
    HEADER_BYTES,
    LENGTH_MIN,
    MAGIC,
    MAGIC_AT,
    OVERHEAD_BYTES,
    SEQUENCE_MAX,
    BatchHeader,
    Bytes,
    base_offset_at,
    has_valid_crc,
    read_header,
    size_at,
)
from odradek.record.compression import Codec
from odradek.record.control import read_marker
from odradek.record.records import Record, iter_records, records_bytes, records_in
from odradek.web.messages.conditions import Matcher
from odradek.web.messages.progress import UnsearchedRange
from odradek.wire.messages.fetch import AbortedTransaction

# Records of a batch may be decompressed to this much; a larger batch is not searched.
BODY_BYTES_MAX: Final = 64 << 20
HELD_BYTES_MAX: Final = 16 << 10  # of a key, a value or the headers of a found record


class TransactionState(Enum):
    """What became of the transaction that a record belongs to."""

    NONE = "none"  # not in a transaction
    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"
    ENDED = "ended"  # above the last stable offset, because another transaction is open


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRecord:
    """One record with everything that its batch says about it.

    Key, value and headers may be cut (`ScanWanted.held_bytes`); the lengths are the whole ones.
    """

    partition: int
    offset: int
    timestamp: int
    timestamp_type: int  # 0: CreateTime; 1: LogAppendTime
    key: bytes | None
    key_bytes: int
    value: bytes | None
    value_bytes: int
    headers: tuple[tuple[str, bytes | None], ...]
    headers_cut: int  # headers that are not held
    leader_epoch: int
    codec: Codec
    batch_offset: int
    batch_bytes: int
    batch_records: int
    producer_id: int
    producer_epoch: int
    sequence: int
    state: TransactionState
    marker: (
        str  # "COMMIT" or "ABORT" for a transaction marker, "control" for another control record
    )
    coordinator_epoch: int = -1

    @property
    def held_bytes(self) -> int:
        """The bytes that are held of this record."""
        headers = sum(len(name) + len(value or b"") for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers

    @property
    def is_cut(self) -> bool:
        """Whether a part of the record is not held."""
        held = len(self.key or b""), len(self.value or b"")
        return held != (self.key_bytes, self.value_bytes) or self.headers_cut > 0


class ScanWanted(NamedTuple):
    """Which records of one partition are searched."""

    partition: int
    position: int  # below it everything has been searched
    end: int
    room: int  # records that may still be found
    committed_only: bool = False
    shows_markers: bool = False
    held_bytes: int = HELD_BYTES_MAX
    # Of all found records; the one that reaches it is the last one. A response of a few MiB may
    # decompress to thousands of times as much.
    room_bytes: int = BODY_BYTES_MAX


class Stability(NamedTuple):
    """What is known of the transactions in fetched bytes."""

    # All bytes are below the last stable offset: every transaction has ended, and those that are
    # not in `aborted` were committed. Otherwise all bytes are above it.
    is_stable: bool
    aborted: tuple[AbortedTransaction, ...] = ()  # of the fetched bytes, from the Fetch response
    open_from: Mapping[int, int] = {}  # first offsets of open transactions, by producer id


@dataclass(slots=True)
class Scanned:
    """What was found in the fetched bytes, and the counts to add to the progress."""

    position: int
    found: list[FoundRecord] = field(default_factory=list)
    records: int = 0
    markers: int = 0
    missing: int = 0
    bytes: int = 0
    undecodable: list[UnsearchedRange] = field(default_factory=list)
    error: str = ""  # the rest of the partition cannot be read


def scan(data: Bytes, wanted: ScanWanted, matcher: Matcher, stability: Stability) -> Scanned:
    """Search the whole batches in `data`, which begins at or before `wanted.position`.

    Stops after the record that fills `wanted.room` or `wanted.room_bytes`, or at `wanted.end`.
    """
    return _Scan(memoryview(data), wanted, matcher, stability).run()


class _Scan:
    def __init__(
        self, view: memoryview, wanted: ScanWanted, matcher: Matcher, stability: Stability
    ) -> None:
        self._view = view
        self._wanted = wanted
        self._matcher = matcher
        self._stability = stability
        self._aborted = AbortedBatches(stability.aborted)
        self._done = Scanned(wanted.position)
        self._held_bytes = 0  # of `_done.found`

    def run(self) -> Scanned:
        done, end = self._done, self._wanted.end
        for at, size in self._whole_batches():
            if done.position >= end:
                break
            if self._view[at + MAGIC_AT] != MAGIC:
                self._old_format(at)
                continue
            header = read_header(self._view, at)
            is_aborted = self._is_aborted(at, header)
            if header.next_offset <= done.position:
                continue
            done.bytes += size
            done.missing += max(0, min(header.base_offset, end) - done.position)
            done.position = min(max(done.position, header.base_offset), end)
            if done.position >= end:
                break
            self._batch(at, header, is_aborted=is_aborted)
            if self._is_full(len(done.found), self._held_bytes):
                break
        return done

    def _is_full(self, found: int, held_bytes: int) -> bool:
        return found >= self._wanted.room or held_bytes >= self._wanted.room_bytes

    def _is_aborted(self, at: int, header: BatchHeader) -> bool:
        """Whether the batch has data of an aborted transaction; called for each batch, in order."""
        try:
            return self._aborted.skips(header, self._view, at) and not header.is_control
        except ApiError:  # a damaged marker, which is reported when the batch is searched
            return False

    def _whole_batches(self) -> Iterator[tuple[int, int]]:
        """Position and size of each batch; stops before an incomplete one."""
        at, end = 0, len(self._view)
        while end - at > MAGIC_AT:
            size = size_at(self._view, at)
            if size - OVERHEAD_BYTES < LENGTH_MIN or (
                self._view[at + MAGIC_AT] == MAGIC and size < HEADER_BYTES
            ):
                self._done.error = (
                    f"the batch at offset {self._done.position} has the length "
                    f"{size - OVERHEAD_BYTES}: nothing after it can be read"
                )
                return
            if at + size > end:
                return
            yield at, size
            at += size

    def _old_format(self, at: int) -> None:
        """A message of magic 0 or 1: its offset is its last one."""
        after = base_offset_at(self._view, at) + 1
        reason = f"message format v{self._view[at + MAGIC_AT]}, of Kafka before 0.11"
        self._undecodable(min(after, self._wanted.end), reason)

    def _undecodable(self, after: int, reason: str) -> None:
        if after > self._done.position:
            self._done.undecodable.append(UnsearchedRange(self._done.position, after, reason))
            self._done.position = after

    def _batch(self, at: int, header: BatchHeader, *, is_aborted: bool) -> None:
        """Search one batch of which something is between the position and the end."""
        done, wanted = self._done, self._wanted
        after = min(header.next_offset, wanted.end)
        try:
            if not has_valid_crc(self._view, at, header):
                self._undecodable(after, "its bytes do not match their checksum")
                return
            whole = self._view[at : at + header.size_bytes]
            state = self._state(header, is_aborted=is_aborted)
            if header.is_control:
                self._control(whole, header, state, after)
                return
            body = b""
            is_wanted = not self._matcher.is_before(header.max_timestamp) and not (
                wanted.committed_only and state in _NOT_COMMITTED
            )
            if is_wanted:
                body = records_bytes(whole, header, BODY_BYTES_MAX)
                is_wanted = self._matcher.may_match(body)
            if is_wanted or not _is_dense(header):
                body = body or records_bytes(whole, header, BODY_BYTES_MAX)
                self._records(body, header, state, after, matches=is_wanted)
            else:
                done.records += after - done.position
                done.position = after
        except ApiError as error:
            self._undecodable(after, error.message or error.code.name)

    def _records(
        self,
        body: bytes,
        header: BatchHeader,
        state: TransactionState,
        after: int,
        *,
        matches: bool,
    ) -> None:
        done, wanted, matcher = self._done, self._wanted, self._matcher
        position, records, missing, held_bytes = done.position, 0, 0, self._held_bytes
        found: list[FoundRecord] = []
        not_json = matcher.not_json
        try:
            for record in records_in(body, header):
                offset = record.offset
                if offset < position:
                    continue
                if offset >= after:
                    break
                missing += offset - position
                records += 1
                position = offset + 1
                if matches and matcher.matches(record):
                    found.append(_found(wanted, record, header, state))
                    held_bytes += found[-1].held_bytes
                    if self._is_full(len(done.found) + len(found), held_bytes):
                        after = position
                        break
        except ApiError:
            matcher.not_json = not_json  # the whole batch is not searched
            raise
        done.found += found
        self._held_bytes = held_bytes
        done.records += records
        done.missing += missing + after - position
        done.position = after

    def _control(
        self, whole: memoryview, header: BatchHeader, state: TransactionState, after: int
    ) -> None:
        done, wanted = self._done, self._wanted
        if not header.record_count:  # compaction has kept the header alone
            done.missing += after - done.position
        else:
            done.markers += after - done.position
            if wanted.shows_markers:
                marker = read_marker(whole)
                record = next(iter_records(whole))
                name = marker.type.name if marker is not None else "control"
                epoch = marker.coordinator_epoch if marker is not None else -1
                if self._matcher.matches(record):
                    found = _found(wanted, record, header, state, marker=name, epoch=epoch)
                    done.found.append(found)
        done.position = after

    def _state(self, header: BatchHeader, *, is_aborted: bool) -> TransactionState:
        if not header.is_transactional or header.is_control:
            return TransactionState.NONE
        if is_aborted:
            return TransactionState.ABORTED
        if self._stability.is_stable:
            return TransactionState.COMMITTED
        first = self._stability.open_from.get(header.producer_id)
        if first is not None and first <= header.base_offset:
            return TransactionState.OPEN
        return TransactionState.ENDED


def _is_dense(header: BatchHeader) -> bool:
    """Whether every offset of the batch has a record, so that they can be counted undecoded."""
    return header.record_count == header.last_offset_delta + 1


_NOT_COMMITTED: Final = (TransactionState.ABORTED, TransactionState.OPEN, TransactionState.ENDED)


def _found(
    wanted: ScanWanted,
    record: Record,
    header: BatchHeader,
    state: TransactionState,
    *,
    marker: str = "",
    epoch: int = -1,
) -> FoundRecord:
    headers, cut = _held_headers(record.headers, wanted.held_bytes)
    room = wanted.held_bytes
    sequence = -1
    if header.base_sequence >= 0:
        sequence = (header.base_sequence + record.offset - header.base_offset) & SEQUENCE_MAX
    return FoundRecord(
        partition=wanted.partition,
        offset=record.offset,
        timestamp=record.timestamp,
        timestamp_type=int(header.timestamp_type),
        key=None if record.key is None else record.key[:room],
        key_bytes=len(record.key or b""),
        value=None if record.value is None else record.value[:room],
        value_bytes=len(record.value or b""),
        headers=headers,
        headers_cut=cut,
        leader_epoch=header.leader_epoch,
        codec=Codec(header.codec),
        batch_offset=header.base_offset,
        batch_bytes=header.size_bytes,
        batch_records=header.record_count,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        sequence=sequence,
        state=state,
        marker=marker,
        coordinator_epoch=epoch,
    )


def _held_headers(
    headers: Collection[tuple[str, bytes | None]], room: int
) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    """As many whole headers as fit into the limit, and the number of the others."""
    held: list[tuple[str, bytes | None]] = []
    for name, value in headers:
        room -= len(name) + len(value or b"")
        if room < 0:
            break
        held.append((name, value))
    return tuple(held), len(headers) - len(held)


def next_fetch_offset(data: Bytes, position: int) -> int:
    """Where the next Fetch begins: after the last whole batch of `data`."""
    view = memoryview(data)
    at, end = 0, len(view)
    while end - at > MAGIC_AT:
        size = size_at(view, at)
        if size - OVERHEAD_BYTES < LENGTH_MIN or at + size > end:
            break
        if view[at + MAGIC_AT] == MAGIC and size >= HEADER_BYTES:
            position = max(position, read_header(view, at).next_offset)
        else:
            position = max(position, base_offset_at(view, at) + 1)
        at += size
    return position


def open_transactions(producers: Iterable[tuple[int, int]]) -> dict[int, int]:
    """First offsets of open transactions by producer id, from (producer id, first offset or -1)."""
    return {producer_id: first for producer_id, first in producers if first >= 0}
