"""One segment: a `.log` file with the indexes that lead into it.

    <base>.log          record batches, one after the other
    <base>.index        offset -> position           `odradek.log.offset_index`
    <base>.timeindex    timestamp -> offset          `odradek.log.time_index`
    <base>.txnindex     aborted transactions         only where there are any
    <base>.snapshot     producer state at its base   kept by the log

The file names carry the base offset, 20 digits. Only the last segment of a log, the active
one, is written. Of the others nothing is held but numbers: their indexes are read when
somebody looks into them, and forgotten when many others have been used since (`IndexCache`).

Positions are found by index and then by walking batch headers. Whoever may not wait for the
device gets `ColdError` when that walk leaves the page cache.
"""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from odradek.log.disk import Data, Disk, File
from odradek.log.offset_index import OffsetIndex
from odradek.log.time_index import ENTRY_BYTES as TIME_ENTRY_BYTES
from odradek.log.time_index import TimeIndex, TimestampAndOffset
from odradek.log.transaction_index import ENTRY_BYTES as TRANSACTION_ENTRY_BYTES
from odradek.log.transaction_index import AbortedTransaction, decode
from odradek.model.errors import OdradekError
from odradek.record.batch import (
    HEADER_BYTES,
    NO_TIMESTAMP,
    OVERHEAD_BYTES,
    BatchHeader,
    CorruptBatchError,
    read_header,
)

LOG: Final = ".log"
INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TRANSACTION_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
DELETED: Final = ".deleted"
SEGMENT_SUFFIXES: Final = (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX)

RELATIVE_OFFSET_MAX: Final = 0x7FFFFFFF
POSITION_MAX: Final = 0x7FFFFFFF
# A walk over headers reads this much at a time: a good deal more than index.interval.bytes.
WALK_BYTES: Final = 16_384
# Between entries of an index that turns out to be damaged: the default.
REBUILD_INTERVAL_BYTES: Final = 4096
_UNKNOWN: Final = -2  # a timestamp that was not looked up yet


class ColdError(OdradekError):
    """What has to be read is not in memory: read this first, where waiting is allowed."""

    def __init__(self, file: File, position: int, length: int) -> None:
        super().__init__(f"{file.path}: {length} bytes at {position} are not in memory")
        self.file = file
        self.position = position
        self.length = length


class Segment:
    """One segment, active or not. Offsets are absolute here."""

    __slots__ = (
        "_aborted",
        "_first_timestamp",
        "_max_timestamp",
        "_max_timestamp_offset",
        "base_offset",
        "bytes_since_entry",
        "created_ms",
        "disk",
        "file",
        "offset_index",
        "size",
        "stem",
        "time_index",
    )

    def __init__(self, disk: Disk, stem: str, base_offset: int, file: File) -> None:
        self.disk = disk
        self.stem = stem  # the path without its suffix
        self.base_offset = base_offset
        self.file = file
        self.size = 0
        self.created_ms = 0
        self.bytes_since_entry = 0
        self.offset_index: OffsetIndex | None = None  # None: not in memory
        self.time_index: TimeIndex | None = None
        self._first_timestamp: int | None = None  # None: not known
        self._max_timestamp = _UNKNOWN
        self._max_timestamp_offset = base_offset
        self._aborted: list[AbortedTransaction] | None = None  # None: not looked up

    @classmethod
    def create(cls, disk: Disk, directory: str, base_offset: int, now_ms: int) -> "Segment":
        """A new, empty segment. Its index files are made when it is flushed or closed."""
        stem = segment_stem(directory, base_offset)
        segment = cls(disk, stem, base_offset, disk.create(stem + LOG))
        segment.created_ms = now_ms
        segment.offset_index = OffsetIndex()
        segment.time_index = TimeIndex()
        segment._aborted = []
        segment._max_timestamp = NO_TIMESTAMP
        return segment

    @classmethod
    def existing(
        cls, disk: Disk, directory: str, base_offset: int, *, size: int, mtime_ms: int
    ) -> "Segment":
        """A segment that stands on disk. Nothing is opened."""
        stem = segment_stem(directory, base_offset)
        segment = cls(disk, stem, base_offset, disk.file(stem + LOG))
        segment.size = size
        segment.created_ms = mtime_ms
        return segment

    # ---- appending, by the log, which has written the bytes

    def appended(self, position: int, header: BatchHeader, last_offset: int, interval: int) -> bool:
        """Note a batch that now stands at `position`; index it if the last entry is far.

        Returns whether the indexes grew.
        """
        size = header.length + OVERHEAD_BYTES
        timestamp = header.max_timestamp
        if timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
            self._max_timestamp_offset = last_offset
        if position == 0:
            self._first_timestamp = timestamp
        self.size = position + size
        if self.bytes_since_entry > interval:
            offset_index, time_index = self.indexes()
            offset_index.append(last_offset - self.base_offset, position)
            time_index.append(self._max_timestamp, self._max_timestamp_offset - self.base_offset)
            self.bytes_since_entry = size
            return True
        self.bytes_since_entry += size
        return False

    @property
    def first_timestamp(self) -> int:
        """The largest timestamp of its first batch: when it was begun, by the records' clock."""
        if self._first_timestamp is None:
            if not self.size:
                return NO_TIMESTAMP
            header = read_header(self.read(0, HEADER_BYTES, wait=True))
            self._first_timestamp = header.max_timestamp
        return self._first_timestamp

    def index_is_full(self, index_bytes: int) -> bool:
        """Whether there is no room for another entry in either index."""
        offset_index, time_index = self.indexes()
        # One entry of the time index is kept back for the one that closing adds.
        return len(offset_index) >= index_bytes // 8 or len(time_index) >= index_bytes // 12 - 1

    # ---- what it holds

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp, NO_TIMESTAMP if there is none."""
        if self._max_timestamp == _UNKNOWN:
            self._load_max_timestamp()
        return self._max_timestamp

    @property
    def max_timestamp_offset(self) -> int:
        """The last offset of the batch that brought the largest timestamp."""
        if self._max_timestamp == _UNKNOWN:
            self._load_max_timestamp()
        return self._max_timestamp_offset

    @property
    def age_timestamp_ms(self) -> int:
        """What retention goes by: the largest timestamp, or else the file's."""
        return self.max_timestamp if self.max_timestamp >= 0 else self.file.mtime_ms()

    def indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        """Both indexes, read from their files if they are not in memory."""
        if self.offset_index is None or self.time_index is None:
            self._load_indexes()
        assert self.offset_index is not None
        assert self.time_index is not None
        return self.offset_index, self.time_index

    def _load_indexes(self) -> None:
        offset_index = OffsetIndex(self._index_file(INDEX))
        time_index = TimeIndex(self._index_file(TIME_INDEX))
        self.offset_index, self.time_index = offset_index, time_index
        whole = offset_index.has_file and time_index.has_file
        if not whole or not offset_index.is_sane(self.size) or not time_index.is_sane():
            for _ in self.rebuilding(REBUILD_INTERVAL_BYTES):
                pass
            self.finish()

    def rebuilding(self, interval: int) -> Iterator[None]:
        """Make both indexes anew from the log; a step for each batch.

        Raises:
            CorruptBatchError: where a batch should be is none.
        """
        size = self.size
        self.begin_rebuild()
        try:
            for position, header in self._walk(0, size, wait=True):
                self.appended(position, header, header.last_offset, interval)
                yield
        finally:
            self.size = size

    def take_indexes_as_empty(self, index_bytes: int, time_index_bytes: int) -> None:
        """Of a small active segment: the walk over it finds all that its indexes could say."""
        self.offset_index = OffsetIndex.unread(index_bytes)
        self.time_index = TimeIndex.unread(time_index_bytes)

    def begin_rebuild(self) -> None:
        """Forget what is known of the log; `appended` tells it batch by batch."""
        self.offset_index = OffsetIndex.unread(self._file_bytes(INDEX))
        self.time_index = TimeIndex.unread(self._file_bytes(TIME_INDEX))
        self._max_timestamp, self._max_timestamp_offset = NO_TIMESTAMP, self.base_offset
        self._first_timestamp = None
        self.bytes_since_entry = self.size = 0

    def _index_file(self, suffix: str) -> bytes | None:
        return self.disk.read_file(self.stem + suffix)

    def _file_bytes(self, suffix: str) -> int:
        path = self.stem + suffix
        return self.disk.file(path).size() if self.disk.exists(path) else -1

    def _load_max_timestamp(self) -> None:
        # Of a segment that is not active: when it was finished its maximum got an entry.
        index = self.time_index
        last = self._last_time_entry() if index is None else index.last()
        if self._max_timestamp != _UNKNOWN:  # found meanwhile, when an index was rebuilt
            return
        self._max_timestamp = last.timestamp if last else NO_TIMESTAMP
        self._max_timestamp_offset = self.base_offset + (last.offset if last else 0)

    def _last_time_entry(self) -> TimestampAndOffset | None:
        path = self.stem + TIME_INDEX
        if not self.disk.exists(path):
            return self.indexes()[1].last()
        file = self.disk.file(path)
        size = file.size()
        tail = TimeIndex(file.read_now(max(0, size - 2 * TIME_ENTRY_BYTES), size))
        file.rest()
        return tail.last() if tail.is_sane() else self.indexes()[1].last()

    # ---- finding

    def walk(self, position: int, *, wait: bool = True) -> Iterator[tuple[int, BatchHeader]]:
        """Each batch from `position` on, its header alone.

        Raises:
            ColdError: unless it may wait.
            CorruptBatchError: where a batch should be is none.
        """
        return self._walk(position, self.size, wait=wait)

    def _walk(self, position: int, size: int, *, wait: bool) -> Iterator[tuple[int, BatchHeader]]:
        chunk: Data = b""
        chunk_at = 0
        while position < size:
            if position + HEADER_BYTES > chunk_at + len(chunk):
                length = min(WALK_BYTES, size - position)
                chunk, chunk_at = self.read(position, length, wait=wait), position
            header = read_header(chunk, position - chunk_at)
            if header.magic != 2 or header.size_bytes < HEADER_BYTES:
                raise CorruptBatchError(
                    f"{self.file.path}: no batch of format v2 at position {position}"
                )
            yield position, header
            position += header.size_bytes

    def find(self, offset: int, *, wait: bool) -> int:
        """The position of the first batch that reaches `offset`; the size if none does."""
        offset_index, _ = self.indexes()
        start = offset_index.lookup(offset - self.base_offset)
        for position, header in self.walk(start, wait=wait):
            if header.last_offset >= offset:
                return position
        return self.size

    def end_below(self, offset: int) -> int:
        """Where the log would end, were the batch that reaches `offset` and all behind it cut."""
        offset_index, _ = self.indexes()
        end = self.base_offset
        for _, header in self.walk(offset_index.lookup(offset - 1 - self.base_offset)):
            if header.last_offset >= offset:
                break
            end = header.next_offset
        return end

    def find_timestamp(
        self, timestamp: int, starting_offset: int, *, wait: bool
    ) -> tuple[int, BatchHeader] | None:
        """The first batch that reaches a timestamp, at or behind an offset."""
        if self.max_timestamp < timestamp:
            return None
        offset_index, time_index = self.indexes()
        relative = max(time_index.lookup(timestamp), starting_offset - self.base_offset)
        for position, header in self.walk(offset_index.lookup(relative), wait=wait):
            if header.max_timestamp >= timestamp and header.last_offset >= starting_offset:
                return position, header
        return None

    def read_tail(self) -> int:
        """Of the active segment: walk from the last entry on. Returns the next offset."""
        offset_index, time_index = self.indexes()
        last = time_index.last()
        self._max_timestamp = last.timestamp if last else NO_TIMESTAMP
        self._max_timestamp_offset = self.base_offset + (last.offset if last else 0)
        next_offset = self.base_offset
        start = offset_index.last_position()
        for _, header in self.walk(start):
            next_offset = header.next_offset
            if header.max_timestamp > self._max_timestamp:
                self._max_timestamp = header.max_timestamp
                self._max_timestamp_offset = header.last_offset
        self.bytes_since_entry = self.size - start
        return next_offset

    def read(self, position: int, length: int, *, wait: bool) -> Data:
        """What stands there.

        Raises:
            ColdError: it is not in memory, and waiting is not allowed.
        """
        data = self.file.read_now(position, length) if wait else self.file.read(position, length)
        if data is None:
            raise ColdError(self.file, position, length)
        return data

    # ---- aborted transactions

    def aborted(self) -> list[AbortedTransaction]:
        """The transactions whose abort marker lies in here."""
        if self._aborted is None:
            data = self.disk.read_file(self.stem + TRANSACTION_INDEX) or b""
            self._aborted = decode(data, base_offset=self.base_offset)
        return self._aborted

    def add_aborted(self, transaction: AbortedTransaction) -> None:
        """Another one. It is rare enough to be written at once."""
        aborted = self.aborted()
        path = self.stem + TRANSACTION_INDEX
        file = self.disk.file(path) if aborted else self.disk.create(path)
        file.write(len(aborted) * TRANSACTION_ENTRY_BYTES, (transaction.encode(),))
        file.rest()
        aborted.append(transaction)

    def keep_aborted_below(self, offset: int) -> None:
        """Forget those whose marker lies at or behind `offset`."""
        aborted = self.aborted()
        kept = [transaction for transaction in aborted if transaction.last_offset < offset]
        if len(kept) < len(aborted):
            file = self.disk.file(self.stem + TRANSACTION_INDEX)
            file.truncate(len(kept) * TRANSACTION_ENTRY_BYTES)
            file.rest()
            self._aborted = kept

    def clear_aborted(self) -> None:
        """Forget all, whatever stands in the file: they are about to be found anew."""
        if self.disk.exists(self.stem + TRANSACTION_INDEX):
            self.disk.unlink(self.stem + TRANSACTION_INDEX)
        self._aborted = []

    # ---- changing shape

    def truncate(self, offset: int) -> int:
        """Cut the batch that reaches that offset, and all behind it. Returns the next offset."""
        position = self.find(offset, wait=True)
        offset_index, time_index = self.indexes()
        self.file.truncate(position)
        self.size = position
        offset_index.truncate(offset - self.base_offset)
        time_index.truncate(offset - self.base_offset)
        self.keep_aborted_below(offset)
        self.save_indexes()
        if not position:
            self._first_timestamp = None
        return self.read_tail()

    def finish(self) -> None:
        """Before it is closed or another becomes active: the largest timestamp gets its entry."""
        if self.size:
            _, time_index = self.indexes()
            time_index.append(self.max_timestamp, self._max_timestamp_offset - self.base_offset)
        self.save_indexes()

    def save_indexes(self) -> None:
        """Bring the index files up to date."""
        if self.offset_index is not None:
            self.offset_index.save(self.disk, self.stem + INDEX)
        if self.time_index is not None:
            self.time_index.save(self.disk, self.stem + TIME_INDEX)

    def index_paths(self) -> list[str]:
        """The index files that exist."""
        paths = [self.stem + suffix for suffix in (INDEX, TIME_INDEX, TRANSACTION_INDEX)]
        return [path for path in paths if self.disk.exists(path)]

    def moved(self, directory: str) -> None:
        """The directory around it has another name now."""
        self.stem = segment_stem(directory, self.base_offset)
        self.file.path = self.stem + LOG


class IndexCache:
    """Which inactive segments have their indexes in memory: those used last."""

    def __init__(self, *, bytes_max: int = 64 << 20) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._segments: OrderedDict[Segment, int] = OrderedDict()

    def used(self, segment: Segment) -> None:
        """A segment that is not active was looked into."""
        if segment in self._segments:
            self._segments.move_to_end(segment)
            return
        offset_index, time_index = segment.indexes()
        size = offset_index.size_bytes + time_index.size_bytes
        self._segments[segment] = size
        self._bytes += size
        while self._bytes > self._bytes_max and len(self._segments) > 1:
            oldest, size = self._segments.popitem(last=False)
            self._bytes -= size
            oldest.save_indexes()
            oldest.offset_index = oldest.time_index = None

    def forget(self, segment: Segment) -> None:
        """A segment is deleted, or becomes the active one."""
        self._bytes -= self._segments.pop(segment, 0)


def segment_stem(directory: str, base_offset: int) -> str:
    """The path of a segment's files, without their suffix."""
    return f"{directory}/{base_offset:020d}"
