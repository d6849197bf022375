"""Limits the rate of records (Kafka's ThroughputThrottler)."""

import asyncio
from typing import Final

_SLEEP_S_MIN: Final = 0.002


class Throttle:
    """Limits a sender to records a second; -1: unlimited, 0: it never sends."""

    def __init__(self, per_second: float, begun_s: float) -> None:
        self._per_second = per_second
        self._begun_s = begun_s

    def is_ahead(self, count: int, now_s: float) -> bool:
        """Whether `count` records are more than the rate allows until `now_s`."""
        if self._per_second < 0:
            return False
        elapsed_s = now_s - self._begun_s
        return elapsed_s <= 0 or count / elapsed_s > self._per_second

    async def wait(self, count: int, now_s: float) -> None:
        """Wait until the rate allows `count` records."""
        if self._per_second == 0:
            await asyncio.get_running_loop().create_future()
        due_s = self._begun_s + count / self._per_second
        await asyncio.sleep(max(_SLEEP_S_MIN, due_s - now_s))
