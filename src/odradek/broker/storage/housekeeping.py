"""The recurring work of a broker, each kind at its own interval.

    retention                   log.retention.check.interval.ms, first after 30 s (as Kafka)
    recovery points             log.flush.offset.checkpoint.interval.ms; logs are settled before
    log start offsets           log.flush.start.offset.checkpoint.interval.ms
    high watermarks             replica.high.watermark.checkpoint.interval.ms
    flush.ms                    every second
    idle connections            every five seconds; their unused buffers are freed, too
    expired producers           producer.id.expiration.check.interval.ms

Intervals are monotonic time, so that a jump of the wall clock neither skips nor repeats work. What
has expired is decided by wall time, like all timestamps of records. Long work is done in slices,
between which the loop serves other work.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator

from odradek.broker.serving.tasks import Tasks
from odradek.broker.storage.settling import LogSettler
from odradek.config.broker import BrokerConfig
from odradek.log.logs import Logs, advance
from odradek.model.clock import Clock
from odradek.net.server import Server

log = logging.getLogger(__name__)
_RETENTION_FIRST_MS = 30_000
_FLUSH_MS = 1_000
_IDLE_MS = 5_000


async def in_slices(steps: Iterator[None], clock: Clock) -> None:
    """Do long work in slices, with a turn of the event loop between two of them."""
    more = advance(steps, clock)
    while more:
        await asyncio.sleep(0)
        more = advance(steps, clock)


class Housekeeping:
    """The recurring work of one broker."""

    def __init__(self, logs: Logs, server: Server, clock: Clock, tasks: Tasks) -> None:
        self._logs = logs
        self._server = server
        self._clock = clock
        self._tasks = tasks
        self._running: list[asyncio.Task[None]] = []
        self.failures = 0  # of all work since the start
        self._also: list[tuple[int, Callable[[], object]]] = []
        self._works: list[tuple[str, int, Callable[[], object]]] = []

    def also(self, interval_ms: int, work: Callable[[], object]) -> None:
        """Add other work; it starts with `start`."""
        self._also.append((interval_ms, work))

    def start(self, config: BrokerConfig) -> None:
        """Start all work; the intervals are read-only options."""
        retention_ms = config.log_retention_check_interval_ms
        self._every("retention", retention_ms, self._retain, min(retention_ms, _RETENTION_FIRST_MS))
        self._every("producers", config.producer_id_expiration_check_interval_ms, self._expire)
        self._every("flush", _FLUSH_MS, self._logs.flush_overdue)
        self._every("idle connections", _IDLE_MS, self._tend_connections)
        for name, interval_ms, work in (
            (
                "recovery points",
                config.log_flush_offset_checkpoint_interval_ms,
                LogSettler(self._logs).round,
            ),
            (
                "log start offsets",
                config.log_flush_start_offset_checkpoint_interval_ms,
                self._logs.checkpoint_log_start_offsets,
            ),
            (
                "high watermarks",
                config.replica_high_watermark_checkpoint_interval_ms,
                self._logs.checkpoint_high_watermarks,
            ),
        ):
            self._every(name, interval_ms, work)

        for interval_ms, other in self._also:
            self._every(getattr(other, "__name__", "work"), interval_ms, other)

    def stop(self) -> None:
        """Cancel all recurring work."""
        for task in self._running:
            task.cancel()
        self._running.clear()
        self._works.clear()

    async def do_all(self) -> None:
        """Do all work now, once, as if every interval had passed."""
        for name, interval_ms, work in self._works:
            await self._do(name, interval_ms, work)

    def _every(
        self,
        name: str,
        interval_ms: int,
        work: Callable[[], object],
        first_ms: int | None = None,
    ) -> None:
        first_ms = interval_ms if first_ms is None else first_ms
        self._works.append((name, interval_ms, work))
        repeated = self._repeat(name, interval_ms, work, first_ms)
        self._running.append(self._tasks.start(repeated, name))

    async def _repeat(
        self, name: str, interval_ms: int, work: Callable[[], object], first_ms: int
    ) -> None:
        wait_ms = first_ms
        while True:
            await asyncio.sleep(max(wait_ms, 1) / 1000)
            await self._do(name, interval_ms, work)
            wait_ms = interval_ms

    async def _do(self, name: str, interval_ms: int, work: Callable[[], object]) -> None:
        try:
            done = work()
            if isinstance(done, Awaitable):
                await done
        except Exception:
            # It is tried again, because retention that stops for ever fills the disk. The
            # counter shows that it keeps failing.
            self.failures += 1
            log.exception("%s failed; tried again in %d ms", name, interval_ms)

    def _tend_connections(self) -> None:
        self._server.drop_idle()
        self._server.rest(_IDLE_MS)

    async def _retain(self) -> None:
        await in_slices(self._logs.applying_retention(), self._clock)

    async def _expire(self) -> None:
        await in_slices(self._logs.expiring_producers(), self._clock)
