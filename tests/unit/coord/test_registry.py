"""Producer ids as they are written to the store."""

import asyncio

import pytest

from odradek.coord import layout, registry
from odradek.coord.memory import MemoryStore, MemoryTree
from odradek.coord.store import Check, MultiError, StoreError
from odradek.sim.world.loop import run


async def cluster():
    tree = MemoryTree()
    stores = [MemoryStore(tree), MemoryStore(tree)]
    for store in stores:
        await store.open()
    for path in layout.TOP_LEVEL:
        await stores[0].create(path, make_parents=True)
    return stores


def test_blocks_of_producer_ids_do_not_overlap():
    async def scenario():
        stores = await cluster()
        blocks = await asyncio.gather(
            *(registry.next_producer_id_block(stores[n % 2], n) for n in range(6))
        )

        assert sorted(block.first_producer_id for block in blocks) == list(range(0, 6000, 1000))
        data, stat = await stores[0].get(layout.PRODUCER_ID_BLOCK)
        assert stat.version == 6
        assert data.endswith(b'"block_start":"5000","block_end":"5999"}')

    run(scenario())


def test_producer_ids_end_before_they_overflow():
    async def scenario():
        store, _ = await cluster()
        block = layout.ProducerIdBlock(1, (1 << 63) - 1500, (1 << 63) - 500)
        await store.set_data(layout.PRODUCER_ID_BLOCK, layout.encode_producer_id_block(block))
        with pytest.raises(StoreError, match="used up"):
            await registry.next_producer_id_block(store, 1)

    run(scenario())


def test_a_former_controller_writes_nothing():
    async def scenario():
        store, _ = await cluster()
        await store.create(layout.CONTROLLER_EPOCH, b"1")
        token = Check(layout.CONTROLLER_EPOCH, 0)
        await registry.next_producer_id_block(store, 1, guard=token)
        await store.set_data(layout.CONTROLLER_EPOCH, b"2")

        with pytest.raises(MultiError, match="/controller_epoch has version 1, not 0"):
            await registry.next_producer_id_block(store, 1, guard=token)
        assert (await store.exists(layout.PRODUCER_ID_BLOCK)).version == 1

    run(scenario())
