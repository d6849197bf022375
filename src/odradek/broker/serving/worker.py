"""Long computations that release the interpreter lock, mostly decompression.

One thread does what the event loop must not do itself: zlib, lz4, zstandard, cramjam and the
compiled check of records all release the lock while they work, so the loop goes on beside it. Work
is done in the order in which it comes. Plain Python code in it slows the loop down, but never stops
it for longer than the interpreter's switch interval (5 ms).
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


class Worker(Protocol):
    """Runs computations that would block the event loop."""

    def run(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """Call `work`, which raises nothing, and later, on the loop, `done` with its result."""


class LoopWorker:
    """Runs on the loop itself, a moment later: for the simulator, where the order is fixed."""

    def __init__(self, loop: "asyncio.AbstractEventLoop", *, delay_ms: int = 1) -> None:
        self._loop = loop
        self._delay_s = delay_ms / 1000

    def run(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        self._loop.call_later(self._delay_s, lambda: done(work()))


class ThreadWorker:
    """Runs in a thread, which starts with the first work and ends with the process."""

    def __init__(self, loop: "asyncio.AbstractEventLoop") -> None:
        self._loop = loop
        self._queue: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def run(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        def both() -> None:
            # In no variable: an error that is returned refers to this frame by its traceback, and
            # would keep what `work` has decompressed until the garbage collector runs.
            with suppress(RuntimeError):  # the loop is closed: the broker has stopped
                self._loop.call_soon_threadsafe(done, work())

        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="records", daemon=True)
            self._thread.start()
        self._queue.put(both)

    def _serve(self) -> None:
        while True:
            self._queue.get()()
