"""Blocks of producer ids, given to brokers by the controller.

The last block given stands in `/latest_producer_id_block`; the next one is written over it if
nobody did meanwhile. What was given is never given again, though its answer be lost.
"""

import asyncio
from contextlib import suppress
from typing import Final

from odradek.coord import layout
from odradek.coord.store import (
    BadVersionError,
    ConnectionLostError,
    NodeExistsError,
    NoNodeError,
    Store,
)
from odradek.model.errors import ApiError, ErrorCode

_ID_MAX: Final = (1 << 63) - 1
_ATTEMPTS: Final = 10
_PAUSE_SECONDS: Final = 0.05


class ProducerIdBlocks:
    """What is left of all the ids there are."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def allocate(self, broker_id: int) -> tuple[int, int]:
        """The next block for a broker: its first id, and how many.

        Raises:
            ApiError: the store refused too often, or all ids have been given.
        """
        for _ in range(_ATTEMPTS):
            try:
                return await self._allocate(broker_id)
            except (BadVersionError, ConnectionLostError):
                await asyncio.sleep(_PAUSE_SECONDS)
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "no block of producer ids could be stored")

    async def _allocate(self, broker_id: int) -> tuple[int, int]:
        path = layout.PRODUCER_ID_BLOCK
        try:
            data, stat = await self._store.get(path)
        except NoNodeError:
            with suppress(NodeExistsError):
                await self._store.create(path, make_parents=True)
            data, stat = await self._store.get(path)
        last = layout.decode_producer_id_block(data)
        first = last.end_producer_id if last else 0
        end = first + layout.PRODUCER_ID_BLOCK_SIZE
        if end - 1 > _ID_MAX:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids have been given")
        block = layout.ProducerIdBlock(broker_id, first, end)
        await self._store.set_data(path, layout.encode_producer_id_block(block), stat.version)
        return first, end - first
