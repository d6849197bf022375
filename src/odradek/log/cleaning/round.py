"""One round of cleaning one log: segments are read and `.cleaned` files are written.

    1  from the first dirty offset on, the offset of each key's last record goes into the offset
       map, until its memory is full or the end of the cleanable part
    2  neighbouring segments that fit into one are grouped
    3  what stays of each group is written to `<base>.log.cleaned`, with its indexes, and flushed

The log itself is neither changed nor asked: a `CleaningJob` has everything that is needed, a
`CleaningOutcome` says what was written. Both are sent as JSON, because the round runs in a process
of its own (`odradek.broker.storage.cleaner_worker`). `odradek.log.cleaning.cleaner` decides
whether the outcome still fits the log.

`cleaning` is a generator: after each batch it yields how many bytes it has read and written, and
it returns the outcome.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final, NamedTuple, Self

from odradek.log.cleaning.batches import (
    BatchFilter,
    CleanedTransactions,
    Counts,
    LastOfProducer,
    OffsetMap,
)
from odradek.log.disk import Data, Disk, File
from odradek.log.index.offsets import OffsetIndex
from odradek.log.index.times import TimeIndex
from odradek.log.index.transactions import AbortedTransaction
from odradek.log.segment import (
    INDEX,
    LOG,
    RELATIVE_OFFSET_MAX,
    TIME_INDEX,
    TRANSACTION_INDEX,
    segment_stem,
)
from odradek.model.clock import WallMs
from odradek.model.errors import OdradekError
from odradek.record.batch import (
    CONTROL_BIT,
    HEADER_BYTES,
    NO_TIMESTAMP,
    BatchHeader,
    CorruptBatchError,
    has_valid_crc,
    iter_batches,
    read_header,
)

CLEANED: Final = ".cleaned"
READ_BYTES: Final = 1 << 20

Steps = Generator[int, None, "CleaningOutcome"]


class SourceSegment(NamedTuple):
    """A segment at the start of the round: only its first `size` bytes are read."""

    base_offset: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningJob:
    """Everything that a round needs to know of its log."""

    directory: str
    segments: tuple[SourceSegment, ...]  # from the log's first one on, below `end_offset`
    first_dirty_offset: int
    end_offset: int  # base offset of the first segment that must not be cleaned
    aborted: tuple[AbortedTransaction, ...]
    producers: Mapping[int, LastOfProducer]
    wall_ms: WallMs
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    map_bytes: int
    read_bytes: int = READ_BYTES

    def to_json(self) -> dict[str, Any]:
        """As JSON values: lists instead of tuples, strings as keys."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`."""
        return cls(
            **{
                **data,
                "segments": tuple(SourceSegment(*segment) for segment in data["segments"]),
                "aborted": tuple(AbortedTransaction(*entry) for entry in data["aborted"]),
                "producers": {
                    int(producer_id): LastOfProducer(*last)
                    for producer_id, last in data["producers"].items()
                },
            }
        )


class CleanedSegment(NamedTuple):
    """A `.cleaned` segment, and the segments that it replaces."""

    sources: tuple[int, ...]  # their base offsets; the first is also that of the new segment
    size: int


@dataclass(slots=True, kw_only=True)
class CleaningOutcome:
    """What a round has written, and up to which offset the log is then clean."""

    end_offset: int  # the next first dirty offset, once the segments are replaced
    segments: list[CleanedSegment] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)
    map_utilization: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`."""
        return cls(
            end_offset=data["end_offset"],
            segments=[CleanedSegment(tuple(found[0]), found[1]) for found in data["segments"]],
            counts=Counts(**data["counts"]),
            map_utilization=data["map_utilization"],
        )


def cleaning(job: CleaningJob, disk: Disk) -> Steps:
    """Run one round; one step for each batch.

    Raises:
        CorruptBatchError, InvalidRecordError, DecompressionError: the log is damaged.
        StorageError: an I/O error, or a segment was deleted meanwhile.
    """
    offset_map = OffsetMap(bytes_max=job.map_bytes, start_offset=job.first_dirty_offset)
    outcome = CleaningOutcome(end_offset=job.first_dirty_offset)
    yield from _fill(offset_map, job, disk, outcome.counts)
    outcome.end_offset = offset_map.end_offset
    outcome.map_utilization = offset_map.utilization
    batch_filter = BatchFilter(
        offset_map,
        aborted=job.aborted,
        producers=job.producers,
        end_of_round=job.end_offset,
        delete_retention_ms=job.delete_retention_ms,
        wall_ms=job.wall_ms,
    )
    counts = batch_filter.counts
    counts.map_records, counts.map_bytes = outcome.counts.map_records, outcome.counts.map_bytes
    outcome.counts = counts
    reached = [s for s in job.segments if s.base_offset < offset_map.end_offset]
    try:
        for group in grouped(reached, job, disk):
            writer = _CleanedWriter(job, disk, group[0].base_offset)
            for source in group:
                for header, batch in _batches(job, disk, source, 0):
                    kept = batch_filter.keep(header, batch)
                    if kept is not None:
                        writer.append(kept)
                        if batch_filter.ended is not None:
                            writer.ended.append(batch_filter.ended)
                    yield header.size_bytes + (len(kept) if kept is not None else 0)
            sources = tuple(source.base_offset for source in group)
            outcome.segments.append(CleanedSegment(sources, writer.finish()))
    except OdradekError:
        remove_cleaned(job, disk)
        raise
    return outcome


def remove_cleaned(job: CleaningJob, disk: Disk) -> None:
    """Remove the files that a round has written, if the directory still exists."""
    for source in job.segments:
        for suffix in (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX):
            disk.unlink(segment_stem(job.directory, source.base_offset) + suffix + CLEANED)


def grouped(
    segments: Sequence[SourceSegment], job: CleaningJob, disk: Disk
) -> Iterator[list[SourceSegment]]:
    """Neighbouring segments that fit into one, however few of their records are removed.

    They fit by size, by the size of their indexes, and by the offset range of an index.
    """
    group: list[SourceSegment] = []
    size = index_bytes = time_index_bytes = 0
    for position, segment in enumerate(segments):
        stem = segment_stem(job.directory, segment.base_offset)
        own_index, own_time_index = _size(disk, stem + INDEX), _size(disk, stem + TIME_INDEX)
        following = position + 1
        end = segments[following].base_offset if following < len(segments) else job.end_offset
        fits = group and (
            size + segment.size <= job.segment_bytes
            and index_bytes + own_index <= job.segment_index_bytes
            and time_index_bytes + own_time_index <= job.segment_index_bytes
            and (not segment.size or end - 1 - group[0].base_offset <= RELATIVE_OFFSET_MAX)
        )
        if group and not fits:
            yield group
            group = []
            size = index_bytes = time_index_bytes = 0
        group.append(segment)
        size += segment.size
        index_bytes += own_index
        time_index_bytes += own_time_index
    if group:
        yield group


def _size(disk: Disk, path: str) -> int:
    return disk.file(path).size() if disk.exists(path) else 0


# --------------------------------------------------------------------------------- the map of keys


def _fill(offset_map: OffsetMap, job: CleaningJob, disk: Disk, counts: Counts) -> Iterator[int]:
    first, end = job.first_dirty_offset, job.end_offset
    transactions = CleanedTransactions(t for t in job.aborted if t.last_offset >= first)
    for index, source in enumerate(job.segments):
        following = index + 1
        ends = job.segments[following].base_offset if following < len(job.segments) else end
        if ends <= first:
            continue
        for header, batch in _batches(job, disk, source, first):
            if offset_map.is_full:
                return
            counts.map_bytes += header.size_bytes
            counts.map_records += header.record_count
            if header.attributes & CONTROL_BIT:
                transactions.marker_met(header, batch)
                offset_map.reach(header.next_offset)
            elif transactions.is_aborted(header):
                offset_map.reach(header.next_offset)
            else:
                offset_map.take(header, batch)
            yield header.size_bytes
        offset_map.reach(ends)  # a gap at the end of the segment


# ---------------------------------------------------------------------------------------- reading


def _batches(
    job: CleaningJob, disk: Disk, source: SourceSegment, from_offset: int
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The batches of a segment that end after `from_offset`, with verified checksums.

    Raises:
        CorruptBatchError: a batch is damaged.
    """
    file = disk.file(segment_stem(job.directory, source.base_offset) + LOG)
    position, size = 0, source.size
    length = job.read_bytes
    try:
        while position < size:
            chunk = memoryview(file.read_now(position, min(length, size - position)))
            end = 0
            for at, header in iter_batches(chunk):
                end = at + header.size_bytes
                if header.next_offset <= from_offset:
                    continue
                if not has_valid_crc(chunk, at, header):
                    raise CorruptBatchError(
                        f"{file.path}: the checksum of the batch at position {position + at} "
                        "is wrong"
                    )
                yield header, chunk[at:end]
            length = job.read_bytes
            if not end:
                # Larger than one read: read again with enough room; or the segment is torn.
                length = read_header(chunk).size_bytes if len(chunk) >= HEADER_BYTES else 0
                if length <= len(chunk) or position + length > size:
                    raise CorruptBatchError(f"{file.path}: no whole batch at position {position}")
            position += end
    finally:
        file.rest()


# ---------------------------------------------------------------------------------------- writing


class _CleanedWriter:
    """Writes one `.cleaned` segment and its indexes."""

    def __init__(self, job: CleaningJob, disk: Disk, base_offset: int) -> None:
        self._job = job
        self._disk = disk
        self._base_offset = base_offset
        self._stem = segment_stem(job.directory, base_offset)
        self._file = disk.create(self._stem + LOG + CLEANED)
        self._offset_index = OffsetIndex()
        self._time_index = TimeIndex()
        self._max_timestamp, self._max_timestamp_offset = NO_TIMESTAMP, base_offset
        self._since_entry = 0
        self._buffer: list[Data] = []
        self._buffered = self._written = 0
        self.ended: list[AbortedTransaction] = []  # aborted transactions with data left

    def append(self, batch: Data) -> None:
        """Write another batch that stays."""
        header = read_header(batch)
        relative = header.last_offset - self._base_offset
        if header.max_timestamp > self._max_timestamp:
            self._max_timestamp, self._max_timestamp_offset = header.max_timestamp, relative
        if self._since_entry > self._job.index_interval_bytes:
            self._offset_index.append(relative, self._written + self._buffered)
            self._time_index.append(self._max_timestamp, self._max_timestamp_offset)
            self._since_entry = 0
        self._since_entry += len(batch)
        # A copy: a view would keep the whole read buffer in memory.
        self._buffer.append(bytes(batch))
        self._buffered += len(batch)
        # One write takes at most 1,000 buffers.
        if self._buffered >= READ_BYTES or len(self._buffer) == 1000:
            self._write()

    def _write(self) -> None:
        if self._buffer:
            self._file.write(self._written, self._buffer)
            self._written += self._buffered
            self._buffer, self._buffered = [], 0

    def finish(self) -> int:
        """Write and flush everything. Returns the size of the new log segment."""
        self._write()
        if self._written:
            self._time_index.append(self._max_timestamp, self._max_timestamp_offset)
        disk, stem = self._disk, self._stem
        self._offset_index.save(disk, stem + INDEX + CLEANED)
        self._time_index.save(disk, stem + TIME_INDEX + CLEANED)
        files: list[File] = [
            self._file,
            disk.file(stem + INDEX + CLEANED),
            disk.file(stem + TIME_INDEX + CLEANED),
        ]
        if self.ended:
            index = disk.create(stem + TRANSACTION_INDEX + CLEANED)
            index.write(0, (b"".join(transaction.encode() for transaction in self.ended),))
            files.append(index)
        disk.flush_now(files)
        for file in files:
            file.rest()
        return self._written
