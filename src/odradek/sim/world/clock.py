"""A broker's clocks: one runs evenly, the other is set by people and by NTP, wrongly at times."""

from collections.abc import Callable
from typing import Final

from odradek.model.clock import MonotonicMs, WallMs

# Some day; far from 0, so that a duration that is taken for a time is seen.
EPOCH_MS: Final = 1_700_000_000_000


class SimulatedClock:
    """See `odradek.model.clock.Clock`. `skew_ms` may be set at any time: then wall time jumps."""

    def __init__(self, seconds: Callable[[], float], *, started_ms: int = 0) -> None:
        """`seconds`: simulated time; `started_ms`: what the even clock shows at its beginning."""
        self.skew_ms = 0
        self._seconds = seconds
        self._started_ms = started_ms

    def wall_ms(self) -> WallMs:
        """Milliseconds since the epoch, as this host believes."""
        return WallMs(EPOCH_MS + self.skew_ms + int(self._seconds() * 1000))

    def monotonic_ms(self) -> MonotonicMs:
        """Milliseconds since some moment."""
        return MonotonicMs(self._started_ms + int(self._seconds() * 1000))
