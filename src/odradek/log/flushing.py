"""The flush of one log: what has to be on disk before the recovery point moves.

A failed flush leaves what it had to flush to the next one.

At most one flush of a log is under way; requests made meanwhile share the next one. The recovery
point moves to the log end offset at the start of the flush, unless the log was truncated in
between. Leader epochs are written first: recovery rebuilds them from the batches after the recovery
point, so the earlier ones have to be in their file.
"""

import errno
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from odradek.log.checkpoints import LEADER_EPOCH_FILE
from odradek.log.disk import File, StorageError
from odradek.log.log_state import LogState
from odradek.log.partition_metadata import PARTITION_METADATA
from odradek.log.producer_replay import settle_snapshot
from odradek.log.segment import SNAPSHOT, Segment
from odradek.model.clock import MonotonicMs
from odradek.model.weak import Weak

FlushDone = Callable[[StorageError | None], None]


class _Undertaken(NamedTuple):
    """What a flush has taken on besides the segments, for the next one if it fails."""

    paths: list[str]
    directory_changed: bool
    doubted: Segment | None
    settles: bool


_NOTHING: Final = _Undertaken([], directory_changed=False, doubted=None, settles=False)


class Flusher:
    """Flushes one log and its small files."""

    __slots__ = (
        "_closing",
        "_cuts",
        "_dones",
        "_doubted",
        "_epochs_saved",
        "_epochs_version",
        "_leo",
        "_owner",
        "_running",
        "_settling",
        "_started_ms",
        "_taken",
        "_waiting",
        "directory_changed",
        "paths",
    )

    def __init__(self, log: LogState) -> None:
        self._owner = Weak(log)  # a deleted log is freed at once, with all its segments
        self._running = False
        self._closing = False
        self._settling = False  # the next flush is one of the active segment's indexes, too
        self._started_ms = log.host.clock.monotonic_ms()
        self._waiting: list[FlushDone | None] = []
        self._dones: list[FlushDone | None] = []  # of the flush that is under way
        self._leo = self._cuts = -1  # log end offset and number of truncations at its start
        self._epochs_version = self._epochs_saved = 0
        self.directory_changed = False  # files were created whose names may not be durable
        self.paths: list[str] = []  # of small files written since the last flush
        self._doubted: Segment | None = None  # see `doubt`
        self._taken = _NOTHING  # by the flush that is under way

    @property
    def _log(self) -> LogState:
        return self._owner()  # the log calls, or a callback of the disk, which holds it

    def request(self, done: FlushDone | None) -> None:
        """Flush everything appended so far."""
        self._waiting.append(done)
        if not self._running:
            self._start()

    def join(self, done: FlushDone) -> None:
        """Flush everything; a flush under way is enough if nothing was appended since its start."""
        log = self._log
        if self._running and (self._leo, self._cuts) == (log.leo, log.cuts):
            self._dones.append(done)
        else:
            self.request(done)

    def close(self, done: FlushDone) -> None:
        """Flush everything, and the indexes of the active segment."""
        self._closing = True
        self.request(done)

    def settle(self, done: FlushDone) -> None:
        """Flush everything, with the active segment's indexes and a producer snapshot at the end.

        Recovery then begins at that snapshot, and not at the start of the segment.
        """
        self._settling = self.directory_changed = True
        self.paths += settle_snapshot(self._log)
        self.request(done)

    def seal(self, active: Segment) -> None:
        """Finish the active segment before another one follows."""
        log = self._log
        active.finish()
        if log.cuts_flushed < log.cuts:
            # 1. The new segment moves the recovery point past this one. 2. After a power failure
            # the truncated tail is back, before everything written from now on.
            disk = log.host.disk
            disk.flush_now([active.file, *map(disk.file, active.index_paths())])
        active.file.rest()
        # Written just now, even if all batches of the segment were flushed before.
        self.paths += active.index_paths()
        log.host.index_cache.used(active)

    def moved(self, old: str, new: str) -> None:
        """The log's directory is renamed."""
        self.directory_changed = True
        self.paths = [new + path.removeprefix(old) for path in self.paths]
        taken = [new + path.removeprefix(old) for path in self._taken.paths]
        self._taken = self._taken._replace(paths=taken)

    def is_overdue(self, monotonic_ms: MonotonicMs) -> bool:
        """Whether `flush.ms` has passed since the start of the last flush."""
        log = self._log
        return (
            log.leo > log.recovery_point and monotonic_ms - self._started_ms >= log.config.flush_ms
        )

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to flush but appended batches."""
        saved = self._epochs_saved == self._epochs_version
        return saved and not (self._running or self.directory_changed or self.paths)

    def doubt(self, active: Segment) -> None:
        """Flush this segment and all small files later: an earlier process may not have done it."""
        self._epochs_version += 1
        self.directory_changed = True
        self._doubted = active

    def _doubtful_paths(self, active: Segment) -> list[str]:
        directory = self._log.directory
        names = (entry.name for entry in self._log.host.disk.list(directory))
        small = [
            f"{directory}/{name}"
            for name in names
            if name == PARTITION_METADATA or name.endswith(SNAPSHOT)
        ]
        return [*small, active.file.path, *active.index_paths()]

    def save_epochs(self, done: FlushDone | None = None) -> None:
        """Write the leader epochs to their file after a change."""
        if done is None:
            self._epochs_version += 1
        version = self._epochs_version

        def saved(error: StorageError | None) -> None:
            if error is None:
                self._epochs_saved = max(self._epochs_saved, version)
            if done is not None:
                done(error)

        self.replace(LEADER_EPOCH_FILE, self._log.epochs.encode(), saved)

    def replace(self, name: str, data: bytes, done: FlushDone | None = None) -> None:
        """Replace a small file of the log; again if the log's directory was renamed meanwhile."""
        log = self._log
        directory = log.directory

        def replaced(error: StorageError | None) -> None:
            if error is not None and self._was_renamed(log, directory, error):
                self.replace(name, data, done)
                return
            if error is not None and name == PARTITION_METADATA:
                error.left_nothing = False  # only the leader epochs are written again
            self._report(log, error)
            if done is not None:
                done(error)

        log.host.disk.replace_later(f"{directory}/{name}", data, replaced)

    @staticmethod
    def _was_renamed(log: LogState, directory: str, error: StorageError) -> bool:
        """Whether a file was not found because the log's directory was renamed meanwhile.

        Any other error is real: the kernel reports a page that could not be written once, and the
        next fdatasync succeeds without it.
        """
        return error.errno == errno.ENOENT and directory != log.directory and not log.removed

    @staticmethod
    def _report(log: LogState, error: StorageError | None) -> None:
        # The files of a closed log may have been renamed or removed.
        if error is not None and not log.removed:
            log.host.failed(error)

    def _start(self) -> None:
        self._running = True
        self._started_ms = self._log.host.clock.monotonic_ms()
        if self._epochs_saved < self._epochs_version:
            self.save_epochs(self._flush)
        else:
            self._flush(None)

    def _flush(self, error: StorageError | None) -> None:
        log = self._log
        directory, leo, cuts = log.directory, log.leo, log.cuts
        dones, self._waiting = self._waiting, []
        self._dones, self._leo, self._cuts = dones, leo, cuts

        def flushed(error: StorageError | None) -> None:
            host = log.host
            host.flush_ms.observe(host.clock.monotonic_ms() - self._started_ms)
            self._running = False
            self._leo = -1
            self.put_back(error)
            if error is not None and self._was_renamed(log, directory, error):
                self._waiting += dones
            else:
                self._report(log, error)
                if error is None and cuts == log.cuts:
                    log.recovery_point = max(log.recovery_point, leo)
                    log.cuts_flushed = cuts
                for done in dones:
                    if done is not None:
                        done(error)
            if self._waiting and not self._running:
                self._start()

        if error is not None:
            flushed(error)
            return
        try:
            targets = self._targets()
        except StorageError as failed:
            # Not within the append that asks for the flush: its caller waits for nothing yet.
            log.host.call_later(0, partial(flushed, failed))
        else:
            log.host.disk.flush(targets, flushed)

    def _targets(self) -> list[File | str]:
        """Segments from the recovery point on; the active one's indexes if closing or settling."""
        log = self._log
        disk = log.host.disk
        taken = self._taken = _Undertaken(
            self.paths, self.directory_changed, self._doubted, self._settling
        )
        self.paths, self.directory_changed = [], False
        self._doubted, self._settling = None, False
        with_indexes = self._closing or taken.settles
        paths = list(taken.paths)
        if taken.doubted is not None:
            paths += self._doubtful_paths(taken.doubted)
        targets: list[File | str] = []
        for segment in log.segments_from(log.recovery_point):
            targets.append(segment.file)
            if segment is not log.active_segment or with_indexes:
                segment.save_indexes()
                paths += segment.index_paths()
        targets += [disk.file(path) for path in paths if disk.exists(path)]
        if taken.directory_changed or self._closing:  # closing creates missing index files
            targets += [log.directory, log.directory.rpartition("/")[0]]
        return targets

    def put_back(self, error: StorageError | None) -> None:
        """Leave what a failed flush had to flush to the next one."""
        taken, self._taken = self._taken, _NOTHING
        if error is None:
            return
        self.paths = taken.paths + self.paths
        self.directory_changed |= taken.directory_changed
        self._doubted = self._doubted or taken.doubted
        self._settling |= taken.settles
