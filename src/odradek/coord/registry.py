"""Reads that are not older than a write, and blocks of producer ids.

A write that only the current controller may make takes a check of the controller epoch's version as
`guard`; if it fails, the `MultiError` has its index. Callers handle lost connections.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from odradek.coord import layout
from odradek.coord.store import (
    ANY_VERSION,
    BadVersionError,
    Check,
    MultiError,
    Operation,
    SetData,
    Stat,
    Store,
    StoreError,
)

_PRODUCER_ID_MAX: Final = (1 << 63) - 1


async def latest(store: Store, paths: Sequence[str]) -> list[tuple[bytes | None, Stat] | None]:
    """The current state of many nodes, None for those that do not exist.

    A plain read may return less: a ZooKeeper server may be behind the others. A read after a write
    of the same session is not older than the write.
    """
    await store.multi([Check(layout.TOPICS, ANY_VERSION)])
    return await store.get_many(paths)


async def next_producer_id_block(
    store: Store, broker: int, *, guard: Check | None = None
) -> layout.ProducerIdBlock:
    """Draw the next block of producer ids for a broker. A lost answer loses a block, no more.

    Raises:
        StoreError: there are no ids left.
        MultiError: the guard failed.
    """
    while True:
        data, stat = await store.get(layout.PRODUCER_ID_BLOCK)
        last = layout.decode_producer_id_block(data)
        first = last.end_producer_id if last else 0
        end = first + layout.PRODUCER_ID_BLOCK_SIZE
        if end - 1 > _PRODUCER_ID_MAX:
            raise StoreError(f"{layout.PRODUCER_ID_BLOCK}: all producer ids are used up")
        block = layout.ProducerIdBlock(broker, first, end)
        with suppress(BadVersionError):
            written = layout.encode_producer_id_block(block)
            await _guarded(store, [SetData(layout.PRODUCER_ID_BLOCK, written, stat.version)], guard)
            return block


async def _guarded(store: Store, operations: list[Operation], guard: Check | None) -> None:
    guards = [] if guard is None else [guard]
    try:
        await store.multi([*guards, *operations])
    except MultiError as error:
        if error.index < len(guards):
            raise
        raise error.cause from None
