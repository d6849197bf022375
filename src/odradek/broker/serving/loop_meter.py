"""How long the event loop was busy at a stretch, which is how long everything else had to wait.

The loop waits in the selector. The time between two waits is one turn: all callbacks that were
ready run, and nothing else is answered before they end. It costs two clock reads a turn.
"""

import selectors
import time
from typing import Final

from odradek.obs.metrics import LoopMetrics

_NS_PER_MS: Final = 1_000_000


class MeteredSelector(selectors.DefaultSelector):
    """The system's selector, which also measures the time between two waits."""

    def __init__(self) -> None:
        super().__init__()
        self.turns = LoopMetrics()
        self._began_ns = time.perf_counter_ns()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """End a turn, wait, and begin the next turn."""
        self.turns.turn((time.perf_counter_ns() - self._began_ns) / _NS_PER_MS)
        try:
            return super().select(timeout)
        finally:
            self._began_ns = time.perf_counter_ns()
