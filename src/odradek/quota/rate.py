"""A rate averaged over several windows, and the throttle time of a client that exceeds a limit.

The average and the throttle time are those of Kafka's `Rate`, `SampledStat` and `QuotaUtils`: at
least all windows but one count as elapsed, so that a client may use that much at once after a
pause.

    a limit of 1,000 bytes a second, 11 windows of 1 s; nothing was sent before
    t = 0 s   12,000 bytes: an average of 1,200 a second over the least elapsed time, 10 s
              throttle time (1,200 - 1,000) / 1,000 * 10 s = 2 s
    t = 2 s   12,000 bytes in 12 s: the average is the limit
"""

from collections import deque
from typing import Final

from odradek.model.clock import MonotonicMs

THROTTLE_MS_MAX: Final = 2**31 - 1  # a throttle time is an int32


class Rate:
    """What was used in the last windows."""

    __slots__ = ("_samples", "window_ms", "windows")

    def __init__(self, *, windows: int, window_ms: int) -> None:
        self.windows = windows
        self.window_ms = window_ms
        # Each sample: its start, the time of its last amount, and the amount. There is one sample
        # more than windows, because the oldest may start before the first window and reach into it.
        self._samples: deque[tuple[int, int, float]] = deque(maxlen=windows + 1)

    def record(self, amount: float, monotonic_ms: MonotonicMs) -> None:
        """Count an amount; a negative one takes back what was counted."""
        samples = self._samples
        if samples and monotonic_ms - samples[-1][0] < self.window_ms:
            began_ms, _, known = samples[-1]
            samples[-1] = began_ms, monotonic_ms, known + amount
        else:
            samples.append((monotonic_ms, monotonic_ms, amount))

    def per_second(self, monotonic_ms: MonotonicMs) -> float:
        """The average amount in a second."""
        total, elapsed_ms = self._measure(monotonic_ms)
        return total * 1000 / elapsed_ms

    def total(self, monotonic_ms: MonotonicMs) -> float:
        """What was used in all windows."""
        return self._measure(monotonic_ms)[0]

    def throttle_ms(self, limit: float, monotonic_ms: MonotonicMs) -> int:
        """How long nothing must be used until the average is `limit` a second; 0: it is not above.

        A limit that is not positive allows nothing: the throttle time is that of all windows.
        """
        total, elapsed_ms = self._measure(monotonic_ms)
        average = total * 1000 / elapsed_ms
        if average <= limit:
            return 0
        if limit <= 0:
            return self.windows * self.window_ms
        return min(round((average - limit) / limit * elapsed_ms), THROTTLE_MS_MAX)

    def is_unused(self, monotonic_ms: MonotonicMs) -> bool:
        """Whether nothing was used in the windows: a new `Rate` would decide as this one does."""
        self._drop_obsolete(monotonic_ms)
        return not self._samples

    def _measure(self, monotonic_ms: MonotonicMs) -> tuple[float, int]:
        self._drop_obsolete(monotonic_ms)
        samples = self._samples
        elapsed_ms = monotonic_ms - samples[0][0] if samples else 0
        missing = self.windows - 1 - elapsed_ms // self.window_ms
        if missing > 0:
            elapsed_ms += missing * self.window_ms
        return sum(amount for _, _, amount in samples), max(elapsed_ms, 1)

    def _drop_obsolete(self, monotonic_ms: MonotonicMs) -> None:
        samples, oldest_ms = self._samples, monotonic_ms - self.windows * self.window_ms
        while samples and samples[0][1] <= oldest_ms:
            samples.popleft()


def burst(limit: float, *, windows: int, window_ms: int) -> float:
    """The most that can be used at once without exceeding `limit` a second on average."""
    return limit * (windows - 1) * window_ms / 1000
