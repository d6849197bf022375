"""What each client has used of one quota, in bounded memory.

Only clients with a limit are counted. What is not used any more is dropped: it decides as a new
count does. Against clients that invent client ids there are at most `KEPT_MAX` counts; beyond them
those used longest ago are dropped.
"""

from collections.abc import Callable, Iterator
from typing import Final, Generic, Protocol, TypeVar

from odradek.model.clock import MonotonicMs
from odradek.quota.bucket import TokenBucket
from odradek.quota.precedence import Entity, Limit, Share, limit_of
from odradek.quota.rate import Rate

KEPT_MAX: Final = 10_000


class UsageCount(Protocol):
    """What one client, or several that share a limit, have used."""

    def is_spent(self, limit: float, monotonic_ms: MonotonicMs) -> bool:
        """Whether a new count would decide as this one does."""


class RateCount:
    """A rate and the latest throttle time."""

    __slots__ = ("rate", "throttle_ms")

    def __init__(self, *, windows: int, window_ms: int) -> None:
        self.rate = Rate(windows=windows, window_ms=window_ms)
        self.throttle_ms = 0

    def record(self, amount: float, limit: float, monotonic_ms: MonotonicMs) -> int:
        """Count an amount. Returns the throttle time."""
        self.rate.record(amount, monotonic_ms)
        self.throttle_ms = self.rate.throttle_ms(limit, monotonic_ms)
        return self.throttle_ms

    def is_spent(self, limit: float, monotonic_ms: MonotonicMs) -> bool:  # noqa: ARG002
        return self.rate.is_unused(monotonic_ms)


class BucketCount:
    """A token bucket and the latest throttle time."""

    __slots__ = ("bucket", "throttle_ms")

    def __init__(self, *, windows: int, window_ms: int) -> None:
        self.bucket = TokenBucket(windows=windows, window_ms=window_ms)
        self.throttle_ms = 0

    def take(
        self, tokens: float, limit: float, monotonic_ms: MonotonicMs, *, strict: bool
    ) -> tuple[bool, int]:
        """Take tokens. Returns whether they were given, and the throttle time.

        `strict`: an overdrawn bucket gives none (KIP-599); otherwise they are taken in any case.
        """
        bucket = self.bucket
        if strict:
            overdrawn_ms = bucket.throttle_ms(limit, monotonic_ms)
            if overdrawn_ms:
                self.throttle_ms = overdrawn_ms
                return False, overdrawn_ms
            bucket.take(tokens, limit, monotonic_ms)
            self.throttle_ms = 0
            return True, 0
        bucket.take(tokens, limit, monotonic_ms)
        self.throttle_ms = bucket.throttle_ms(limit, monotonic_ms)
        return True, self.throttle_ms

    def is_spent(self, limit: float, monotonic_ms: MonotonicMs) -> bool:
        return self.bucket.is_unused(limit, monotonic_ms)


_C = TypeVar("_C", bound=UsageCount)


class Usage(Generic[_C]):
    """The limits of one quota, and the counts of the clients that have one."""

    __slots__ = ("_counts", "_found", "_kept_max", "_limits", "_make")

    def __init__(self, make: Callable[[], _C], *, kept_max: int = KEPT_MAX) -> None:
        self._make = make
        self._kept_max = kept_max
        self._limits: dict[Entity, float] = {}
        self._counts: dict[Share, tuple[float, _C]] = {}
        # By user and client id: what was found for them, until a limit changes.
        self._found: dict[tuple[str, str], Limit | None] = {}

    def __bool__(self) -> bool:
        """Whether there is any limit."""
        return bool(self._limits)

    def __len__(self) -> int:
        """The number of counts."""
        return len(self._counts)

    def set_limits(self, limits: dict[Entity, float]) -> None:
        """Use these limits from now on; what was used is kept where there is still a limit."""
        self._limits = limits
        self._found.clear()
        if not limits:
            self._counts.clear()

    def find(self, user: str, client: str) -> Limit | None:
        """The limit that holds for a client."""
        key = user, client
        if key in self._found:
            return self._found[key]
        if len(self._found) >= self._kept_max:
            self._found.clear()
        limit = self._found[key] = limit_of(self._limits, user, client)
        return limit

    def count(self, limit: Limit) -> _C:
        """The count of the clients that share a limit."""
        known = self._counts.pop(limit.share, None)
        if known is None and len(self._counts) >= self._kept_max:
            # Not all counts that are spent: each new client id would look at all of them.
            del self._counts[next(iter(self._counts))]
        count = self._make() if known is None else known[1]
        self._counts[limit.share] = limit.rate, count  # the last one is the last used
        return count

    def drop_spent(self, monotonic_ms: MonotonicMs) -> None:
        """Drop the counts that decide as new ones."""
        spent = [
            share
            for share, (rate, count) in self._counts.items()
            if count.is_spent(rate, monotonic_ms)
        ]
        for share in spent:
            del self._counts[share]

    def counts(self) -> Iterator[tuple[Share, float, _C]]:
        """The counts with their limits, the last used one first."""
        for share, (rate, count) in reversed(self._counts.items()):
            yield share, rate, count
