"""Results of a log: of an append, of a read, and the errors of both."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from odradek.log.disk import Data, File, StorageError
from odradek.model.errors import ApiError, ErrorCode, OdradekError
from odradek.record.batch import BatchHeader, size_at

if TYPE_CHECKING:
    from odradek.log.segment import Segment

# The least that is read ahead of data that is not in the page cache.
COLD_READ_BYTES: Final = 1 << 20
# How much is read at once of records that are read while they are sent.
LATE_PIECE_BYTES: Final = 512 << 10
# Of a batch header: the base offset and the length.
SIZE_BYTES: Final = 12


class Appended(NamedTuple):
    """The offsets of an appended batch; of a duplicate, those of the batch in the log."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int  # -1 with CreateTime
    duplicate: bool = False
    flushes: bool = False  # `flush.messages` was reached, and a flush has begun


class OffsetOutOfRangeError(ApiError):
    """An offset below the log start offset or above the log end offset."""

    def __init__(self, offset: int, log_start_offset: int, leo: int) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {offset} is not within [{log_start_offset}, {leo}]",
        )


def larger_than_segment(size: int, segment_bytes: int) -> ApiError:
    text = f"record batch of {size} bytes; segment.bytes={segment_bytes}"
    return ApiError(ErrorCode.RECORD_LIST_TOO_LARGE, text)


class UnexpectedOffsetError(OdradekError):
    """A fetched batch begins below the end of the follower's log.

    If the log is empty and the batch ends above its start, the leader's log starts within the
    batch (DeleteRecords): the follower's log has to start at the batch's base offset.
    """

    def __init__(self, header: BatchHeader, leo: int) -> None:
        super().__init__(
            f"batch of offsets {header.base_offset} to {header.last_offset} to append to a log "
            f"that ends at {leo}"
        )
        self.first_offset = header.base_offset
        self.last_offset = header.last_offset
        self.leo = leo


class LogSlice:
    """Whole batches (the last one may be incomplete) of one segment.

    `data` is None if it was not requested: it has to be read from `file`, which has to be pinned
    at once, before the segment can be deleted.
    """

    __slots__ = ("data", "file", "position", "segment", "size")

    def __init__(self, segment: "Segment", position: int, size: int, data: Data | None) -> None:
        self.segment = segment
        self.file: File = segment.file
        self.position = position
        self.size = size
        self.data = data


def load_slice(
    segment: "Segment", start: int, size: int, end: int, *, at_least_one: bool, wait: bool
) -> LogSlice | None:
    """Read `size` bytes, or all of the first batch; None: it is larger, and may not be read.

    `end` is where the batches end that may be read.
    """
    data = segment.read(start, max(size, SIZE_BYTES), wait=wait)
    if size < end - start:
        first = size_at(data, 0)
        if first > size:
            if not at_least_one:
                return None
            data = segment.read(start, first, wait=wait)
    return LogSlice(segment, start, len(data), data)


class TruncatedError(OdradekError):
    """A file is shorter than when a slice of it was put into a response."""


class DeferredRecords:
    """A slice that is read from its file while it is sent (a `DeferredPart` of a response).

    The file stays open, so its bytes can be read even if the segment is deleted. Has to be closed.
    """

    __slots__ = ("_done", "_failed", "_file", "_is_closed", "_is_loading", "_loaded", "_slice")

    def __init__(self, found: LogSlice, failed: Callable[[StorageError], None]) -> None:
        """`failed` is called with an I/O error.

        Raises:
            StorageError: the file cannot be opened.
        """
        found.file.pin()
        self._slice = found
        self._file = found.file
        self._failed = failed
        self._done = 0  # bytes read
        self._is_loading = False
        self._loaded: Data | StorageError | None = None
        self._is_closed = False

    def __len__(self) -> int:
        return self._slice.size

    def read(self, ready: Callable[[], None]) -> Data | None:
        """The next piece, an empty one at the end; None: a read is under way, `ready` follows.

        Raises:
            StorageError: an I/O error.
            TruncatedError: the file is shorter than before.
        """
        length = min(LATE_PIECE_BYTES, self._slice.size - self._done)
        if self._is_loading or not length:
            return None if self._is_loading else b""
        found, self._loaded = self._loaded, None
        if found is None:
            found = self._ask(self._slice.position + self._done, length, ready)
        if isinstance(found, StorageError):
            self._failed(found)
            raise found
        if found is not None:
            if len(found) < length:
                raise TruncatedError(f"{self._file.path} was truncated while it was being sent")
            self._done += length
        return found

    def send(self, to: int, bytes_max: int) -> int:
        """See `DeferredPart`: what is in the page cache is sent."""
        if self._is_loading or self._loaded is not None:
            return 0
        length = min(bytes_max, self._slice.size - self._done)
        sent = self._file.send(self._slice.position + self._done, length, to) if length else 0
        self._done += sent
        return sent

    def _ask(
        self, position: int, length: int, ready: Callable[[], None]
    ) -> Data | StorageError | None:
        try:
            data = self._file.read(position, length)
        except StorageError as error:
            return error
        if data is None:
            self._is_loading = True

            def loaded(result: Data | StorageError) -> None:
                self._is_loading, self._loaded = False, result
                if not self._is_closed:
                    ready()

            self._file.read_later(position, length, loaded)
        return data

    def close(self) -> None:
        """Close the file; everything is sent, or the connection is closed."""
        assert not self._is_closed
        self._is_closed = True
        self._file.unpin()


class ColdRead:
    """Data is not in the page cache: call `load`, then read again with `wait`."""

    __slots__ = ("file", "length", "position")

    def __init__(self, file: File, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self.length = max(length, COLD_READ_BYTES)

    def load(self, done: Callable[[StorageError | None], None]) -> None:
        """Read it into the page cache in a thread."""

        def loaded(result: Data | StorageError) -> None:
            done(result if isinstance(result, StorageError) else None)

        self.file.read_later(self.position, self.length, loaded)
