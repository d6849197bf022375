"""All logs of a broker in its log directories: load, create, delete, checkpoint, take offline.

A log directory with an I/O error goes offline with all its logs; the others stay online. Callers
pass a `StorageError` to `failed`; background work of the logs calls it itself.

Long work is a generator, to be advanced on the event loop for a few milliseconds at a time
(`advance`): `opening`, `applying_retention`, `expiring_producers`. The checkpoints are small files,
written in the background when their content changes:

    recovery points        recovery after a crash reads from there on
    log start offsets      where DeleteRecords has moved them above the first segment's offset
    high watermarks        the first high watermark after a restart
    first dirty offsets    the cleaner's checkpoint, for compacted topics
    record formats         a start looks for messages of format v0 and v1 from there on
"""

import errno
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from odradek.log.checkpoints import (
    CLEANER_FILE,
    FORMAT_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_OFFSET_FILE,
    RECOVERY_POINT_FILE,
)
from odradek.log.deletion import flush_until_durable, remove_later, report_set_aside
from odradek.log.directories import (
    NO_EPOCH,
    LogDirectory,
    Mark,
    MetaProperties,
    marked_name,
)
from odradek.log.disk import StorageError
from odradek.log.log import Log
from odradek.log.log_config import NEVER, LogConfig, LogHost
from odradek.log.recovery import Checkpointed, loading
from odradek.log.upgrade import format_2_below
from odradek.model.clock import Clock
from odradek.model.errors import ApiError, ErrorCode, StartupError
from odradek.model.partition import TopicPartition
from odradek.record.batch import NO_LEADER_EPOCH

_logger: Final = logging.getLogger(__name__)
SLICE_MS: Final = 5
# Short, but long enough to collect the changes of a thousand partitions.
CHECKPOINT_SOON_S: Final = 0.1
# How many logs are flushed at the same time at shutdown.
CLOSING_AT_ONCE: Final = 64
# In the order of `Checkpointed`.
_READ: Final = (
    RECOVERY_POINT_FILE, LOG_START_OFFSET_FILE, HIGH_WATERMARK_FILE, CLEANER_FILE, FORMAT_FILE,
)  # fmt: skip

ConfigOf = Callable[[str], LogConfig]
Lost = Callable[[str, list[TopicPartition], StorageError], None]


class LogDescription(NamedTuple):
    """A log in a log directory, for DescribeLogDirs."""

    partition: TopicPartition
    size_bytes: int
    offset_lag: int
    is_future: bool


class Logs:
    """The logs of one broker."""

    def __init__(
        self, directories: Sequence[str], host: LogHost, *, config_of: ConfigOf, lost: Lost
    ) -> None:
        """`lost` gets the directory that went offline, its partitions, and the reason."""
        self.directories = {path: LogDirectory(path, host.disk) for path in directories}
        self.broker_epoch: int | None = None  # of the present registration, once there is one
        self._host = host
        self._config_of = config_of
        self._lost = lost
        self._logs: dict[TopicPartition, Log] = {}
        self._futures: dict[TopicPartition, Log] = {}
        self._replaced: dict[TopicPartition, Log] = {}  # until the copy's new name is on disk
        self._held: dict[str, dict[TopicPartition, Log]] = {path: {} for path in directories}
        self._checkpoint_soon: set[str] = set()
        self._lowered: set[str] = set()  # directories with a recovery point above its log's
        self._deleted_in: dict[str, None] = {}  # directories with deletions that are not flushed
        self._names_given = 0
        host.recovery_point_lowered = self._recovery_point_lowered
        host.write_lowered = self._write_lowered

    def __iter__(self) -> Iterator[Log]:
        return iter(list(self._logs.values()))

    def __len__(self) -> int:
        return len(self._logs)

    # -------------------------------------------------------------------------- questions

    def get(self, partition: TopicPartition) -> Log | None:
        """The log of a partition, if there is one in an online directory."""
        return self._logs.get(partition)

    def future(self, partition: TopicPartition) -> Log | None:
        """The copy of a log that is being made in another directory."""
        return self._futures.get(partition)

    @property
    def online_directories(self) -> list[str]:
        return [path for path, found in self.directories.items() if not found.is_offline]

    @property
    def clean_epoch(self) -> int | None:
        """The broker epoch of the last clean shutdown of all directories, or None."""
        directories = self.directories.values()
        epochs = {directory.clean_epoch for directory in directories}
        if all(d.was_clean and not d.is_offline for d in directories) and len(epochs) == 1:
            (epoch,) = epochs
            return epoch if epoch != NO_EPOCH else None
        return None

    @property
    def is_empty(self) -> bool:
        """Whether there is no log in any directory; False while one of them is offline."""
        return not self._logs and not self.has_offline_dir

    @property
    def new_directories(self) -> list[str]:
        """The directories that had no `meta.properties` at the start: new, or replaced."""
        return [path for path, found in self.directories.items() if found.is_new]

    @property
    def has_offline_dir(self) -> bool:
        """Whether any log directory is offline."""
        return any(found.is_offline for found in self.directories.values())

    def is_offline(self, path: str) -> bool:
        """Whether that log directory is offline."""
        return self.directories[path].is_offline

    def directory_of(self, log: Log) -> str:
        return log.directory.rpartition("/")[0]

    def held_in(self, path: str) -> list[LogDescription]:
        """The logs in a log directory, copies included."""
        found = [
            LogDescription(
                name, log.size_bytes, max(0, log.high_watermark - log.leo), is_future=False
            )
            for name, log in self._held[path].items()
        ]
        for name, future in self._futures.items():
            if self.directory_of(future) == path:
                lag = self._logs[name].leo - future.leo if name in self._logs else 0
                found.append(LogDescription(name, future.size_bytes, max(0, lag), is_future=True))
        return found

    def space(self, path: str) -> tuple[int, int]:
        """Total and free bytes of the filesystem of a log directory."""
        disk = self._host.disk
        return disk.total_bytes(path), disk.usable_bytes(path)

    # ----------------------------------------------------------------------------- opening

    def opening(self, *, broker_id: int, cluster_id: str) -> Iterator[None]:
        """Lock the directories, and load all logs.

        Raises:
            StartupError: a directory has another owner or an unsupported file, or all are
                offline. The mark of a clean shutdown is then restored.
        """
        identity = MetaProperties(broker_id, cluster_id)
        try:
            self._take_directories(identity)
            for directory in self.directories.values():
                if not directory.is_offline:
                    yield from self._load_directory(directory, identity)
            self._refuse_to_start_on_nothing()
            if not self.has_offline_dir:  # else the missing log may be in the offline directory
                try:
                    self._settle_copies()
                except StorageError as error:
                    self.take_offline(error)
        except StartupError:
            self._leave_directories()
            raise

    def _take_directories(self, identity: MetaProperties) -> None:
        for directory in self.directories.values():
            try:
                directory.lock()
                directory.check(identity)
            except StorageError as error:
                self.take_offline(error)

    def _refuse_to_start_on_nothing(self) -> None:
        if not self.online_directories:
            raise StartupError(f"none of log.dirs can be used: {', '.join(self.directories)}")

    def _leave_directories(self) -> None:
        """Restore the marks of a clean shutdown: nothing was changed."""
        for directory in self.directories.values():
            if directory.was_clean and not directory.is_offline:
                directory.mark_clean(directory.clean_epoch)
            directory.release()

    def _load_directory(self, directory: LogDirectory, identity: MetaProperties) -> Iterator[None]:
        try:
            yield from self._load_partitions(directory, identity)
            directory.is_loaded = True
        except StorageError as error:
            self.take_offline(error)

    def _load_partitions(self, directory: LogDirectory, identity: MetaProperties) -> Iterator[None]:
        entries = directory.open()
        directory.claim(identity)
        offsets = [directory.read_checkpoint(file) for file in _READ]
        for name, found in directory.partitions(entries):
            partition, mark = found
            path = f"{directory.path}/{name}"
            directory.strays += mark is Mark.STRAY
            if mark is Mark.DELETE:
                delay_ms = self._config_of(partition.topic).file_delete_delay_ms
                remove_later(self._host, [path], delay_ms=delay_ms)
            if mark not in (Mark.NONE, Mark.FUTURE):
                continue
            if mark is Mark.FUTURE:
                self._refuse_double(self._futures.get(partition), path)
            checkpointed = Checkpointed(*(known.get(partition, 0) for known in offsets))
            log = yield from loading(
                partition,
                path,
                self._config_of(partition.topic),
                self._host,
                clean=directory.was_clean and mark is Mark.NONE,
                checkpointed=checkpointed if mark is Mark.NONE else Checkpointed(),
            )
            if mark is Mark.FUTURE:
                self._futures[partition] = log
            elif log.topic_id is None and not log.leo:
                # Its creation was interrupted by a failure; if the partition is still assigned to
                # this broker, the next LeaderAndIsr request creates it again.
                self._remove(log)
            else:
                log.first_dirty_offset = min(checkpointed.first_dirty_offset, log.leo)
                self._add_one_of(log, self._logs.get(partition))

    def _add_one_of(self, log: Log, other: Log | None) -> None:
        """Add a log; if there are two of a partition, the one that has more.

        One may be empty: its directory failed during its creation, and it was created in another.
        Or one directory was offline when the replica was deleted, and the replica was later
        created in another. Or the power failed while a moved log was replaced by its copy: then
        both are equal up to the end of the shorter one, which is set aside.
        """
        if other is None:
            self._add(log)
            return
        ids = {log.topic_id, other.topic_id} - {None}
        if log.leo and other.leo and len(ids) > 1:
            self._refuse_double(other, log.directory)
        less, more = (log, other) if _holds_less(log, other) else (other, log)
        if less is other:
            del self._held[self.directory_of(other)][other.partition]
            self._add(more)
        try:
            self._put_aside(less)
        except StorageError as error:
            if less is log:
                raise  # the directory that is being loaded has failed
            self.take_offline(error)

    def _put_aside(self, log: Log, reason: str = "another log has more of it") -> None:
        """Rename it as stray; an empty log is deleted."""
        if log.leo:
            log.removed = True
            log.rest()
            self.rename(log, Mark.STRAY)
            self.directories[self.directory_of(log)].strays += 1
            report_set_aside(log, reason)
        else:
            self._remove(log)

    def _settle_copies(self) -> None:
        """Let copies with more records than their log replace it; after a power failure only.

        A flushed copy may then be longer than its log, or the only one. To copy again would lose
        what was durable; to keep it as a copy would fail, as the log gets other records.
        """
        for partition, future in list(self._futures.items()):
            current = self._logs.get(partition)
            if current is None:
                self._take_place(future)
            elif len({future.topic_id, current.topic_id} - {None}) > 1:
                del self._futures[partition]
                self._put_aside(future, "it is the copy of a log of another topic of that name")
            elif _holds_less(current, future):
                del self._logs[partition], self._held[self.directory_of(current)][partition]
                self._put_aside(current)
                future.set_high_watermark(current.high_watermark)
                future.advance_log_start(min(current.log_start_offset, future.high_watermark))
                self._take_place(future)

    def _take_place(self, future: Log) -> None:
        self.rename(future, Mark.NONE)
        del self._futures[future.partition]
        self._add(future)

    def _refuse_double(self, known: Log | None, path: str) -> None:
        if known is not None:
            raise StartupError(
                f"{known.partition} exists twice, in {known.directory} and in {path}. Move away "
                f"the one with fewer records"
            )

    def _add(self, log: Log) -> None:
        self._logs[log.partition] = log
        self._held[self.directory_of(log)][log.partition] = log

    # -------------------------------------------------------------------- create and delete

    def create(
        self,
        partition: TopicPartition,
        topic_id: bytes | None,
        config: LogConfig,
        *,
        directory: str | None = None,
    ) -> Log:
        """Create a log in the given directory, or in the one with the fewest logs.

        Raises:
            StorageError: nothing was made; or all directories that were tried are offline.
        """
        assert partition not in self._logs, partition
        while True:
            path = directory
            if path is None or self.is_offline(path):
                online = self.online_directories
                if not online:
                    raise StorageError(next(iter(self.directories)), errno.EIO)
                path = min(online, key=lambda path: len(self._held[path]))
            try:
                log = Log.create(
                    partition, f"{path}/{partition}", config, self._host, topic_id=topic_id
                )
            except StorageError as error:
                self.failed(error)
                if error.left_nothing or not self.is_offline(path):
                    raise
                continue
            self._add(log)
            return log

    def delete(self, partition: TopicPartition) -> bool:
        """Delete a log and its copy. Returns whether there was one."""
        future = self._futures.pop(partition, None)
        if future is not None:
            self._remove(future)
        self._remove_replaced(partition)
        log = self._logs.pop(partition, None)
        if log is None:
            return False
        del self._held[self.directory_of(log)][partition]
        self._remove(log)
        return True

    def set_aside(self, partition: TopicPartition, reason: str) -> None:
        """Rename a log of a former topic of that name as stray, and keep its records.

        It is not read or removed any more. An empty one is deleted.

        Raises:
            StorageError: an I/O error.
        """
        self.drop_future(partition)
        self._remove_replaced(partition)
        log = self._logs.pop(partition)
        path = self.directory_of(log)
        del self._held[path][partition]
        self._put_aside(log, reason)
        self._soon(path)

    def remove_from_checkpoints(
        self, partitions: Sequence[TopicPartition], done: Callable[[], None]
    ) -> None:
        """Remove partitions without a log from all checkpoints, then call `done`.

        Otherwise, after a crash, a new log of that name would start with the recovery point, high
        watermark and log start offset of the deleted one.
        """
        left = 1

        def written(error: StorageError | None) -> None:
            nonlocal left
            if error is not None:
                self.take_offline(error)  # the offsets in the file would be those of the new log
            if not (left := left - 1):
                done()

        for path in self.online_directories:
            directory = self.directories[path]
            for name in directory.checkpoints_with(partitions):
                left += 1
                directory.rewrite_checkpoint(name, self._offsets(path, name), written)
        written(None)

    def _remove(self, log: Log) -> None:
        """Rename the directory now, and remove it later."""
        path = self.directory_of(log)
        log.removed = True
        log.rest()
        self.rename(log, Mark.DELETE)
        self._deleted_in[path] = None
        delay_ms = log.config.file_delete_delay_ms
        remove_later(self._host, [log.directory], delay_ms=delay_ms)
        self._soon(path)

    def flush_deletions(self, done: Callable[[bool], None]) -> None:
        """Flush deletions. After success the caller may drop the topic from its store."""
        paths = [path for path in self._deleted_in if not self.is_offline(path)]
        self._deleted_in.clear()

        def flushed(error: StorageError | None) -> None:
            if error is not None:
                self.take_offline(error)
            done(not any(map(self.is_offline, paths)))

        flush_until_durable(self._host, paths, flushed)

    def rename(self, log: Log, mark: Mark) -> None:
        path = self.directory_of(log)
        name = str(log.partition)
        if mark is not Mark.NONE:
            name = marked_name(log.partition, mark, self._unique_id())
        self._host.disk.rename(log.directory, f"{path}/{name}")
        log.moved(f"{path}/{name}")

    def _unique_id(self) -> int:
        # Unique among all names that this broker makes: the time, and a counter since the start.
        self._names_given += 1
        return (self._host.clock.wall_ms() << 64) + self._names_given

    def failed(self, error: StorageError) -> None:
        """Take the log directory of that path offline, with all its logs.

        It stays online if descriptors or memory ran out before anything was changed. Not so while
        logs are loaded: a log that was not loaded would be created again, and might lead, empty.
        """
        if not error.left_nothing:
            self.take_offline(error)
            return
        _logger.error("nothing was changed; the log directory stays online: %s", error)

    def take_offline(self, error: StorageError) -> None:
        """Take it offline whatever the error: the operation cannot be repeated."""
        around = [
            path
            for path in self.directories
            if error.path == path or error.path.startswith(f"{path}/")
        ]
        if around:  # the innermost: one log directory may be within another
            self._give_up(self.directories[max(around, key=len)], error)

    def _give_up(self, directory: LogDirectory, error: StorageError) -> None:
        if directory.is_offline:
            return
        directory.is_offline = True
        held, self._held[directory.path] = self._held[directory.path], {}
        for partition, log in held.items():
            log.removed = True
            log.rest()
            del self._logs[partition]
        for partition, future in list(self._futures.items()):
            if self.directory_of(future) == directory.path:
                future.removed = True
                future.rest()
                del self._futures[partition]
        for partition, replaced in list(self._replaced.items()):
            if self.directory_of(replaced) == directory.path:
                del self._replaced[partition]
        self._lost(directory.path, list(held), error)

    # ------------------------------------------------------------- copies in other directories

    def create_future(self, partition: TopicPartition, directory: str) -> Log:
        """Begin a copy of a log in another directory; a copy begun before is removed.

        Raises:
            ApiError: LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR for an offline directory.
            StorageError: an I/O error.
        """
        if directory not in self.directories:
            raise ApiError(ErrorCode.LOG_DIR_NOT_FOUND, f"{directory} is not one of log.dirs")
        if self.is_offline(directory):
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory} is offline")
        current = self._logs[partition]
        self.drop_future(partition)
        name = marked_name(partition, Mark.FUTURE, self._unique_id())
        path, topic_id = f"{directory}/{name}", current.topic_id
        try:
            future = Log.create(partition, path, current.config, self._host, topic_id=topic_id)
        except StorageError:
            remove_later(self._host, [path], delay_ms=0)  # two copies would prevent the next start
            raise
        future.truncate_fully_and_start_at(current.log_start_offset)
        self._futures[partition] = future
        return future

    def drop_future(self, partition: TopicPartition) -> None:
        """Remove a copy that is being made."""
        future = self._futures.pop(partition, None)
        if future is not None:
            self._remove(future)

    def swap_in(self, partition: TopicPartition) -> Log:
        """Replace a log by its complete copy. Returns the copy.

        The log is deleted once the copy's new name is on disk: after a power failure in between,
        one of the two must have the partition's name.
        """
        self._remove_replaced(partition)
        future = self._futures[partition]
        current = self._logs[partition]
        assert future.leo == current.leo, (partition, future.leo, current.leo)
        if future.topic_id is None and current.topic_id is not None:
            future.assign_topic_id(current.topic_id)  # a crash has removed the copy's metadata file
        future.set_high_watermark(current.high_watermark)
        future.advance_log_start(current.log_start_offset)
        future.first_dirty_offset = current.first_dirty_offset  # logs are not cleaned in a move
        self._take_place(future)
        del self._held[self.directory_of(current)][partition]
        current.removed = True
        self._replaced[partition] = current
        self._soon(path := self.directory_of(future))

        def named(error: StorageError | None) -> None:
            if error is not None:
                self.failed(error)
            elif self._replaced.get(partition) is current:
                try:
                    self._remove_replaced(partition)
                except StorageError as failed:
                    self.failed(failed)

        self._host.disk.flush([path], named)
        return future

    def _remove_replaced(self, partition: TopicPartition) -> None:
        replaced = self._replaced.pop(partition, None)
        if replaced is not None:
            self._remove(replaced)

    @property
    def futures(self) -> list[TopicPartition]:
        """The partitions with a copy being made."""
        return list(self._futures)

    # ------------------------------------------------------------------------ housekeeping

    def applying_retention(self) -> Iterator[None]:
        """Delete old segments by retention; a step for each log."""
        wall_ms = self._host.clock.wall_ms()
        for log in self:
            if not log.removed:
                try:
                    log.delete_old_segments(wall_ms)
                except StorageError as error:
                    self.failed(error)
            yield

    def set_producer_id_expiration(self, expiration_ms: int) -> None:
        self._host.producer_id_expiration_ms = expiration_ms

    def expiring_producers(self) -> Iterator[None]:
        """Remove producer ids idle for too long; a step for each log."""
        wall_ms = self._host.clock.wall_ms()
        for log in self:
            log.producers.expire(
                wall_ms=wall_ms, expiration_ms=self._host.producer_id_expiration_ms
            )
            yield

    def flush_overdue(self) -> None:
        monotonic_ms = self._host.clock.monotonic_ms()
        for log in self._logs.values():
            if log.config.flush_ms < NEVER:
                log.flush_if_overdue(monotonic_ms)

    def checkpoint_recovery_points(self) -> None:
        self._checkpoint(RECOVERY_POINT_FILE)
        self._checkpoint(FORMAT_FILE)

    def checkpoint_log_start_offsets(self) -> None:
        """Write the log start offsets that are above the first segment's base offset."""
        self._checkpoint(LOG_START_OFFSET_FILE)

    def checkpoint_high_watermarks(self) -> None:
        """Write the high watermarks; finds a removed directory even if no offset has changed."""
        self._checkpoint(HIGH_WATERMARK_FILE)
        for path in self.online_directories:
            directory = self.directories[path]
            if directory.is_loaded and not directory.is_there():
                self.failed(StorageError(path, errno.ENOENT))

    def checkpoint_first_dirty_offsets(self) -> None:
        self._checkpoint(CLEANER_FILE)

    def _checkpoint(self, file: str) -> None:
        for path in self.online_directories:
            if self.directories[path].is_loaded:
                offsets = self._offsets(path, file)
                self.directories[path].write_checkpoint(file, offsets, self._written)

    def _offsets(self, path: str, file: str) -> dict[TopicPartition, int]:
        """The content of a checkpoint file of a directory now."""
        value_of = _CHECKPOINTS[file]
        offsets = ((name, value_of(log)) for name, log in self._held[path].items())
        return {name: offset for name, offset in offsets if offset is not None}

    def _written(self, error: StorageError | None) -> None:
        if error is not None:
            self.failed(error)

    def _recovery_point_lowered(self, directory: str) -> None:
        path = directory.rpartition("/")[0]
        self._lowered.add(path)
        self._soon(path)

    def _write_lowered(self, directory: str) -> None:
        """Write the recovery points, once for all logs truncated together; waits for the disk.

        1. A log is truncated and written again, without a flush. 2. The process ends while the
        recovery point in the file is above the truncation. 3. The next start recovers only from
        there. 4. A power failure then leaves a hole below.
        """
        path = directory.rpartition("/")[0]
        if path in self._lowered:
            offsets = self._offsets(path, RECOVERY_POINT_FILE)
            self.directories[path].write_checkpoint_now(RECOVERY_POINT_FILE, offsets)
            self._lowered.discard(path)

    def _soon(self, path: str) -> None:
        """Write the recovery points of a directory soon: they are not true any more."""
        if path in self._checkpoint_soon:
            return
        self._checkpoint_soon.add(path)

        def checkpoint() -> None:
            self._checkpoint_soon.discard(path)
            self.checkpoint_recovery_points()
            self.checkpoint_log_start_offsets()
            self.checkpoint_high_watermarks()
            self.checkpoint_first_dirty_offsets()

        self._host.call_later(CHECKPOINT_SOON_S, checkpoint)

    # ------------------------------------------------------------------------------- closing

    def close(self, done: Callable[[], None]) -> None:
        """Shut down: flush all logs, write checkpoints, mark directories clean, then `done`."""
        for partition in list(self._replaced):
            try:
                self._remove_replaced(partition)
            except StorageError as error:
                self.failed(error)
        waiting = [*self._logs.values(), *self._futures.values()]
        under_way = 0
        has_ended = False

        def go_on() -> None:
            nonlocal under_way, has_ended
            while waiting and under_way < CLOSING_AT_ONCE:
                log = waiting.pop()
                if log.removed or log.is_as_loaded:
                    continue
                under_way += 1
                try:
                    log.close(closed)
                except StorageError as error:
                    self.take_offline(error)  # otherwise it would be marked as clean
                    under_way -= 1
            # Two flushes that end in the same iteration of the loop continue once.
            if not (waiting or under_way or has_ended):
                has_ended = True
                self._close_directories()
                done()

        def closed(error: StorageError | None) -> None:
            nonlocal under_way
            under_way -= 1
            if error is not None:
                self.take_offline(error)
            self._host.call_later(0, go_on)

        go_on()

    def _close_directories(self) -> None:
        for path in self.online_directories:
            try:
                self._close_directory(self.directories[path])
            except StorageError as error:
                self.failed(error)
        for directory in self.directories.values():
            directory.release()

    def _close_directory(self, directory: LogDirectory) -> None:
        if not directory.is_loaded:
            # Stopped during the start: the checkpoints of logs not loaded have to stay.
            if directory.was_clean:
                directory.mark_clean(directory.clean_epoch)
            return
        for file in RECOVERY_POINT_FILE, LOG_START_OFFSET_FILE, HIGH_WATERMARK_FILE, FORMAT_FILE:
            directory.write_checkpoint_now(file, self._offsets(directory.path, file))
        first_dirty_offsets = self._offsets(directory.path, CLEANER_FILE)
        if first_dirty_offsets:
            directory.write_checkpoint_now(CLEANER_FILE, first_dirty_offsets)
        broker_epoch = self.broker_epoch
        if broker_epoch is None:  # not registered: the directories are as clean as before
            broker_epoch = NO_EPOCH if self.clean_epoch is None else self.clean_epoch
        directory.mark_clean(broker_epoch)


def _log_start(log: Log) -> int | None:
    return log.log_start_offset if log.log_start_offset > log.segments[0].base_offset else None


def _first_dirty(log: Log) -> int | None:
    # Also after a topic was compacted: recovery has to know where gaps may be.
    if log.config.is_compacted or log.first_dirty_offset > log.log_start_offset:
        return log.first_dirty_offset or None
    return None


# The offset of a log for each checkpoint file; None: not in the file.
_CHECKPOINTS: Final[Mapping[str, Callable[[Log], int | None]]] = {
    RECOVERY_POINT_FILE: lambda log: log.recovery_point,
    HIGH_WATERMARK_FILE: lambda log: log.high_watermark,
    LOG_START_OFFSET_FILE: _log_start,
    CLEANER_FILE: _first_dirty,
    FORMAT_FILE: format_2_below,
}


def _holds_less(log: Log, other: Log) -> bool:
    """Whether a log ends before another one of the partition, by leader epoch and offset.

    A log without batches has no leader epoch, even if it starts at the leader's log start offset;
    then its end offset counts, because the leader has seen it in fetch requests.
    """
    epoch, others = log.epochs.latest_epoch, other.epochs.latest_epoch
    if epoch != others and NO_LEADER_EPOCH not in (epoch, others):
        return epoch < others
    return log.leo < other.leo


def advance(steps: Iterator[None], clock: Clock, *, slice_ms: int = SLICE_MS) -> bool:
    """Advance work for a few milliseconds. Returns whether there is more to do."""
    until_ms = clock.monotonic_ms() + slice_ms
    return any(clock.monotonic_ms() >= until_ms for _ in steps)
