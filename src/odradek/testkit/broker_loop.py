"""One broker's view of a loop that it shares with others, through which it is frozen or ended."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class BrokerLoop:
    """The part of an event loop that a broker uses.

    Frozen, its callbacks wait. After `end` none runs any more, and its tasks are cancelled: a
    broker in a test's process cannot be killed by the system.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_over = False
        self._is_frozen = False
        self._held: list[_Call] = []

    def freeze(self) -> None:
        self._is_frozen = True

    def thaw(self) -> None:
        """Run what became due meanwhile, in its order."""
        self._is_frozen = False
        held, self._held = self._held, []
        for call in held:
            if call.handle is None or not call.handle.cancelled():
                self._loop.call_soon(self.run, call)

    async def end(self) -> None:
        self._is_over = True
        self._held.clear()
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def run(self, call: "_Call") -> None:
        """Run a callback that is due."""
        if self._is_over:
            return
        if self._is_frozen:
            self._held.append(call)
        else:
            call.work(*call.arguments)

    # ----------------------------------------------------------------- what a broker may call

    def time(self) -> float:
        """The loop's time in seconds."""
        return self._loop.time()

    def create_future(self) -> asyncio.Future[Any]:
        return self._loop.create_future()

    def create_task(
        self, work: Coroutine[Any, Any, Any], *, name: str | None = None
    ) -> asyncio.Task[Any]:
        task = self._loop.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def call_soon(self, work: Callable[..., object], *arguments: Any) -> asyncio.Handle:
        call = _Call(work, arguments)
        call.handle = self._loop.call_soon(self.run, call)
        return call.handle

    def call_soon_threadsafe(self, work: Callable[..., object], *arguments: Any) -> None:
        self._loop.call_soon_threadsafe(self.run, _Call(work, arguments))

    def call_later(
        self, delay_s: float, work: Callable[..., object], *arguments: Any
    ) -> asyncio.TimerHandle:
        return self.call_at(self._loop.time() + delay_s, work, *arguments)

    def call_at(
        self, when_s: float, work: Callable[..., object], *arguments: Any
    ) -> asyncio.TimerHandle:
        call = _Call(work, arguments)
        call.handle = handle = self._loop.call_at(when_s, self.run, call)
        return handle


class _Call:
    __slots__ = ("arguments", "handle", "work")

    def __init__(self, work: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        self.work = work
        self.arguments = arguments
        self.handle: asyncio.Handle | None = None
