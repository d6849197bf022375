"""Producer ids, from blocks of 1,000 that the controller allocates to this broker.

The next block is requested when the last one is used up, once for all callers that wait. The rest
of a block is lost when the broker stops, as in Kafka: ids are 63 bits wide.
"""

import asyncio
from collections.abc import Awaitable, Callable


class ProducerIds:
    """The block of producer ids of one broker."""

    def __init__(self, allocate: Callable[[], Awaitable[tuple[int, int]]]) -> None:
        """`allocate` requests a block: its first id and its size."""
        self._allocate = allocate
        self._next = 0
        self._end = 0
        self._asking = asyncio.Lock()

    async def next(self) -> int:
        """An id that no other producer has.

        Raises:
            ApiError: there is no block; the client sends its request again.
        """
        if self._next >= self._end:
            async with self._asking:
                while self._next >= self._end:
                    first, count = await self._allocate()
                    self._next, self._end = first, first + count
        drawn = self._next
        self._next += 1
        return drawn
