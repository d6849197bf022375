"""Cleans the logs of compacted topics, one after the other (Kafka's `LogCleaner`).

    choose       the dirtiest log that is not being cleaned     `odradek.log.cleaning.cleaner`
    clean        in a process of its own; in the simulator the same code, in small steps
    replace      if the log has not changed meanwhile; otherwise it is cleaned again
    checkpoint   `cleaner-offset-checkpoint`

When there is nothing to clean, the next check is `log.cleaner.backoff.ms` later. A damaged log is
reported and not cleaned again until the broker restarts (Kafka's uncleanable partitions). The
options are read for each log, so that they may change at any time.
"""

import asyncio
import errno
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from odradek.broker.serving.tasks import Tasks
from odradek.broker.storage.cleaner_process import CleanerDiedError, CleaningError
from odradek.broker.storage.housekeeping import in_slices
from odradek.config.broker import BrokerConfig
from odradek.log.cleaning.cleaner import (
    Cleanable,
    Stamp,
    cleanable,
    dirtiest,
    job_for,
    make_durable,
    replace,
    still_fits,
)
from odradek.log.cleaning.round import CleaningJob, CleaningOutcome, cleaning, remove_cleaned
from odradek.log.disk import Disk, StorageError
from odradek.log.log import Log
from odradek.log.logs import SLICE_MS, Logs
from odradek.model.clock import Clock
from odradek.model.errors import ApiError
from odradek.model.partition import TopicPartition

log = logging.getLogger(__name__)
_STEPS_A_TURN: Final = 8
_READ_BYTES_MIN: Final = 1 << 16
# After so many deaths of the process while it cleans one log, the log counts as the cause.
_DEATHS_MAX: Final = 3


class Cleaner(Protocol):
    """Does the expensive part of cleaning: reading segments and writing cleaned ones."""

    async def run(self, job: CleaningJob, *, bytes_per_second: float) -> CleaningOutcome:
        """Clean a log.

        Raises:
            StorageError: a disk access failed.
            CleanerDiedError: the process died.
            CleaningError: the log is damaged.
        """

    async def end(self) -> None:
        """Free what it holds: there is nothing more to clean for a while."""


class InlineCleaner:
    """Cleans on the loop itself, a few batches a turn: for the simulator."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    async def run(self, job: CleaningJob, *, bytes_per_second: float) -> CleaningOutcome:
        """Clean a log, a few batches in each turn of the loop."""
        steps = cleaning(job, self._disk)
        due_s = 0.0
        try:
            while True:
                for _ in range(_STEPS_A_TURN):
                    due_s += next(steps) / bytes_per_second
                await asyncio.sleep(due_s)
                due_s = 0.0
        except StopIteration as stop:
            outcome: CleaningOutcome = stop.value
            return outcome
        except ApiError as error:
            raise CleaningError(str(error)) from error

    async def end(self) -> None:
        """Do nothing: it holds nothing."""


class LogCleaner:
    """The log cleaners of one broker."""

    def __init__(
        self,
        logs: Logs,
        *,
        config: Callable[[], BrokerConfig],
        make: Callable[[], Cleaner],
        clock: Clock,
        tasks: Tasks,
    ) -> None:
        """`make` makes a `Cleaner`; there are as many as `log.cleaner.threads`."""
        self._logs = logs
        self._config = config
        self._make = make
        self._clock = clock
        self._tasks = tasks
        self._under_way: set[TopicPartition] = set()
        self._looking = asyncio.Lock()
        self._deaths = Counter[TopicPartition]()
        self.uncleanable: dict[TopicPartition, Log] = {}
        self.given_up: dict[TopicPartition, tuple[int, str]] = {}  # uncleanable: since (wall), why
        # For the metrics.
        self.map_percent = 0.0  # how full the last map of keys was
        self.recopy_percent = 0.0  # the share of the last bytes read that was written again
        self.round_s_max = 0.0
        self.overdue_ms_max = 0
        self.dirty_percent_max = 0.0
        self.rounds = 0
        self.last_look_ms = clock.monotonic_ms()

    def start(self) -> None:
        """Start the cleaners, if `log.cleaner.enable` is set."""
        if self._config().log_cleaner_enable:
            self._tasks.start(self._supervise(), "log cleaners")

    async def _supervise(self) -> None:
        """Run as many cleaners as `log.cleaner.threads` says, also after it has changed."""
        running: list[asyncio.Task[None]] = []
        while True:
            wanted = self._config().log_cleaner_threads
            running = [task for task in running if not task.done()]  # one that failed is replaced
            while len(running) < wanted:
                running.append(self._tasks.start(self._clean_on(), "log cleaner"))
            for superfluous in running[wanted:]:
                superfluous.cancel()
            del running[wanted:]
            await asyncio.sleep(max(1, self._config().log_cleaner_backoff_ms) / 1000)

    async def _clean_on(self) -> None:
        cleaner = self._make()
        try:
            while True:
                if not await self._clean_one(cleaner):
                    await cleaner.end()
                    await asyncio.sleep(max(1, self._config().log_cleaner_backoff_ms) / 1000)
        finally:
            await cleaner.end()

    # ------------------------------------------------------------------------------- one log

    async def _clean_one(self, cleaner: Cleaner) -> bool:
        """Clean the dirtiest log. Returns whether there was one."""
        async with self._looking:
            found = await self._choose()
            if found is None:
                return False
            self._under_way.add(found.log.partition)
        try:
            await self._clean(found, cleaner)
        finally:
            self._under_way.discard(found.log.partition)
        return True

    async def _choose(self) -> Cleanable | None:
        candidates: list[Cleanable] = []
        await in_slices(self._looking_into(candidates), self._clock)
        self.last_look_ms = self._clock.monotonic_ms()
        self.dirty_percent_max = 100 * max((c.ratio for c in candidates), default=0.0)
        self.overdue_ms_max = max((c.overdue_ms for c in candidates), default=0)
        found = dirtiest(candidates)
        return None if found is None or found.log.removed else found

    def _looking_into(self, candidates: list[Cleanable]) -> Iterator[None]:
        wall_ms = self._clock.wall_ms()
        for held in self._logs:
            if self._may_be_cleaned(held):
                try:
                    candidates.append(cleanable(held, wall_ms=wall_ms))
                except StorageError as error:
                    self._logs.failed(error)
                except ApiError as error:
                    self._give_up(held, str(error))
            yield

    def _may_be_cleaned(self, held: Log) -> bool:
        partition = held.partition
        return (
            held.config.is_compacted
            and not held.removed
            and partition not in self._under_way
            and self.uncleanable.get(partition) is not held
            and self._logs.future(partition) is None
        )

    async def _clean(self, found: Cleanable, cleaner: Cleaner) -> None:
        held, config = found.log, self._config()
        stamp = Stamp.of(held)
        started_ms = self._clock.monotonic_ms()
        buffer_bytes = config.log_cleaner_dedupe_buffer_size / max(1, config.log_cleaner_threads)
        try:
            job = job_for(
                found,
                wall_ms=self._clock.wall_ms(),
                map_bytes=int(buffer_bytes * config.log_cleaner_io_buffer_load_factor),
                read_bytes=max(_READ_BYTES_MIN, config.log_cleaner_io_buffer_size),
            )
            outcome = await cleaner.run(
                job, bytes_per_second=max(1.0, config.log_cleaner_io_max_bytes_per_second)
            )
            fits = self._is_unchanged(held, stamp) and still_fits(held, job, outcome)
            if not fits or not await self._replace(held, stamp, outcome):
                remove_cleaned(job, held.host.disk)
                log.info("%s changed while it was cleaned: it is cleaned again", held.partition)
        except StorageError as error:
            # A file that was truncated or deleted meanwhile is missing, which is not a failure
            # unless the log's own files were being renamed.
            is_missing = error.errno == errno.ENOENT and not error.half_done
            if not held.removed and not is_missing:
                self._logs.failed(error)
        except CleanerDiedError as error:
            await self._died(held, error)
        except (CleaningError, ApiError) as error:
            if self._is_unchanged(held, stamp):
                self._give_up(held, str(error))
        else:
            del self._deaths[held.partition]
            self._note(outcome, self._clock.monotonic_ms() - started_ms)

    def _is_unchanged(self, held: Log, stamp: Stamp | None) -> bool:
        partition = held.partition
        return (
            self._logs.get(partition) is held
            and self._logs.future(partition) is None
            and Stamp.of(held) == stamp
        )

    async def _replace(self, held: Log, stamp: Stamp | None, outcome: CleaningOutcome) -> bool:
        """Replace segment after segment. False: the log changed meanwhile; what is done is valid.

        Raises:
            StorageError: a disk access failed.
        """
        until_ms = self._clock.monotonic_ms() + SLICE_MS
        for cleaned in outcome.segments:
            if self._clock.monotonic_ms() >= until_ms:
                await asyncio.sleep(0)
                until_ms = self._clock.monotonic_ms() + SLICE_MS
                if not self._is_unchanged(held, stamp):
                    return False
            if not replace(held, cleaned):
                return False
        durable = asyncio.get_running_loop().create_future()

        def done(error: StorageError | None) -> None:
            if not durable.done():
                durable.set_result(error)

        make_durable(held, outcome, done)
        error = await durable
        if error is not None:
            raise error
        self._logs.checkpoint_first_dirty_offsets()
        return True

    async def _died(self, held: Log, error: CleanerDiedError) -> None:
        """Retry later: it may have been killed, or memory was short. Give up after a few times."""
        self._deaths[held.partition] += 1
        if self._deaths[held.partition] >= _DEATHS_MAX:
            self._give_up(held, f"{error}, {_DEATHS_MAX} times")
        else:
            log.warning("%s is cleaned again later: %s", held.partition, error)
            await asyncio.sleep(max(1, self._config().log_cleaner_backoff_ms) / 1000)

    def _give_up(self, held: Log, why: str) -> None:
        self.uncleanable[held.partition] = held
        self.given_up[held.partition] = self._clock.wall_ms(), why
        log.warning(
            "%s cannot be cleaned, and grows until the broker restarts: %s", held.partition, why
        )

    def _note(self, outcome: CleaningOutcome, took_ms: int) -> None:
        counts = outcome.counts
        self.rounds += 1
        self.map_percent = 100 * outcome.map_utilization
        self.recopy_percent = 100 * counts.bytes_kept / max(1, counts.bytes_read)
        self.round_s_max = max(self.round_s_max, took_ms / 1000)
        log.info(
            "cleaned: %d of %d records stay, %d of %d bytes, in %d ms",
            counts.records_kept,
            counts.records_read,
            counts.bytes_kept,
            counts.bytes_read,
            took_ms,
        )
        if counts.keyless:
            log.warning("%d records without a key were dropped", counts.keyless)

    # ----------------------------------------------------------------------------- questions

    def uncleanable_in(self, directory: str) -> tuple[int, int]:
        """In a directory: the number of uncleanable logs, and the dirty bytes in them."""
        given_up = [
            held
            for held in self.uncleanable.values()
            if not held.removed and self._logs.directory_of(held) == directory
        ]
        dirty = (s.size for held in given_up for s in held.segments_from(held.first_dirty_offset))
        return len(given_up), sum(dirty)

    @property
    def since_look_ms(self) -> int:
        """How long ago the logs were last checked for what there is to clean."""
        return self._clock.monotonic_ms() - self.last_look_ms
