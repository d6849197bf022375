"""Where requests wait until a condition is met (Kafka's `DelayedOperationPurgatory`).

A waiting request ends when its condition is met or its time is up. Conditions are watched where
they change (`broker/replication/partition.py` for offsets), so this module has only what all
waiting requests share: one heap of deadlines with one timer, and one callback in which woken
requests are checked again. There is no timer for each request, and no scan.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

from odradek.model.clock import MonotonicMs
from odradek.net.connection import Connection
from odradek.obs.metrics import RequestMetrics
from odradek.wire.header import RequestHeader

# A request expires at most this late: one timer serves all deadlines that fall into it.
_TICK_MS: Final = 10
# How long a patient request waits for records before it is answered with an HW alone.
_PATIENCE_MS: Final = 5
# Requests that were answered early stay in the heap until their deadline; above this many the
# heap is rebuilt (Kafka: `fetch.purgatory.purge.interval.requests`).
_DEAD_MAX: Final = 1000


class Waiting:
    """A waiting request. Subclasses say what happens when its time is up."""

    __slots__ = ("done", "patient", "queued", "waits_since_ms")
    operation = "Other"  # by Kafka's name of its purgatory, where there is one

    def __init__(self) -> None:
        self.done = False
        self.queued = False  # it is in the heap of deadlines
        self.patient = True  # an answer that is not urgent may wait a little
        self.waits_since_ms = MonotonicMs(0)  # 0: it has not waited

    def expire(self) -> None:
        """The time is up: answer with what is there."""
        raise NotImplementedError

    def look_again(self) -> None:
        """Something changed: answer if the condition is met now."""
        raise NotImplementedError


class DataRequest(Waiting):
    """A Produce or Fetch request, and when it was received, begun, and began to wait."""

    __slots__ = ("begun_ms", "connection", "header", "started_ms")

    def __init__(self, connection: Connection, header: RequestHeader) -> None:
        super().__init__()
        self.connection = connection
        self.header = header
        self.started_ms = connection.active_ms
        self.begun_ms = connection.begun_ms

    def count(
        self, metrics: RequestMetrics, api_key: int, monotonic_ms: MonotonicMs, throttle_ms: int = 0
    ) -> None:
        """Count it when it is answered."""
        metrics.answered(
            api_key,
            self.header.api_version,
            monotonic_ms - self.started_ms,
            queue_ms=self.begun_ms - self.started_ms,
            remote_ms=monotonic_ms - self.waits_since_ms if self.waits_since_ms else 0,
            throttle_ms=throttle_ms,
        )


class Purgatory:
    """All waiting requests of one broker."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        monotonic_ms: Callable[[], MonotonicMs],
        is_alone: Callable[[], bool] = lambda: False,
    ) -> None:
        """`is_alone`: whether nothing else is ready in the present turn of the loop."""
        self._loop = loop
        self._is_alone = is_alone
        self._monotonic_ms = monotonic_ms
        self._heap: list[tuple[int, int, Waiting]] = []
        self._count = 0
        self._finished = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = 0
        self._woken: list[Waiting] = []
        self._gathers = False  # woken requests wait for `look`
        # Patient requests, and at which time of the loop their patience ends.
        self._woken_soon: deque[tuple[float, Waiting]] = deque()

    @property
    def size(self) -> int:
        """The number of waiting requests."""
        return len(self._heap) - self._finished

    def by_operation(self) -> Counter[str]:
        """The number of waiting requests, by what they are."""
        return Counter(entry[2].operation for entry in self._heap if not entry[2].done)

    def wait(self, waiting: Waiting, timeout_ms: int) -> None:
        """Keep a request until it is finished, at most for `timeout_ms`."""
        monotonic_ms = self._monotonic_ms()
        deadline_ms = monotonic_ms + timeout_ms
        waiting.waits_since_ms = monotonic_ms
        self._count += 1
        waiting.queued = True
        heappush(self._heap, (deadline_ms, self._count, waiting))
        if self._timer is None or deadline_ms < self._timer_at_ms:
            self._arm(deadline_ms)

    def finish(self, waiting: Waiting) -> None:
        """Drop a request that has been answered."""
        assert not waiting.done
        waiting.done = True
        if not waiting.queued:
            return
        self._finished += 1
        if self._finished > _DEAD_MAX and self._finished * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if not entry[2].done]
            self._heap.sort()
            self._finished = 0

    def wake(self, waiting: Waiting) -> None:
        """Check a request again in the next turn, after everything that was received until then.

        A timer runs after what its turn has read from sockets, `call_soon` before. So a follower's
        fetch is answered with the records of all produce requests that arrived meanwhile.
        """
        if not self._woken and not self._gathers:
            self._loop.call_later(0, self._look_at_woken)
        self._woken.append(waiting)

    def gather(self) -> bool:
        """Let woken requests wait for `look`, if nothing else is ready in this turn of the loop.

        Returns whether `look` has to follow. Otherwise they are checked in the next turn.
        """
        self._gathers = self._is_alone()
        return self._gathers

    def look(self) -> None:
        """Check the woken requests now."""
        self._gathers = False
        if self._woken:
            self._look_at_woken()

    def wake_soon(self, waiting: Waiting) -> None:
        """Check a request again in a few milliseconds, unless it is answered before."""
        ends_s = self._loop.time() + _PATIENCE_MS / 1000
        if not self._woken_soon:
            self._loop.call_at(ends_s, self._end_patience)
        self._woken_soon.append((ends_s, waiting))

    def expire_all(self) -> None:
        """Answer every waiting request now: the broker stops."""
        waiting_now = [waiting for _, _, waiting in sorted(self._heap) if not waiting.done]
        for waiting in waiting_now:
            if not waiting.done:
                waiting.expire()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_at_woken(self) -> None:
        woken, self._woken = self._woken[::-1], []
        try:
            while woken:
                waiting = woken.pop()
                if not waiting.done:
                    waiting.look_again()
        finally:  # one that fails must not keep the others from being checked
            for waiting in reversed(woken):
                self.wake(waiting)

    def _end_patience(self) -> None:
        soon, now_s = self._woken_soon, self._loop.time()
        while soon and (soon[0][1].done or soon[0][0] <= now_s):
            _, waiting = soon.popleft()
            if not waiting.done:
                waiting.patient = False
                self.wake(waiting)
        if soon:
            self._loop.call_at(soon[0][0], self._end_patience)

    def _arm(self, deadline_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_ms = deadline_ms
        delay_ms = max(deadline_ms - self._monotonic_ms(), 0) + _TICK_MS / 2
        self._timer = self._loop.call_later(delay_ms / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        monotonic_ms = self._monotonic_ms() + _TICK_MS // 2
        try:
            while self._heap and (self._heap[0][2].done or self._heap[0][0] <= monotonic_ms):
                _, _, waiting = heappop(self._heap)
                waiting.queued = False
                if waiting.done:
                    self._finished -= 1
                else:
                    waiting.expire()
        finally:  # one that fails must not keep the others from expiring
            if self._heap and self._timer is None:
                self._arm(self._heap[0][0])
