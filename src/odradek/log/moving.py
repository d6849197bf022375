"""Moving a log to another log directory (AlterReplicaLogDirs): it is copied while it is in use.

The copy (`<topic>-<n>.<id>-future`) appends batches as a follower does. Once it has caught up it is
flushed, so that everything flushed in the log is flushed in the copy; after that, and when it has
caught up again, it replaces the log in one step, and the old directory is deleted. If the log is
truncated meanwhile the copy starts again; so does a copy begun before a restart, unless it agrees
with the log by epoch and offset: its directory may have been offline while the log was truncated.

`MovingLogs.step` does a small part of it: some batches of each partition.
"""

from collections.abc import Callable
from typing import Final

from odradek.log.disk import StorageError
from odradek.log.log import Log
from odradek.log.logs import Logs
from odradek.log.slices import ColdRead
from odradek.model.partition import TopicPartition
from odradek.record.batch import CorruptBatchError, base_offset_at

STEP_BYTES: Final = 1 << 20
NEVER_SEEN: Final = -1

Moved = Callable[[TopicPartition, Log], None]


class MovingLogs:
    """All copies that one broker is making."""

    def __init__(self, logs: Logs, moved: Moved) -> None:
        """`moved` is called with each log that has replaced another."""
        self._logs = logs
        self._moved = moved
        self._cuts: dict[TopicPartition, int] = {}
        self._flushed: set[TopicPartition] = set()
        self._loaded: set[TopicPartition] = set()
        self._waiting: set[TopicPartition] = set()

    def start(self, partition: TopicPartition, directory: str) -> None:
        """Begin to move a log, unless it is in that directory or on its way there.

        Raises:
            ApiError: see `Logs.create_future`.
        """
        logs = self._logs
        current, future = logs.get(partition), logs.future(partition)
        assert current is not None, partition
        if logs.directory_of(current) == directory:
            self.cancel(partition)
        elif future is None or logs.directory_of(future) != directory:
            self.cancel(partition)
            logs.create_future(partition, directory)

    def cancel(self, partition: TopicPartition) -> None:
        """Stop moving a log, and remove the copy."""
        self._logs.drop_future(partition)
        self._forget(partition)

    def step(self) -> int:
        """Continue each copy. Returns the bytes copied; 0 if there is nothing to do now.

        Raises:
            StorageError: an I/O error.
            CorruptBatchError: a log is damaged; its copy is removed.
        """
        copied = 0
        for partition in self._logs.futures:
            if partition not in self._waiting:
                try:
                    copied += self._step(partition)
                except CorruptBatchError as error:
                    self.cancel(partition)
                    raise CorruptBatchError(f"{partition}: {error.message}") from error
        return copied

    def _step(self, partition: TopicPartition) -> int:
        current, future = self._logs.get(partition), self._logs.future(partition)
        if current is None or future is None:
            self._forget(partition)
            return 0
        if partition not in self._cuts:
            self._cuts[partition] = current.cuts if _is_beginning(future, current) else NEVER_SEEN
        was_cut = self._cuts[partition] != current.cuts
        fell_behind = future.leo < current.log_start_offset and future.size_bytes
        if was_cut or fell_behind or future.leo > current.leo:
            future.truncate_fully_and_start_at(current.log_start_offset)
            self._cuts[partition] = current.cuts
            self._flushed.discard(partition)
        if future.leo < current.leo:
            return self._copy(partition, current, future)
        if partition in self._flushed:
            self._forget(partition)
            self._moved(partition, self._logs.swap_in(partition))
        else:
            self._wait(partition, future.flush, self._flushed)
        return 0

    def _copy(self, partition: TopicPartition, current: Log, future: Log) -> int:
        wait = partition in self._loaded
        self._loaded.discard(partition)
        found = current.read(future.leo, STEP_BYTES, end_offset=current.leo, wait=wait)
        if isinstance(found, ColdRead):
            self._wait(partition, found.load, self._loaded)
            return 0
        if found is None or found.data is None:
            return 0  # there is nothing after the end of the copy
        batches = memoryview(found.data)
        if future.leo > base_offset_at(batches, 0):
            # The log start offset is within a batch: the copy begins with the whole batch.
            assert not future.size_bytes, partition
            future.truncate_fully_and_start_at(base_offset_at(batches, 0))
        return future.append_as_follower(batches)

    def _wait(
        self,
        partition: TopicPartition,
        start: Callable[[Callable[[StorageError | None], None]], None],
        reached: set[TopicPartition],
    ) -> None:
        future = self._logs.future(partition)

        def done(error: StorageError | None) -> None:
            self._waiting.discard(partition)
            if self._logs.future(partition) is not future:
                return  # the copy was removed meanwhile
            if error is None:
                reached.add(partition)
            else:
                self._logs.failed(error)

        self._waiting.add(partition)
        start(done)

    def _forget(self, partition: TopicPartition) -> None:
        self._cuts.pop(partition, None)
        self._flushed.discard(partition)
        self._loaded.discard(partition)


def _is_beginning(copy: Log, log: Log) -> bool:
    """Whether the log has everything of a copy: equal epochs at one offset mean equal prefixes."""
    epoch = copy.epochs.latest_epoch
    if not copy.size_bytes:
        return True
    known, end = log.end_offset_for_epoch(epoch)
    return known == epoch and end >= copy.leo
