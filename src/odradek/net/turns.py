"""Long work in slices: one slice in a turn of the loop, whoever it is for.

What one peer asked for must not keep another waiting. Work that may take longer than a few
milliseconds is written as a generator that yields where it may be interrupted; `Turns` goes on
with it for `SLICE_MS`, lets the loop do everything else that is ready, and goes on with the next
one that waits. So the others wait for one slice, however much work there is and for however
many peers.

The peer whose request it is is held meanwhile (`Connection.hold`): nothing that it sends is
handled before `let_go`, so that its requests act in their order, and the frame of the request
that holds it stays where it is.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from typing import Final, TypeVar

T = TypeVar("T")
SLICE_MS: Final = 1


class Turns:
    """The long work of one broker."""

    def __init__(self, loop: asyncio.AbstractEventLoop, now_ms: Callable[[], int]) -> None:
        self._loop = loop
        self._now_ms = now_ms
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_scheduled = False

    def soon(self, work: Callable[[], None]) -> None:
        """Call it in a turn of the loop in which no other long work is done."""
        self._waiting.append(work)
        self._schedule()

    async def next(self) -> None:
        """Wait until it is this work's turn: after all else that is ready, and one at a time."""
        turn = self._loop.create_future()

        def begin() -> None:
            if not turn.done():  # else its task was cancelled
                turn.set_result(None)

        self.soon(begin)
        await turn

    async def run(self, steps: Generator[None, None, T]) -> T:
        """Run it to its end, in slices, and return what the generator returns."""
        until_ms = self._now_ms() + SLICE_MS
        while True:
            try:
                next(steps)
            except StopIteration as end:
                made: T = end.value
                return made
            if self._now_ms() > until_ms:
                await self.next()
                until_ms = self._now_ms() + SLICE_MS

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
