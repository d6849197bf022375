"""Each broker is restarted in turn, and nothing changes for clients."""

import asyncio

import pytest
from tests.sim.support.stage import play, until

from odradek.broker.cluster import features
from odradek.client.connection import Connection
from odradek.sim.clients.client import TROUBLE
from odradek.sim.world.cluster import PORT, ProcessState
from odradek.wire.api_keys import ApiKey

SEEDS = (9, 15, 21)  # a mistake shows in these
WATCH_S = 0.02
VERSION_2_END = 5


async def restart_all(cluster):
    for broker in cluster.brokers:
        await broker.stop()
        await asyncio.sleep(0.5)
        broker.start()
        await until(lambda broker=broker: broker.state is ProcessState.RUNNING)
        await asyncio.sleep(1)


async def watch_versions(broker, seen):
    """Append the version of EndTxn that each new connection to a broker gets."""
    while True:
        try:
            connection = await Connection.open(broker.name, PORT, client_id="watcher")
            seen.append(connection.version_of(ApiKey.END_TXN))
            await connection.close()
        except TROUBLE:
            pass
        await asyncio.sleep(WATCH_S)


def offered(seed):
    """The versions of EndTxn that three brokers supported while each was restarted in turn."""
    seen = []

    async def story(cluster, client):
        watchers = [client.run(watch_versions(broker, seen)) for broker in cluster.brokers]
        await until(lambda: len(seen) > 10)
        await restart_all(cluster)
        for watcher in watchers:
            watcher.cancel()

    play(seed, story)
    return seen


@pytest.mark.parametrize("seed", SEEDS)
def test_new_connections_always_get_version_2_of_transactions(seed):
    seen = offered(seed)
    assert len(seen) > 300
    assert set(seen) == {VERSION_2_END}


def test_reading_registrations_once_would_lower_the_version(monkeypatch):
    monkeypatch.setattr(features, "is_one_picture", lambda before, after: True)
    assert VERSION_2_END - 1 in {version for seed in SEEDS for version in offered(seed)}
