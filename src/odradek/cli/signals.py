"""An end by signal: what is under way is brought to its end, and the exit code tells, as Java's."""

import asyncio
import signal
from collections.abc import Callable

_BASE = 128


class Stopping:
    """Calls `stop` when somebody wants this to end; `code` is then the exit code."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self.code = 0
        self._stop = stop
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._signalled, number)

    def _signalled(self, number: int) -> None:
        self.code = _BASE + number
        self._stop()
