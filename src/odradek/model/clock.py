"""The two clocks a broker is handed. They are never mixed.

Timestamps and retention are wall time, which may jump; time-outs, lags and intervals are
monotonic time, which may not. A simulated broker gets simulated ones.
"""

from typing import Protocol


class Clock(Protocol):
    """What time it is, twice."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch, as the host believes. May jump either way."""

    def monotonic_ms(self) -> int:
        """Milliseconds since some moment. Never goes back."""
