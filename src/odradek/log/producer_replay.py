"""Producer state and the log: what a batch changes, and how the state is rebuilt.

The state at an offset is the newest snapshot at or below it, and the batches after that. A
snapshot is written when a segment is rolled (at its base offset) and at a clean shutdown (at the
log end offset). A corrupt one is removed, and the one before it is used.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

from odradek.log.deletion import remove_snapshots, snapshot_offsets
from odradek.log.disk import Data
from odradek.log.index.transactions import AbortedTransaction
from odradek.log.log_state import LogState
from odradek.log.producer_state import CorruptSnapshotError, ProducerState
from odradek.log.segment import SNAPSHOT, Segment, segment_stem
from odradek.record.batch import CONTROL_BIT, BatchHeader
from odradek.record.control import ControlType, read_marker


def prepare_markers(active: Segment, batches: Data, run: Sequence[BatchHeader]) -> None:
    """Make ready, or refuse, what control batches change besides the log: before they are written.

    Raises:
        InvalidRecordError: one has no marker that can be read.
        StorageError: the transaction index cannot be opened.
    """
    at = 0
    for header in run:
        if header.attributes & CONTROL_BIT:
            marker = read_marker(memoryview(batches)[at : at + header.size_bytes])
            if marker is not None and marker.type is ControlType.ABORT:
                active.prepare_aborted()
        at += header.size_bytes


class AbortedTransactions(Protocol):
    """Where aborted transactions are noted: the transaction index of a segment."""

    def add_aborted(self, transaction: AbortedTransaction) -> None:
        """Add a transaction, at its marker."""


def note_producer(
    producers: ProducerState,
    segment: AbortedTransactions,
    batch: Data,
    header: BatchHeader,
    base_offset: int,
) -> None:
    """Take note of an appended batch; an abort goes into its segment's transaction index."""
    if not header.attributes & CONTROL_BIT:
        producers.appended(header, base_offset)
        return
    marker = read_marker(batch)
    ended = producers.marker_appended(header, marker, base_offset) if marker else None
    if ended is not None and ended.aborted:
        segment.add_aborted(
            AbortedTransaction(
                ended.producer_id, ended.first_offset, ended.last_offset, ended.last_stable_offset
            )
        )


def write_snapshot(log: LogState) -> str:
    """Write a snapshot at the log end offset, without flushing it. Returns the path."""
    path = segment_stem(log.directory, log.leo) + SNAPSHOT
    file = log.host.disk.create(path)
    file.write(0, (log.producers.encode_snapshot(),))
    file.rest()
    return path


def settle_snapshot(log: LogState) -> list[str]:
    """Write a snapshot at the log end offset, in place of others within the active segment.

    Returns its path; none if the active segment is empty, whose snapshot is there.
    """
    base_offset = log.active_segment.base_offset
    if log.leo == base_offset:
        return []
    remove_snapshots(log, above=base_offset)
    return [write_snapshot(log)]


def load_snapshot(log: LogState, *, offset: int, among: Sequence[int] | None = None) -> int:
    """Load the newest snapshot at or below `offset`. Returns the offset to replay from.

    Without a snapshot that is the start of the log. `among` are the offsets of all snapshots,
    increasing, from a caller that has listed the directory.
    """
    host = log.host
    offsets = snapshot_offsets(host.disk, log.directory) if among is None else among
    for candidate in reversed(offsets):
        if candidate > offset:
            continue
        path = segment_stem(log.directory, candidate) + SNAPSHOT
        try:
            log.producers.load_snapshot(
                host.disk.read_file(path) or b"",
                wall_ms=host.clock.wall_ms(),
                expiration_ms=host.producer_id_expiration_ms,
            )
        except CorruptSnapshotError:
            host.disk.unlink(path)
        else:
            return candidate
    log.producers.clear()
    return log.segments[0].base_offset


def rebuild_producers(log: LogState, *, among: Sequence[int] | None = None) -> Iterator[None]:
    """Rebuild the state at the end of the log; a step for each batch. `among`: `load_snapshot`."""
    start = load_snapshot(log, offset=log.leo, among=among)
    for segment in log.segments_from(start):
        position = segment.find(start, wait=True)
        for at, header in segment.walk(position):
            if header.producer_id >= 0:
                replay(log.producers, segment, at, header)
            yield
    log.producers_end = log.leo if len(log.producers) else 0
    log.producers.high_watermark_advanced(log.high_watermark)


def replay(producers: ProducerState, segment: Segment, position: int, header: BatchHeader) -> None:
    """Replay one batch; the transaction index has its aborted transaction already."""
    if not header.attributes & CONTROL_BIT:
        producers.appended(header, header.base_offset)
        return
    marker = read_marker(segment.read(position, header.size_bytes, wait=True))
    if marker is not None:
        producers.marker_appended(header, marker, header.base_offset)
