"""Moves a cluster's znodes between a ZooKeeper and our store on one machine.

Each is copied into the other, node by node and byte by byte, so that a broker finds the same
there. Ephemeral nodes are not copied.
"""

import pathlib
from typing import Final

from kazoo.client import KazooClient

from odradek.config.properties import parse
from odradek.coord.sqlite import SqliteStore
from odradek.net.clock import RealClock

_ZOOKEEPERS_OWN: Final = "/zookeeper"

Nodes = dict[str, bytes | None]  # parents before children


def our_store(properties: pathlib.Path) -> SqliteStore:
    """The store that a broker's server.properties names."""
    place = parse(properties.read_text())["odradek.store.path"]
    return SqliteStore(place, clock=RealClock())


async def read_ours(store: SqliteStore) -> Nodes:
    """Every persistent node of ours."""
    nodes: Nodes = {}
    await store.open()
    try:
        paths = ["/" + name for name in await store.children("/")]
        while paths:
            path = paths.pop(0)
            data, stat = await store.get(path)
            if not stat.ephemeral_owner:
                nodes[path] = data
                paths += [f"{path}/{name}" for name in await store.children(path)]
    finally:
        await store.close()
    return nodes


async def replace_ours(store: SqliteStore, nodes: Nodes) -> None:
    """Replace the nodes of our store by these."""
    old = list(await read_ours(store))
    await store.open()
    try:
        for path in reversed(old):
            await store.delete(path)
        for path, data in nodes.items():
            await store.create(path, data)
    finally:
        await store.close()


def read_zookeeper(address: str) -> Nodes:
    """Every persistent node that Kafka has in a ZooKeeper."""
    nodes: Nodes = {}
    client = KazooClient(address)
    client.start(30)
    try:
        paths = ["/" + name for name in sorted(client.get_children("/"))]
        while paths:
            path = paths.pop(0)
            data, stat = client.get(path)
            if not stat.ephemeralOwner and path != _ZOOKEEPERS_OWN:
                nodes[path] = data
                paths += [f"{path}/{name}" for name in sorted(client.get_children(path))]
    finally:
        client.stop()
        client.close()
    return nodes


def fill_zookeeper(address: str, nodes: Nodes) -> None:
    """Create these nodes in an empty ZooKeeper."""
    client = KazooClient(address)
    client.start(30)
    try:
        for path, data in nodes.items():
            client.create(path, data or b"")
    finally:
        client.stop()
        client.close()
