"""SIGINT and SIGTERM end a tool after its current step, with the exit code of a JVM (128 + n)."""

import asyncio
import signal
from collections.abc import Callable

_BASE = 128


class Stopping:
    """Calls `stop` on SIGINT or SIGTERM; `code` is then the exit code."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self.code = 0
        self._stop = stop
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._signalled, number)

    def _signalled(self, number: int) -> None:
        self.code = _BASE + number
        self._stop()
