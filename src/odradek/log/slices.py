"""What a log answers: what was appended, what was read, and why not."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from odradek.log.disk import Data, File, StorageError
from odradek.model.errors import ApiError, ErrorCode, OdradekError
from odradek.record.batch import BatchHeader

if TYPE_CHECKING:
    from odradek.log.segment import Segment

# Reading ahead what the page cache does not have: at least as much at once.
COLD_READ_BYTES: Final = 1 << 20


class Appended(NamedTuple):
    """Where a batch stands now; or, if it is a duplicate, where it stood already."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int  # -1 unless the log sets the time
    duplicate: bool = False
    flushes: bool = False  # `flush.messages` was reached: it is on its way to the disk


class OffsetOutOfRangeError(ApiError):
    """An offset below the log's start or above its end."""

    def __init__(self, offset: int, log_start_offset: int, leo: int) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {offset} is not within [{log_start_offset}, {leo}]",
        )


class UnexpectedOffsetError(OdradekError):
    """A leader sent a batch that begins below the end of this follower's log.

    If the log is empty and the batch reaches its end, the leader's log starts within the batch
    (DeleteRecords): let the follower's start where the batch begins.
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
    """Whole batches, but for the last one, of one segment.

    `data` is None if it was not asked for: then it stands in `file`, which has to be pinned at
    once, before the segment can be deleted.
    """

    __slots__ = ("data", "file", "position", "segment", "size")

    def __init__(self, segment: "Segment", position: int, size: int, data: Data | None) -> None:
        self.segment = segment
        self.file: File = segment.file
        self.position = position
        self.size = size
        self.data = data


class ColdRead:
    """The answer is not in memory: have it loaded, then ask again, this time with `wait`."""

    __slots__ = ("file", "length", "position")

    def __init__(self, file: File, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self.length = max(length, COLD_READ_BYTES)

    def load(self, done: Callable[[StorageError | None], None]) -> None:
        """Bring it into the page cache."""

        def loaded(result: Data | StorageError) -> None:
            done(result if isinstance(result, StorageError) else None)

        self.file.read_later(self.position, self.length, loaded)
