"""The two clocks of a broker.

Record timestamps and retention use wall time, which may jump in either direction. Timeouts,
replica lag and intervals use monotonic time, which never goes back. The simulator supplies
simulated clocks.

The two have different types, so that mypy refuses one in place of the other. A sum or a difference
of times is an int.
"""

from typing import NamedTuple, NewType, Protocol

WallMs = NewType("WallMs", int)
MonotonicMs = NewType("MonotonicMs", int)


class Clock(Protocol):
    """The wall clock and the monotonic clock of a host."""

    def wall_ms(self) -> WallMs:
        """Milliseconds since the Unix epoch, by the host's clock. May jump either way."""

    def monotonic_ms(self) -> MonotonicMs:
        """Milliseconds since an unspecified moment. Never goes back."""


class Now(NamedTuple):
    """Both clocks, read at the same moment: what a pure state machine is given with an event."""

    monotonic_ms: MonotonicMs
    wall_ms: WallMs


def read_clocks(clock: Clock) -> Now:
    """What both clocks show."""
    return Now(clock.monotonic_ms(), clock.wall_ms())
