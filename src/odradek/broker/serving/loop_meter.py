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
        self._ready = 0  # sockets in the present turn

    def is_alone(self) -> bool:
        """Whether no other socket is ready in the present turn."""
        return self._ready == 1

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """End a turn, wait, and begin the next turn."""
        self.turns.turn((time.perf_counter_ns() - self._began_ns) / _NS_PER_MS)
        try:
            found = super().select(timeout)
            self._ready = len(found)
            return found
        finally:
            self._began_ns = time.perf_counter_ns()
