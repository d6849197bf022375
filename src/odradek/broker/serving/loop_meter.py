"""How long the event loop was busy at a stretch: what everybody else had to wait.

The selector is where the loop waits. So the time between two waits is a turn: all callbacks that
were ready, and nothing can be answered before its end. Two readings of the clock a turn.
"""

import selectors
import time
from typing import Final

from odradek.obs.metrics import LoopMetrics

_NS_PER_MS: Final = 1_000_000


class MeteredSelector(selectors.DefaultSelector):
    """The system's selector, which counts how long it was not asked."""

    def __init__(self) -> None:
        super().__init__()
        self.turns = LoopMetrics()
        self._began_ns = time.perf_counter_ns()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """The turn ends here, and the next one begins when there is something to do."""
        self.turns.turn((time.perf_counter_ns() - self._began_ns) / _NS_PER_MS)
        try:
            return super().select(timeout)
        finally:
            self._began_ns = time.perf_counter_ns()
