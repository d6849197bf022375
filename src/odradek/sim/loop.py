"""An event loop in which time is free: `asyncio.sleep(3600)` returns at once.

The shells run on it unchanged. When every task waits, the clock jumps to the next
timer, as a real selector would have slept until then. With in-memory transports and a
seeded `random.Random` a run is a function of its seed.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")

# So many turns without any time passing are no work, but a circle.
TURNS_MAX: Final = 1_000_000


class _JumpingSelector(selectors.SelectSelector):
    """Instead of waiting for `timeout` seconds, lets them have passed."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self._turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout <= 0:
            self._turns += 1
            if self._turns > TURNS_MAX:
                raise RuntimeError(f"livelock: {TURNS_MAX} turns at {self.now} s")
            # Nothing but signals and threads comes from outside: now and then is enough.
            return super().select(0) if self._turns % 64 == 0 else []
        self._turns = 0
        ready = super().select(0)
        if ready:
            return ready
        if timeout is None:
            raise RuntimeError("deadlock: every task waits and no timer is set")
        self.now += timeout
        return []


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """`loop.time()` is the simulated clock, in seconds since the start of the run."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Seconds of simulated time."""
        return self._jumping.now


def run(main: Coroutine[Any, Any, T]) -> T:
    """Like `asyncio.run`, in simulated time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)
