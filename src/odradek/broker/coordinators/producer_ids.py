"""Producer ids, drawn from the block of 1,000 that the controller gave this broker.

A block is asked for when the present one is used up, by one request for all who wait. What is
left of a block when the broker stops is lost, as in Kafka: ids are 63 bits wide.
"""

import asyncio
from collections.abc import Awaitable, Callable


class ProducerIds:
    """The block of one broker."""

    def __init__(self, allocate: Callable[[], Awaitable[tuple[int, int]]]) -> None:
        """`allocate` gets a block from the controller: its first id, and how many."""
        self._allocate = allocate
        self._next = 0
        self._end = 0
        self._asking = asyncio.Lock()

    async def next(self) -> int:
        """An id that nobody else has.

        Raises:
            ApiError: the controller gave no block; the asker tries again.
        """
        if self._next >= self._end:
            async with self._asking:
                while self._next >= self._end:
                    first, count = await self._allocate()
                    self._next, self._end = first, first + count
        drawn = self._next
        self._next += 1
        return drawn
