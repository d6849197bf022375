"""Background tasks with an owner: what a broker has started ends when the broker stops."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Tasks:
    """The background tasks of one broker. A task that fails is always reported."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        report: Callable[[str, BaseException], None],
    ) -> None:
        self._loop = loop
        self._report = report
        self._running: dict[asyncio.Task[Any], None] = {}  # in the order in which they began

    def start(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run a coroutine until it ends or the broker stops."""
        task = self._loop.create_task(work, name=name)
        self._running[task] = None
        task.add_done_callback(self._ended)
        return task

    async def cancel_all(self) -> None:
        """Cancel all tasks and wait until they have ended."""
        while self._running:
            running = list(self._running)
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.pop(task, None)
        if not task.cancelled():
            error = task.exception()
            if error is not None:
                self._report(task.get_name(), error)
