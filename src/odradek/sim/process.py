"""What makes a broker in this process mortal: a loop of its own that dies with it.

All brokers of a simulation share one virtual-time loop. A killed process runs no more code, so
each broker gets a `MortalLoop`: the same loop, but what was scheduled through it does not run
any more once it is dead, and its tasks are never resumed (not even to clean up, as a process
that got SIGKILL does not). A paused one keeps what is due until it is resumed, as SIGSTOP does.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class MortalLoop:
    """The part of an event loop that a broker uses, for as long as it lives."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.is_dead = False
        self.gate: asyncio.Future[None] | None = None  # where tasks wait while it is paused
        self._loop = loop
        self._held_back: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        # A coroutine that is thrown away runs its `finally`: the dead are kept to the end.
        self._tasks: list[_Mortal] = []

    def kill(self) -> None:
        """Run nothing of this process from now on."""
        self.is_dead = True
        self._held_back.clear()

    def pause(self) -> None:
        """Hold everything back."""
        if self.gate is None and not self.is_dead:
            self.gate = self._loop.create_future()

    def resume(self) -> None:
        """Let everything that became due go on, in its order."""
        gate, self.gate = self.gate, None
        if gate is not None and not self.is_dead:
            gate.set_result(None)
        due, self._held_back = self._held_back, []
        for work, arguments in due:
            self._loop.call_soon(self._run, work, *arguments)

    def time(self) -> float:
        """Seconds of simulated time."""
        return self._loop.time()

    def call_soon(self, work: Callable[..., object], *arguments: Any) -> asyncio.Handle:
        """Run in the next turn, if alive."""
        return self._loop.call_soon(self._run, work, *arguments)

    def call_later(
        self, delay_s: float, work: Callable[..., object], *arguments: Any
    ) -> asyncio.TimerHandle:
        """Run after a delay, if alive."""
        return self._loop.call_later(delay_s, self._run, work, *arguments)

    def create_future(self) -> asyncio.Future[Any]:
        """A future of the shared loop."""
        return self._loop.create_future()

    def create_task(
        self, work: Coroutine[Any, Any, Any], *, name: str | None = None
    ) -> asyncio.Task[Any]:
        """A task that stops for good wherever it is when the process dies."""
        mortal = _Mortal(self, work)
        self._tasks.append(mortal)
        if len(self._tasks) > 1000:
            self._tasks = [task for task in self._tasks if not task.ended]
        return self._loop.create_task(mortal, name=name)

    def _run(self, work: Callable[..., object], *arguments: Any) -> None:
        if self.is_dead:
            return
        if self.gate is not None:
            self._held_back.append((work, arguments))
            return
        work(*arguments)


class _Mortal(Coroutine[Any, Any, Any]):
    """A coroutine that is not resumed once its process is dead, and not while it is paused."""

    def __init__(self, process: MortalLoop, work: Coroutine[Any, Any, Any]) -> None:
        self.ended = False
        self._process = process
        self._work = work
        self._thrown: BaseException | None = None

    def send(self, value: Any) -> Any:
        """One step."""
        process = self._process
        if process.is_dead:
            return _blocking(process.create_future())
        if process.gate is not None:
            return _blocking(asyncio.shield(process.gate))
        try:
            if self._thrown is not None:
                thrown, self._thrown = self._thrown, None
                return self._work.throw(thrown)
            return self._work.send(value)
        except BaseException:
            self.ended = True
            raise

    def throw(self, error: Any, value: Any = None, traceback: Any = None) -> Any:
        """One step, by an exception."""
        del value, traceback
        if self._process.is_dead:
            raise error  # only at the end of the simulation, when everything is cancelled
        self._thrown = error
        return self.send(None)

    def close(self) -> None:
        """The end of the simulation."""
        if not self._process.is_dead:
            self._work.close()

    def __await__(self) -> Any:
        yield from self._work.__await__()


def _blocking(future: asyncio.Future[Any]) -> asyncio.Future[Any]:
    # What `yield` from `Future.__await__` does: it tells the task to wait for this future.
    future._asyncio_future_blocking = True  # noqa: SLF001
    return future
