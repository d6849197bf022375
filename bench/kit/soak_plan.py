"""Which broker a soak spares, so that its process runs long enough to show whether it grows. Pure.

A process of a broker that is killed every few minutes shows only how it starts. So one broker at a
time is paused and never ended, for at least `SPARED_S`. A run has as many such turns as fit; only
one of three times that length or more has a long-lived process of each of three brokers.
"""

from collections.abc import Sequence

SPARED_S = 3_600.0


def spared(brokers: Sequence[int], age_s: float, duration_s: float) -> int:
    """The broker that is not ended at this time of a run."""
    turns = max(1, min(len(brokers), int(duration_s // SPARED_S)))
    return brokers[min(turns - 1, int(turns * age_s / duration_s))]
