"""Replication quotas: the rate at which throttled replicas are copied (KIP-73).

A quota has a rate in bytes a second, averaged over several windows
(`replication.quota.window.num` of `replication.quota.window.size.seconds`). Bytes are counted after
they are sent or fetched; while the average is above the rate, throttled replicas that are not in
sync wait. In-sync replicas never wait: throttling would only remove them from the ISR.

The throttled replicas are listed in their topic's configuration: `partition:broker` or `*`.
"""

from collections import deque
from collections.abc import Collection
from typing import Final, NamedTuple

from odradek.model.clock import MonotonicMs

UNLIMITED: Final = (1 << 63) - 1


class ReplicationQuota:
    """Bytes copied in the last windows, compared with a rate."""

    __slots__ = ("_samples", "_total", "rate", "window_ms", "windows")

    def __init__(self, *, windows: int, window_ms: int, rate: int = UNLIMITED) -> None:
        """`rate` is in bytes a second; it may be changed at any time."""
        self.rate = rate
        self.windows = windows
        self.window_ms = window_ms
        self._samples: deque[tuple[int, int]] = deque()  # start of a window, bytes in it
        self._total = 0

    def record(self, count_bytes: int, monotonic_ms: MonotonicMs) -> None:
        """Count bytes that were copied."""
        samples = self._samples
        if samples and monotonic_ms - samples[-1][0] < self.window_ms:
            began_ms, known = samples[-1]
            samples[-1] = began_ms, known + count_bytes
        else:
            samples.append((monotonic_ms, count_bytes))
        self._total += count_bytes

    def is_exceeded(self, monotonic_ms: MonotonicMs) -> bool:
        """Whether the average is above the rate, so that throttled replicas wait."""
        if self.rate >= UNLIMITED:
            return False
        samples = self._samples
        while samples and monotonic_ms - samples[0][0] >= self.windows * self.window_ms:
            self._total -= samples.popleft()[1]
        if not samples:
            return False
        elapsed_ms = max(monotonic_ms - samples[0][0], self.window_ms)
        return self._total * 1000 > self.rate * elapsed_ms


class Throttles(NamedTuple):
    """A topic's throttled partitions on this broker; None: all."""

    led: frozenset[int] | None = frozenset()
    followed: frozenset[int] | None = frozenset()

    def throttles_leader(self, index: int) -> bool:
        """Whether the leader quota counts what this broker sends of a partition."""
        return self.led is None or index in self.led

    def throttles_follower(self, index: int) -> bool:
        """Whether the follower quota counts what this broker fetches of a partition."""
        return self.followed is None or index in self.followed


def throttled_here(words: Collection[str], broker_id: int) -> frozenset[int] | None:
    """The partitions that `partition:broker,...` or `*` lists for this broker; None: all."""
    if "*" in words:
        return None
    pairs = (word.split(":") for word in words)
    return frozenset(int(index) for index, broker in pairs if int(broker) == broker_id)
