"""One segment: a `.log` file with its indexes.

    <base>.log          record batches, one after the other
    <base>.index        offset -> position           `odradek.log.index.offsets`
    <base>.timeindex    timestamp -> offset          `odradek.log.index.times`
    <base>.txnindex     aborted transactions         only where there are any
    <base>.snapshot     producer state at its base   kept by the log

File names are the base offset in 20 digits. Only the last segment of a log, the active one, is
appended to. The indexes of the others are read when needed, and dropped from memory after many
others have been used (`IndexCache`).

Positions are found by index and then by reading batch headers. A caller that must not wait for the
device gets a `ColdError` if the headers are not in the page cache.
"""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from odradek.log.disk import Data, Disk, File, StorageError
from odradek.log.index.offsets import OffsetIndex
from odradek.log.index.times import ENTRY_BYTES as TIME_ENTRY_BYTES
from odradek.log.index.times import TimeIndex, TimestampAndOffset
from odradek.log.index.transactions import ENTRY_BYTES as TRANSACTION_ENTRY_BYTES
from odradek.log.index.transactions import (
    AbortedTransaction,
    CorruptTransactionIndexError,
    decode,
)
from odradek.model.clock import WallMs
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
# How much is read at a time when headers are read: a good deal more than index.interval.bytes.
WALK_BYTES: Final = 16_384
# Between entries of an index that has to be rebuilt: the default.
REBUILD_INTERVAL_BYTES: Final = 4096
_UNKNOWN: Final = -2  # a timestamp that was not read yet


class ColdError(OdradekError):
    """Data is not in the page cache: read this range first, where waiting is allowed."""

    def __init__(self, file: File, position: int, length: int) -> None:
        super().__init__(f"{file.path}: {length} bytes at {position} are not in the page cache")
        self.file = file
        self.position = position
        self.length = length


class Segment:
    """One segment, active or not. Offsets are absolute here."""

    __slots__ = (
        "_aborted",
        "_first_timestamp",
        "_has_own_indexes",
        "_max_timestamp",
        "_max_timestamp_offset",
        "_transactions",
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
        self._has_own_indexes = False  # made by this process, not read from files
        self._first_timestamp: int | None = None  # None: not read yet
        self._max_timestamp = _UNKNOWN
        self._max_timestamp_offset = base_offset
        self._aborted: list[AbortedTransaction] | None = None  # None: not read yet
        self._transactions: File | None = None  # see `prepare_aborted`

    @classmethod
    def create(cls, disk: Disk, directory: str, base_offset: int, wall_ms: WallMs) -> "Segment":
        """A new, empty segment. Its index files are created when it is flushed or closed."""
        stem = segment_stem(directory, base_offset)
        segment = cls(disk, stem, base_offset, disk.create(stem + LOG))
        segment.created_ms = wall_ms
        segment.offset_index = OffsetIndex()
        segment.time_index = TimeIndex()
        segment._aborted = []
        segment._has_own_indexes = True
        segment._max_timestamp = NO_TIMESTAMP
        return segment

    @classmethod
    def existing(
        cls, disk: Disk, directory: str, base_offset: int, *, size: int, mtime_ms: int
    ) -> "Segment":
        """A segment that exists on disk. No file is opened."""
        stem = segment_stem(directory, base_offset)
        segment = cls(disk, stem, base_offset, disk.file(stem + LOG))
        segment.size = size
        segment.created_ms = mtime_ms
        return segment

    # ---- appending: the log writes the bytes

    def appended(self, position: int, header: BatchHeader, last_offset: int, interval: int) -> bool:
        """Record a batch written at `position`; index it if the last entry is `interval` before it.

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
        """The largest timestamp of its first batch, from which `segment.ms` counts."""
        if self._first_timestamp is None:
            if not self.size:
                return NO_TIMESTAMP
            header = read_header(self.read(0, HEADER_BYTES, wait=True))
            self._first_timestamp = header.max_timestamp
        return self._first_timestamp

    def index_is_full(self, index_bytes: int) -> bool:
        """Whether either index has no room for another entry."""
        offset_index, time_index = self.indexes()
        # One entry of the time index is reserved for the one that `finish` adds.
        return offset_index.lacks_room(1, index_bytes) or time_index.lacks_room(2, index_bytes)

    # ---- content

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp, NO_TIMESTAMP if there is none."""
        if self._max_timestamp == _UNKNOWN:
            self._load_max_timestamp()
        return self._max_timestamp

    @property
    def max_timestamp_offset(self) -> int:
        """The last offset of the batch with the largest timestamp."""
        if self._max_timestamp == _UNKNOWN:
            self._load_max_timestamp()
        return self._max_timestamp_offset

    @property
    def age_timestamp_ms(self) -> int:
        """The age for retention: the largest timestamp, else the file's modification time."""
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
        self._has_own_indexes = False
        whole = offset_index.has_file and time_index.has_file
        if not whole or not offset_index.is_sane(self.size) or not time_index.is_sane():
            for _ in self.rebuilding(REBUILD_INTERVAL_BYTES):
                pass
            self.finish()

    def rebuilding(self, interval: int) -> Iterator[None]:
        """Rebuild both indexes from the log; a step for each batch.

        Raises:
            CorruptBatchError: a batch is damaged.
        """
        size = self.size
        self.begin_rebuild()
        try:
            for position, header in self._walk(0, size, wait=True):
                self.appended(position, header, header.last_offset, interval)
                yield
        except StorageError:
            # Half an index shows a largest timestamp that is too low: retention would delete early.
            self.offset_index = self.time_index = self._first_timestamp = None
            self._max_timestamp = _UNKNOWN
            raise
        finally:
            self.size = size

    def take_indexes_as_empty(self, index_bytes: int, time_index_bytes: int) -> None:
        """For a small active segment: reading its headers replaces both indexes."""
        self.offset_index = OffsetIndex.unread(index_bytes)
        self.time_index = TimeIndex.unread(time_index_bytes)

    def begin_rebuild(self) -> None:
        """Reset all that is known of the content; `appended` is then called for each batch."""
        self.offset_index = OffsetIndex.unread(self._file_bytes(INDEX))
        self.time_index = TimeIndex.unread(self._file_bytes(TIME_INDEX))
        self._max_timestamp, self._max_timestamp_offset = NO_TIMESTAMP, self.base_offset
        self._first_timestamp = None
        self.bytes_since_entry = self.size = 0
        self._has_own_indexes = True

    def _index_file(self, suffix: str) -> bytes | None:
        return self.disk.read_file(self.stem + suffix)

    def _file_bytes(self, suffix: str) -> int:
        path = self.stem + suffix
        return self.disk.file(path).size() if self.disk.exists(path) else -1

    def _load_max_timestamp(self) -> None:
        # Of an inactive segment: `finish` has added an entry for its maximum.
        index = self.time_index
        last = self._last_time_entry() if index is None else index.last()
        if self._max_timestamp != _UNKNOWN:  # set meanwhile, when an index was rebuilt
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
        """The headers of all batches from `position` on, with their positions.

        Raises:
            ColdError: data is not in the page cache, and `wait` is false.
            CorruptBatchError: a batch is damaged.
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
                    f"{self.file.path}: not a batch of format v2 at position {position}"
                )
            yield position, header
            position += header.size_bytes

    def find(self, offset: int, *, wait: bool) -> int:
        """The position of the first batch that ends at or above `offset`; the size if none does.

        An index file that belongs to another log, or to another time, is rebuilt when it shows: an
        entry's batch is not readable, or is behind the entry's offset.
        """
        try:
            position = self._find(offset, wait=wait)
        except CorruptBatchError:
            if self._has_own_indexes:
                raise
            position = -1
        if position < 0:
            for _ in self.rebuilding(REBUILD_INTERVAL_BYTES):
                pass
            self.finish()
            position = self._find(offset, wait=wait)
        return position

    def _find(self, offset: int, *, wait: bool) -> int:
        """As `find`; -1 if the index has skipped the batch."""
        offset_index, _ = self.indexes()
        start = offset_index.lookup(offset - self.base_offset)
        for position, header in self.walk(start, wait=wait):
            if header.last_offset >= offset:
                is_skipped = position == start > 0 and header.base_offset > offset
                return -1 if is_skipped and not self._has_own_indexes else position
        return self.size

    def end_below(self, offset: int) -> int:
        """The end offset after truncation to `offset`: that of the batches wholly below it."""
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
        """The first batch from an offset on with that timestamp or a later one."""
        if self.max_timestamp < timestamp:
            return None
        offset_index, time_index = self.indexes()
        relative = max(time_index.lookup(timestamp), starting_offset - self.base_offset)
        for position, header in self.walk(offset_index.lookup(relative), wait=wait):
            if header.max_timestamp >= timestamp and header.last_offset >= starting_offset:
                return position, header
        return None

    def read_tail(self, until: int | None = None) -> int:
        """Read headers after the last index entry of the active segment. Returns the end offset.

        With `until`, the segment ends where a batch ends with that offset.

        Raises:
            CorruptBatchError: a batch is damaged or incomplete.
        """
        offset_index, time_index = self.indexes()
        last = time_index.last()
        self._max_timestamp = last.timestamp if last else NO_TIMESTAMP
        self._max_timestamp_offset = self.base_offset + (last.offset if last else 0)
        next_offset, offset_max = self.base_offset, self.base_offset + RELATIVE_OFFSET_MAX
        start = offset_index.last_position()
        for position, header in self.walk(start):
            if position + header.size_bytes > self.size:
                raise CorruptBatchError(f"{self.file.path}: an incomplete batch at {position}")
            if not next_offset <= header.base_offset <= header.last_offset <= offset_max:
                raise CorruptBatchError(f"{self.file.path}: wrong offsets at {position}")
            next_offset = header.next_offset
            if header.max_timestamp > self._max_timestamp:
                self._max_timestamp = header.max_timestamp
                self._max_timestamp_offset = header.last_offset
            if until is not None and next_offset >= until:
                self.size = position + header.size_bytes
                break
        self.bytes_since_entry = self.size - start
        return next_offset

    def resume(self, offset: int, *, has_aborted: bool) -> bool:
        """End at `offset`, where a flush of the log and of its indexes has ended.

        `has_aborted`: there is a transaction index.

        Returns False if the files do not show a batch that ends there; `begin_rebuild` follows.
        """
        offset_index = OffsetIndex(self._index_file(INDEX))
        time_index = TimeIndex(self._index_file(TIME_INDEX))
        if not (offset_index.has_file and time_index.has_file):
            return False
        relative = offset - self.base_offset
        offset_index.truncate(relative)
        time_index.truncate(relative)
        if not offset_index.is_sane(self.size) or not time_index.is_sane():
            return False
        self.offset_index, self.time_index = offset_index, time_index
        try:
            if has_aborted:
                self.keep_aborted_below(offset)
            else:
                self._aborted = []
            return self.read_tail(offset) == offset
        except (CorruptBatchError, CorruptTransactionIndexError):
            return False

    def read(self, position: int, length: int, *, wait: bool) -> Data:
        """The bytes at `position`.

        Raises:
            ColdError: they are not in the page cache, and `wait` is false.
        """
        data = self.file.read_now(position, length) if wait else self.file.read(position, length)
        if data is None:
            raise ColdError(self.file, position, length)
        return data

    # ---- aborted transactions

    def aborted(self) -> list[AbortedTransaction]:
        """The aborted transactions with their marker in this segment."""
        if self._aborted is None:
            data = self.disk.read_file(self.stem + TRANSACTION_INDEX) or b""
            self._aborted = decode(data, base_offset=self.base_offset)
        return self._aborted

    def prepare_aborted(self) -> File:
        """Read and open the transaction index, or create it: before an abort marker is written.

        Once the marker is in the log its transaction must be in the index.
        """
        file = self._transactions
        if file is None:
            path = self.stem + TRANSACTION_INDEX
            exists = self.aborted() or self.disk.exists(path)
            file = self.disk.file(path) if exists else self.disk.create(path)
            file.pin()
            file.unpin()  # it stays open as long as no other file needs the descriptor
            self._transactions = file
        return file

    def add_aborted(self, transaction: AbortedTransaction) -> None:
        """Add a transaction; it is written to the file at once, as this is rare."""
        aborted, file = self.aborted(), self.prepare_aborted()
        file.write(len(aborted) * TRANSACTION_ENTRY_BYTES, (transaction.encode(),))
        self.rest_aborted()
        aborted.append(transaction)

    def rest_aborted(self) -> None:
        """Close the transaction index."""
        if self._transactions is not None:
            self._transactions.rest()
            self._transactions = None

    def keep_aborted_below(self, offset: int) -> None:
        """Remove transactions with a marker at or above `offset`."""
        aborted = self.aborted()
        kept = [transaction for transaction in aborted if transaction.last_offset < offset]
        if len(kept) < len(aborted):
            file = self.disk.file(self.stem + TRANSACTION_INDEX)
            file.truncate(len(kept) * TRANSACTION_ENTRY_BYTES)
            file.rest()
            self._aborted = kept

    def clear_aborted(self) -> None:
        """Remove all transactions, and the file: the log is about to be read again."""
        if self.disk.exists(self.stem + TRANSACTION_INDEX):
            self.disk.unlink(self.stem + TRANSACTION_INDEX)
        self._aborted = []

    # ---- changing shape

    def truncate(self, offset: int) -> int:
        """Truncate to the batches wholly below `offset`. Returns the new end offset."""
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
        """Add the last entry of the time index, before closing or rolling."""
        if self.size:
            _, time_index = self.indexes()
            time_index.append(self.max_timestamp, self._max_timestamp_offset - self.base_offset)
        self.save_indexes()

    def save_indexes(self) -> None:
        """Write changed indexes to their files."""
        if self.offset_index is not None:
            self.offset_index.save(self.disk, self.stem + INDEX)
        if self.time_index is not None:
            self.time_index.save(self.disk, self.stem + TIME_INDEX)

    def index_paths(self) -> list[str]:
        paths = [self.stem + suffix for suffix in (INDEX, TIME_INDEX, TRANSACTION_INDEX)]
        return [path for path in paths if self.disk.exists(path)]

    def moved(self, directory: str) -> None:
        """The log's directory was renamed."""
        self.rest_aborted()
        self.stem = segment_stem(directory, self.base_offset)
        self.file.path = self.stem + LOG


class IndexCache:
    """Keeps the indexes of the most recently used inactive segments in memory."""

    def __init__(self, *, bytes_max: int = 64 << 20) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._segments: OrderedDict[Segment, int] = OrderedDict()

    def used(self, segment: Segment) -> None:
        """An inactive segment's indexes were used."""
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

    def drop(self, segment: Segment) -> None:
        """Remove a segment that is deleted or becomes active."""
        self._bytes -= self._segments.pop(segment, 0)


def segment_stem(directory: str, base_offset: int) -> str:
    """The path of a segment's files, without suffix."""
    return f"{directory}/{base_offset:020d}"
