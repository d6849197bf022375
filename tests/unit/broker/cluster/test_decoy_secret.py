"""The secret of the decoys is one for all brokers of a cluster, and for ever."""

import asyncio

import pytest

from odradek.broker.cluster.decoy_secret import decoy_secret
from odradek.coord.layout_odradek import DECOY_SECRET_BYTES, DECOYS
from odradek.coord.memory import MemoryStore, MemoryTree


async def opened(tree):
    store = MemoryStore(tree)
    await store.open()
    return store


def test_brokers_that_start_together_and_later_have_the_same():
    async def story():
        tree = MemoryTree()
        stores = [await opened(tree) for _ in range(3)]
        at_first = await asyncio.gather(*map(decoy_secret, stores))
        for store in stores:
            await store.close()

        later = await decoy_secret(await opened(tree))
        assert {*at_first, later} == {later}
        assert len(later) == DECOY_SECRET_BYTES
        assert await decoy_secret(await opened(MemoryTree())) != later

    asyncio.run(story())


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b'{"secret":"?"}', b'{"secret":"c2hvcnQ="}', b'{"secret":1}']
)
def test_what_cannot_be_used_is_replaced_for_all(data, caplog):
    async def story():
        tree = MemoryTree()
        store = await opened(tree)
        await store.create(DECOYS, data, make_parents=True)

        found = await decoy_secret(store)
        assert len(found) == DECOY_SECRET_BYTES
        assert await decoy_secret(await opened(tree)) == found
        assert DECOYS in caplog.text

    asyncio.run(story())


def test_brokers_that_replace_it_together_have_the_same():
    async def story():
        tree = MemoryTree()
        stores = [await opened(tree) for _ in range(3)]
        await stores[0].create(DECOYS, b"{}", make_parents=True)

        found = await asyncio.gather(*map(decoy_secret, stores))
        assert {*found} == {await decoy_secret(await opened(tree))}

    asyncio.run(story())
