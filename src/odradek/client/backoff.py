"""Exponential backoff with jitter (KIP-580). The caller draws the random number."""

from typing import Final

_SPREAD: Final = 0.2


def backoff_ms(failures: int, *, first_ms: int, max_ms: int, drawn: float) -> float:
    """The pause before the next attempt, in milliseconds, after `failures` failures in a row.

    It doubles with each failure, from `first_ms` up to `max_ms`; `drawn` from [0, 1) spreads it by
    20 % in both directions.
    """
    if failures <= 0 or not first_ms:
        return 0.0
    exponent = min(failures - 1, 30)
    base = min(first_ms * (1 << exponent), max(first_ms, max_ms))
    return base * (1 - _SPREAD + 2 * _SPREAD * drawn)
