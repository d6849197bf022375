"""The store in a real ZooKeeper: the contract's whole suite on one server."""

import asyncio
import pathlib
import random
from collections.abc import Iterator

import pytest
from ensemble import Ensemble
from kazoo.client import KazooClient
from tests.contract import test_store as suite

from odradek.coord.zookeeper import ZooKeeperStore

pytestmark = pytest.mark.jvm

PROMISES = [test.promise for test in vars(suite).values() if hasattr(test, "promise")]


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    one = Ensemble(tmp_path_factory.mktemp("zookeeper"), 1)
    yield one
    one.close()


async def expire(store: ZooKeeperStore) -> None:
    """Have the server expire a session, as without heartbeats."""
    usurper = KazooClient(store._servers[0], client_id=store._client.client_id)
    await asyncio.to_thread(usurper.start)
    await asyncio.to_thread(usurper.stop)
    usurper.close()


class ZooKeeperWorld:
    def __init__(self, address: str, chroot: str) -> None:
        self.address = f"{address}/tests/{chroot}"
        self.stores = []

    def run(self, main):
        asyncio.run(self._run_and_close(main))

    async def _run_and_close(self, main):
        try:
            await main
        finally:
            for store in self.stores:
                await store.close()

    async def connect(self):
        store = ZooKeeperStore(
            self.address,
            call_soon=asyncio.get_running_loop().call_soon_threadsafe,
            randomness=random.Random(0),
            session_timeout_ms=10_000,
        )
        self.stores.append(store)
        await store.open()
        return store

    async def expire(self, store):
        await expire(store)


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_zookeeper_keeps_the_contract(promise, zookeeper, tmp_path: pathlib.Path):
    world = ZooKeeperWorld(zookeeper.address, promise.__name__)
    world.run(promise(world))
