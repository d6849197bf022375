"""Long work is divided into slices, so that one request does not delay the others.

Work that may take longer than a few milliseconds is written as a generator that yields where it
may be interrupted; `Turns` runs it for `SLICE_MS`, lets the event loop do everything else that is
ready, and then runs the next piece of work that waits. So all other requests wait for one slice at
most, however much long work there is.

Meanwhile the connection is held (`Connection.hold`): none of its later requests is handled before
`let_go`, so requests take effect in their order, and the frame of the request that holds the
connection stays in the receive buffer.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from typing import Final, TypeVar

from odradek.model.clock import MonotonicMs

T = TypeVar("T")
SLICE_MS: Final = 1


class Turns:
    """The queue of long work of one broker."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, monotonic_ms: Callable[[], MonotonicMs]
    ) -> None:
        self._loop = loop
        self._monotonic_ms = monotonic_ms
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_scheduled = False

    def soon(self, work: Callable[[], None]) -> None:
        """Call `work` in an iteration of the event loop in which no other long work is done."""
        self._waiting.append(work)
        self._schedule()

    async def next(self) -> None:
        """Wait for a slice: after everything else that is ready, one piece of work at a time."""
        turn = self._loop.create_future()

        def begin() -> None:
            if not turn.done():  # the waiting task may have been cancelled
                turn.set_result(None)

        self.soon(begin)
        await turn

    async def run(self, steps: Generator[None, None, T]) -> T:
        """Run the generator to its end, in slices, and return its return value."""
        until_ms = self._monotonic_ms() + SLICE_MS
        while True:
            try:
                next(steps)
            except StopIteration as end:
                made: T = end.value
                return made
            if self._monotonic_ms() >= until_ms:
                await self.next()
                until_ms = self._monotonic_ms() + SLICE_MS

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._is_scheduled = False
        work = self._waiting.popleft()
        if self._waiting:
            self._schedule()
        work()
