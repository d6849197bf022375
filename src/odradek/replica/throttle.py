"""Replication quotas: how fast throttled replicas may be copied while partitions move.

A quota has a rate in bytes a second, averaged over some windows (`replication.quota.window.num` of
`replication.quota.window.size.seconds`). Bytes are counted when they have gone; while the
average lies above the rate, throttled replicas that are not in sync wait. Those in sync never do:
to throttle them would only take them out of it.

Which replicas are throttled stands in their topic's options: `partition:broker` or `*`.
"""

from collections import deque
from collections.abc import Collection
from typing import Final, NamedTuple

UNLIMITED: Final = (1 << 63) - 1


class ReplicationQuota:
    """What was copied lately, against a rate."""

    __slots__ = ("_samples", "_total", "rate", "window_ms", "windows")

    def __init__(self, *, windows: int, window_ms: int, rate: int = UNLIMITED) -> None:
        """`rate` is in bytes a second; it may be set at any time."""
        self.rate = rate
        self.windows = windows
        self.window_ms = window_ms
        self._samples: deque[tuple[int, int]] = deque()  # when the window began, bytes in it
        self._total = 0

    def record(self, count_bytes: int, now_ms: int) -> None:
        """So much was copied."""
        samples = self._samples
        if samples and now_ms - samples[-1][0] < self.window_ms:
            began_ms, known = samples[-1]
            samples[-1] = began_ms, known + count_bytes
        else:
            samples.append((now_ms, count_bytes))
        self._total += count_bytes

    def is_exceeded(self, now_ms: int) -> bool:
        """Whether throttled replicas have to wait."""
        if self.rate >= UNLIMITED:
            return False
        samples = self._samples
        while samples and now_ms - samples[0][0] >= self.windows * self.window_ms:
            self._total -= samples.popleft()[1]
        if not samples:
            return False
        elapsed_ms = max(now_ms - samples[0][0], self.window_ms)
        return self._total * 1000 > self.rate * elapsed_ms


class Throttles(NamedTuple):
    """Which of a topic's partitions are throttled on this broker; None: all."""

    led: frozenset[int] | None = frozenset()
    followed: frozenset[int] | None = frozenset()

    def throttles_leader(self, index: int) -> bool:
        """Whether what this broker sends of a partition counts."""
        return self.led is None or index in self.led

    def throttles_follower(self, index: int) -> bool:
        """Whether what this broker fetches of a partition counts."""
        return self.followed is None or index in self.followed


def throttled_here(words: Collection[str], broker_id: int) -> frozenset[int] | None:
    """The partitions that `partition:broker,...` or `*` names for this broker; None: all."""
    if "*" in words:
        return None
    pairs = (word.split(":") for word in words)
    return frozenset(int(index) for index, broker in pairs if int(broker) == broker_id)
