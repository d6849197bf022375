"""The change of growing numbers over about the last minute, taken when they are read.

Nothing is sampled in between: a reader gets what it saw earlier. Several readers may share one
object. A first reader gets the change since the start.
"""

from collections import deque
from typing import Final, Generic, TypeVar

from odradek.model.clock import MonotonicMs

SPAN_MS: Final = 60_000
_STEP_MS: Final = 15_000  # what is kept lies at least this far apart

T = TypeVar("T")


class Recent(Generic[T]):
    """What was read in the last minute."""

    __slots__ = ("_kept",)

    def __init__(self, start_ms: MonotonicMs, start: T) -> None:
        self._kept = deque([(start_ms, start)])

    def earlier(self, monotonic_ms: MonotonicMs, value: T) -> tuple[int, T]:
        """How many ms ago an earlier value was read, and that value; keeps `value` for later.

        It is at least a minute old, unless the object is younger.
        """
        kept = self._kept
        while len(kept) > 1 and monotonic_ms - kept[1][0] >= SPAN_MS:
            kept.popleft()
        then_ms, earlier = kept[0]
        if monotonic_ms - kept[-1][0] >= _STEP_MS:
            kept.append((monotonic_ms, value))
        return monotonic_ms - then_ms, earlier
