"""A broker without an id generates one above the reserved ids, once, and keeps it."""

import asyncio
import random

import pytest

from odradek.broker.cluster.generated_id import with_broker_id
from odradek.broker.world import World
from odradek.config.broker import BrokerConfig
from odradek.coord.memory import MemoryStore, MemoryTree
from odradek.model.errors import StartupError
from odradek.sim.world.clock import SimulatedClock
from odradek.sim.world.disk import SimulatedDisk
from odradek.sim.world.loop import run


def draw(tree, *metas, broker_id=-1):
    async def scenario():
        loop = asyncio.get_running_loop()
        disk = SimulatedDisk(random.Random(1), loop.call_later)
        dirs = [f"/d{number}" for number in range(max(1, len(metas)))]
        for path, meta in zip(dirs, metas, strict=False):
            disk.mkdir(path)
            disk.replace_now(f"{path}/meta.properties", meta)
        world = World(
            loop=loop,
            clock=SimulatedClock(loop.time),
            random=random.Random(1),
            disk=disk,
            store=MemoryStore(tree),
            network=None,
        )
        config = BrokerConfig(
            {"broker.id": str(broker_id), "log.dirs": ",".join(dirs)}, host_name="h"
        )
        return (await with_broker_id(config, world)).broker_id

    return run(scenario())


def test_ids_are_drawn_above_those_given_by_hand_and_never_twice():
    tree = MemoryTree()

    assert draw(tree) == 1001
    assert draw(tree) == 1002


def test_an_id_that_was_given_stays():
    assert draw(MemoryTree(), broker_id=7) == 7


def test_the_next_start_finds_the_id_that_was_drawn():
    assert draw(MemoryTree(), b"version=0\nbroker.id=1005\ncluster.id=x\n") == 1005


def test_directories_of_two_brokers_are_refused():
    with pytest.raises(StartupError, match="1001, 1002"):
        draw(MemoryTree(), b"broker.id=1001\n", b"broker.id=1002\n")
