"""A token bucket, as KIP-599 counts the changes that clients make to topics.

Tokens arrive at the limit's rate, up to what arrives in all windows. A request takes one token for
each partition that it creates or deletes, and may overdraw: it is refused only while the bucket is
overdrawn, so that a single large request is possible.
"""

from odradek.model.clock import MonotonicMs
from odradek.quota.rate import THROTTLE_MS_MAX


class TokenBucket:
    """The tokens that a client has left; full at first."""

    __slots__ = ("_missing", "_updated_ms", "period_ms")

    def __init__(self, *, windows: int, window_ms: int) -> None:
        self.period_ms = windows * window_ms
        self._missing = 0.0  # tokens that a full bucket would have more
        self._updated_ms = 0

    def take(self, tokens: float, limit: float, monotonic_ms: MonotonicMs) -> None:
        """Take tokens, also where there are not enough. `limit` is in tokens a second."""
        self._refill(limit, monotonic_ms)
        self._missing += tokens

    def tokens(self, limit: float, monotonic_ms: MonotonicMs) -> float:
        """The tokens there are; negative in an overdrawn bucket."""
        self._refill(limit, monotonic_ms)
        return limit * self.period_ms / 1000 - self._missing

    def throttle_ms(self, limit: float, monotonic_ms: MonotonicMs) -> int:
        """How long the bucket is overdrawn. A limit that is not positive: the whole period."""
        tokens = self.tokens(limit, monotonic_ms)
        if tokens >= 0:
            return 0
        if limit <= 0:
            return self.period_ms
        return min(round(-tokens / limit * 1000), THROTTLE_MS_MAX)

    def is_unused(self, limit: float, monotonic_ms: MonotonicMs) -> bool:
        """Whether it is full: a new bucket would decide as this one does."""
        self._refill(limit, monotonic_ms)
        return not self._missing

    def _refill(self, limit: float, monotonic_ms: MonotonicMs) -> None:
        arrived = max(limit, 0) * (monotonic_ms - self._updated_ms) / 1000
        self._missing = max(0.0, self._missing - arrived)
        self._updated_ms = monotonic_ms
