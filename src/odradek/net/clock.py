"""The clocks of the operating system; the simulator supplies its own instead."""

import time

from odradek.model.clock import MonotonicMs, WallMs


class RealClock:
    """The clocks of the operating system.

    A call of `WallMs` or `MonotonicMs` would take a fifth of the time of reading the clock.
    """

    def wall_ms(self) -> WallMs:
        """Milliseconds since 1970 (UTC)."""
        return time.time_ns() // 1_000_000  # type: ignore[return-value]

    def monotonic_ms(self) -> MonotonicMs:
        """Milliseconds of a clock that never goes back; its zero has no meaning."""
        return time.monotonic_ns() // 1_000_000  # type: ignore[return-value]


# For clients and tools, of which the simulator needs no other clock or passes its own.
real_wall_ms = RealClock().wall_ms
real_monotonic_ms = RealClock().monotonic_ms
