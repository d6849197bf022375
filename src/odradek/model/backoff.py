"""Pauses between attempts: exponential backoff with jitter (KIP-580)."""

from collections.abc import Callable
from typing import Final, NamedTuple

Pauses = Callable[[int], float]  # the failures in a row -> seconds before the next attempt

_SPREAD: Final = 0.2


class Backoff(NamedTuple):
    """A pause that doubles with each failure in a row, from `first_ms` up to `max_ms`.

    One number of `draw`, from [0, 1), spreads each pause by 20 % in both directions.
    """

    first_ms: int
    max_ms: int
    draw: Callable[[], float]

    def pause_s(self, failures: int) -> float:
        """The pause before the next attempt, after `failures` failures in a row."""
        drawn = self.draw()
        if failures <= 0 or not self.first_ms:
            return 0.0
        base_ms = min(self.first_ms * (1 << min(failures - 1, 30)), max(self.first_ms, self.max_ms))
        return base_ms * (1 - _SPREAD + 2 * _SPREAD * drawn) / 1000
