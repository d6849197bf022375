"""An event loop in simulated time: `asyncio.sleep(3600)` returns at once.

The shells run on it unchanged. When every task waits, the clock advances to the next timer. With
in-memory transports and a seeded `random.Random`, a run is a function of its seed.

It is asyncio's selector loop with less overhead for each turn: handles are made in one step, timers
are tuples, and the system is polled only if a socket is registered. Timers due at the same time run
in the order in which they were set, which asyncio does not guarantee.
"""

import asyncio
import selectors
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from heapq import heappop, heappush
from typing import Any, Final, TypeVar

T = TypeVar("T")

# With this many turns at one simulated time, the run is an endless loop.
TURNS_MAX: Final = 1_000_000
_OWN_SOCKETS: Final = 1  # asyncio's own socket pair for signals


class Due(asyncio.TimerHandle):
    """A callback that is due now or at a later time."""

    __slots__ = ()

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        when_s: float,
        work: Callable[..., object],
        arguments: tuple[Any, ...],
        context: Context,
    ) -> None:
        # Does not call `TimerHandle.__init__`, for speed: a run makes millions of these.
        self._loop = loop
        self._when = when_s
        self._callback = work
        self._args = arguments
        self._context = context
        self._cancelled = False

    def cancel(self) -> None:
        """Never run the callback."""
        self._cancelled = True
        self._callback, self._args = _nothing, ()

    def _run(self) -> None:
        try:
            self._context.run(self._callback, *self._args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self.failed(error)

    def failed(self, error: BaseException) -> None:
        """Report an exception of the callback to the loop's exception handler."""
        message = f"Exception in callback {self._callback!r}"
        self._loop.call_exception_handler({"message": message, "exception": error, "handle": self})


class _Sockets(selectors.SelectSelector):
    """Counts the registrations of sockets."""

    def __init__(self) -> None:
        super().__init__()
        self.used = 0

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        self.used += 1
        return super().register(fileobj, events, data)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """`loop.time()` is the simulated time in seconds since the start of the run."""

    get_debug = bool  # False; asyncio calls it for each future, and a type costs no Python frame

    def __init__(self) -> None:
        self._sockets = _Sockets()
        super().__init__(self._sockets)
        self._now_s = 0.0
        self._next: deque[asyncio.Handle] = self._ready  # type: ignore[attr-defined]
        self._timers: list[tuple[float, int, Due]] = []
        self._timers_set = 0
        self._turns = 0
        self.turn_s = 0.0  # what each turn takes; nothing, if the clocks of brokers are all

    def time(self) -> float:
        """The simulated time in seconds."""
        return self._now_s

    def spend(self, seconds: float) -> None:
        """Advance the time as if a callback had computed for so long."""
        self._now_s += seconds

    # ------------------------------------------------------- what `AbstractEventLoop` asks for

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Run a callback in the next turn."""
        due = Due(self, self._now_s, callback, args, copy_context() if context is None else context)
        self._next.append(due)
        return due

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run a callback after a delay."""
        when_s = self._now_s + delay
        due = Due(self, when_s, callback, args, copy_context() if context is None else context)
        self.put_at(when_s, due)
        return due

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run a callback at a simulated time."""
        due = Due(self, when, callback, args, copy_context() if context is None else context)
        self.put_at(when, due)
        return due

    # ------------------------------------------------------------------------ for processes

    def put_soon(self, due: Due) -> None:
        """Queue a callback for the next turn."""
        self._next.append(due)

    def put_at(self, when_s: float, due: Due) -> None:
        """Queue a callback for a simulated time."""
        self._timers_set += 1
        heappush(self._timers, (when_s, self._timers_set, due))

    def is_last(self) -> bool:
        """Whether nothing is queued behind the callback that runs."""
        return not self._next

    # --------------------------------------------------------------------------- one turn

    def _run_once(self) -> None:
        """As many turns as there are: asyncio would call this once for each turn."""
        ready, timers = self._next, self._timers
        popped = ready.popleft
        while True:
            if ready:
                self._turns += 1
                self._now_s += self.turn_s
                if self._turns > TURNS_MAX:
                    raise RuntimeError(f"livelock: {TURNS_MAX} turns at {self._now_s} s")
            else:
                self._turns = 0
                self._wait()
            now_s = self._now_s
            while timers and timers[0][0] <= now_s:
                ready.append(heappop(timers)[2])
            for _ in range(len(ready)):
                due = popped()
                if not due._cancelled:  # noqa: SLF001
                    due._run()  # noqa: SLF001 - as asyncio does
            if self._stopping:  # type: ignore[attr-defined]
                return

    def _wait(self) -> None:
        """Nothing is ready: advance the time to the next timer."""
        ready, timers = self._next, self._timers
        if self._sockets.used > _OWN_SOCKETS:
            self._process_events(self._sockets.select(0))  # type: ignore[attr-defined]
        while timers and timers[0][2]._cancelled:  # noqa: SLF001
            heappop(timers)
        if not ready:
            if not timers:
                raise RuntimeError("deadlock: every task waits and no timer is set")
            self._now_s = max(self._now_s, timers[0][0])


def _nothing() -> None:
    """Replaces a cancelled callback."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`, in simulated time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)
