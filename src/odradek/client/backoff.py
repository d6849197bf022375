"""How long to wait before the next attempt: twice as long each time, up to a limit, and never
quite what others wait (KIP-580). The random number is drawn by the caller.
"""

from typing import Final

_SPREAD: Final = 0.2


def backoff_ms(failures: int, *, first_ms: int, max_ms: int, drawn: float) -> float:
    """The wait after so many failures in a row; `drawn` from [0, 1) spreads it by a fifth."""
    if failures <= 0 or not first_ms:
        return 0.0
    exponent = min(failures - 1, 30)
    base = min(first_ms * (1 << exponent), max(first_ms, max_ms))
    return base * (1 - _SPREAD + 2 * _SPREAD * drawn)
