"""Processes within this Python process: each has a loop of its own that can be killed.

All processes of a simulation share one virtual-time loop. A killed one must run no more code, so
each has a `MortalLoop`, a view of the shared loop: when it is dead, callbacks scheduled through it
do not run any more, and its tasks are never resumed (not even to clean up, as after SIGKILL). A
paused one keeps due callbacks until it is resumed, as with SIGSTOP.

All input of a process comes through its loop: timers, completions of its disk, bytes of its
network, steps of its tasks. So this module also catches the crash of a disk (`SimulatedCrash`), and
attributes tasks that are not started through the loop (`TaskGroup`, `gather`) to their process, by
the context that they inherit.
"""

import asyncio
import contextvars
import warnings
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from typing import Any, Final

from odradek.sim.world.disk import SimulatedCrash
from odradek.sim.world.loop import Due, VirtualTimeLoop

_running: Final[contextvars.ContextVar["MortalLoop"]] = contextvars.ContextVar("process")


def running_process(context: contextvars.Context | None = None) -> "MortalLoop | None":
    """The process whose code runs now, or in a context."""
    return _running.get(None) if context is None else context.get(_running)


class MortalLoop:
    """The part of an event loop that a process uses, until it is killed."""

    def __init__(self, loop: VirtualTimeLoop, name: str = "process") -> None:
        self.name = name
        self.is_dead = False
        self.gate: asyncio.Future[None] | None = None  # where tasks wait while it is paused
        self.on_crash: Callable[[], None] = lambda: None  # called when its disk has crashed it
        self.loop = loop
        self.context = contextvars.copy_context()
        self.context.run(_running.set, self)
        self._held_back: list[_Due] = []
        # A coroutine that is freed runs its `finally`: so dead tasks are kept until `bury`.
        self._tasks: list[_Mortal] = []

    def kill(self) -> None:
        """Run no more code of this process."""
        self.is_dead = True
        self._held_back.clear()

    def pause(self) -> None:
        """Keep due callbacks until `resume`."""
        if self.gate is None and not self.is_dead:
            self.gate = self.loop.create_future()

    def resume(self) -> None:
        """Run the callbacks that became due, in their order."""
        gate, self.gate = self.gate, None
        if gate is not None and not self.is_dead:
            gate.set_result(None)
        due, self._held_back = self._held_back, []
        for held_back in due:
            self.loop.put_soon(held_back)

    def bury(self) -> None:
        """End of the simulation: free the coroutines of a dead process."""
        self.kill()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a coroutine that was never started
            for task in self._tasks:
                # Its `finally` runs now, after the simulation: its errors are meaningless.
                with suppress(Exception):
                    task.work.close()
        self._tasks.clear()

    # -------------------------------------------------------- what the process may call

    def time(self) -> float:
        """The simulated time in seconds."""
        return self.loop.time()

    def call_soon(self, work: Callable[..., object], *arguments: Any) -> asyncio.Handle:
        """Run in the next turn, unless the process is dead."""
        due = _Due(self, 0.0, work, arguments)
        self.loop.put_soon(due)
        return due

    def call_later(
        self, delay_s: float, work: Callable[..., object], *arguments: Any
    ) -> asyncio.TimerHandle:
        """Run after a delay, unless the process is dead."""
        when_s = self.loop.time() + delay_s
        due = _Due(self, when_s, work, arguments)
        self.loop.put_at(when_s, due)
        return due

    def call_at(
        self, when_s: float, work: Callable[..., object], *arguments: Any
    ) -> asyncio.TimerHandle:
        """Run at a time, unless the process is dead."""
        due = _Due(self, when_s, work, arguments)
        self.loop.put_at(when_s, due)
        return due

    def create_future(self) -> asyncio.Future[Any]:
        """A future of the shared loop."""
        return self.loop.create_future()

    def create_task(
        self, work: Coroutine[Any, Any, Any], *, name: str | None = None
    ) -> asyncio.Task[Any]:
        """A task that is never resumed after the process has died."""
        mortal = self.mortal(work)
        context = self.context.copy()
        mortal.task = self.loop.create_task(mortal, name=name, context=context)
        return mortal.task

    # ---------------------------------------------------------------------- inside

    def mortal(self, work: Coroutine[Any, Any, Any]) -> "_Mortal":
        """Wrap a coroutine so that it belongs to this process."""
        if type(work) is _Mortal:  # isinstance asks the abstract base class
            return work
        mortal = _Mortal(self, work)
        self._tasks.append(mortal)
        if len(self._tasks) > 1000:
            self._tasks = [task for task in self._tasks if not task.ended]
        return mortal

    def hold_back(self, due: "_Due") -> None:
        """Keep a callback that became due while the process is paused."""
        self._held_back.append(due)

    def crashed(self) -> None:
        """The disk has crashed the process within an operation."""
        self.kill()
        self.on_crash()


def task_factory(
    loop: asyncio.AbstractEventLoop,
    work: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
    **options: Any,
) -> asyncio.Task[Any]:
    """A task of the process that starts it."""
    process = running_process()
    assert isinstance(work, Coroutine)
    if process is None:
        return asyncio.Task(work, loop=loop, **options)
    mortal = process.mortal(work)
    mortal.task = asyncio.Task(mortal, loop=loop, **options)
    return mortal.task


class _Due(Due):
    """A callback scheduled through a process's loop."""

    __slots__ = ("_process",)

    def __init__(
        self,
        process: MortalLoop,
        when_s: float,
        work: Callable[..., object],
        arguments: tuple[Any, ...],
    ) -> None:
        # Repeats `Due.__init__`, for speed: it runs several times for each message.
        self._loop = process.loop
        self._when = when_s
        self._callback = work
        self._args = arguments
        self._context = process.context
        self._cancelled = False
        self._process = process

    def _run(self) -> None:
        process = self._process
        if process.is_dead:
            return
        if process.gate is not None:
            process.hold_back(self)
            return
        try:
            self._context.run(self._callback, *self._args)
        except SimulatedCrash:
            process.crashed()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self.failed(error)


class _Mortal(Coroutine[Any, Any, Any]):
    """A coroutine that is not resumed once its process is dead, nor while it is paused."""

    def __init__(self, process: MortalLoop, work: Coroutine[Any, Any, Any]) -> None:
        self.ended = False
        self.work = work
        self.task: asyncio.Task[Any] | None = None  # loops keep no strong reference
        self._process = process
        self._thrown: BaseException | None = None

    def send(self, value: Any) -> Any:
        """Resume the coroutine with a value."""
        process = self._process
        if process.is_dead:
            return _blocking(process.create_future())
        if process.gate is not None:
            return _blocking(asyncio.shield(process.gate))
        try:
            if self._thrown is not None:
                thrown, self._thrown = self._thrown, None
                return self.work.throw(thrown)
            return self.work.send(value)
        except SimulatedCrash:
            process.crashed()
            return _blocking(process.create_future())
        except BaseException:
            self.ended = True
            raise

    def throw(self, error: Any, value: Any = None, traceback: Any = None) -> Any:
        """Resume the coroutine with an exception."""
        del value, traceback
        if self._process.is_dead:
            if isinstance(error, asyncio.CancelledError):
                raise error  # end of the simulation: all tasks are cancelled
            # The awaited operation failed because the process died: the process does not notice.
            return _blocking(self._process.create_future())
        self._thrown = error
        return self.send(None)

    def close(self) -> None:
        """End of the simulation."""
        if not self._process.is_dead:
            self.work.close()

    def __await__(self) -> Any:
        yield from self.work.__await__()


def _blocking(future: asyncio.Future[Any]) -> asyncio.Future[Any]:
    # What `yield` from `Future.__await__` does: it tells the task to wait for this future.
    future._asyncio_future_blocking = True  # noqa: SLF001
    return future
