"""An event loop in a thread, for callers that are not asynchronous."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for other threads. It does not work after a fork; make a new one there."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run to completion and return the result; cancelled if the caller is interrupted.

        Raises:
            TimeoutError: it was not complete after the time-out; or what the coroutine raises.
        """
        future = self.submit(work)
        try:
            return future.result(timeout_s)
        except BaseException:
            future.cancel()
            raise

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine; returns its future."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """Cancel running coroutines and end the thread."""
        asyncio.run_coroutine_threadsafe(_cancel_all(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
