"""Configuration, change notifications and producer ids as they are written to the store."""

import asyncio

import pytest

from odradek.coord import layout, registry
from odradek.coord.layout_config import (
    CONFIG_CHANGE_PREFIX,
    CONFIG_CHANGES,
    ConfigEntity,
    decode_config_change,
    topic_entity,
)
from odradek.coord.memory import MemoryStore, MemoryTree
from odradek.coord.store import BadVersionError, Check, MultiError, StoreError
from odradek.coord.znode import CorruptNodeError
from odradek.sim.world.loop import run

CLIENT = ConfigEntity((("users", "al ice"), ("clients", "a/b")))


class Clock:
    ms = 0

    def __call__(self):
        return self.ms


async def cluster(clock=Clock):
    tree = MemoryTree(clock())
    stores = [MemoryStore(tree), MemoryStore(tree)]
    for store in stores:
        await store.open()
    for path in layout.TOP_LEVEL:
        await stores[0].create(path, make_parents=True)
    return stores


def test_a_configuration_is_written_with_its_parents_and_a_notification():
    async def scenario():
        store, _ = await cluster()
        assert await registry.read_config(store, CLIENT) == ({}, None)
        await registry.write_config(store, CLIENT, {"producer_byte_rate": "1024"}, None)
        stored = await registry.read_config(store, CLIENT)
        await registry.write_config(store, CLIENT, {}, stored.version)

        assert stored == ({"producer_byte_rate": "1024"}, 0)
        assert (await store.get("/config/users/al%20ice/clients"))[0] is None
        notices = await store.children(CONFIG_CHANGES)
        assert notices == ["config_change_0000000000", "config_change_0000000001"]
        data, _ = await store.get(f"{CONFIG_CHANGES}/{notices[0]}")
        assert data == b'{"version":2,"entity_path":"users/al%20ice/clients/a%2Fb"}'

    run(scenario())


@pytest.mark.parametrize("known_to_the_loser", [None, 0])
def test_of_two_concurrent_writes_of_a_configuration_one_is_refused(known_to_the_loser):
    async def scenario():
        store, other = await cluster()
        await registry.write_config(other, CLIENT, {"a": "1"}, None)
        await registry.write_config(other, CLIENT, {"a": "2"}, 0)
        with pytest.raises(BadVersionError, match="/config/users/al%20ice/clients/a%2Fb"):
            await registry.write_config(store, CLIENT, {"b": "1"}, known_to_the_loser)

        assert await registry.read_config(store, CLIENT) == ({"a": "2"}, 1)
        assert len(await store.children(CONFIG_CHANGES)) == 2

    run(scenario())


def test_every_broker_gets_every_change_once_and_in_order():
    async def scenario():
        writer, reader = await cluster()
        changed = asyncio.Event()
        notices = registry.Notices(
            reader, CONFIG_CHANGES, CONFIG_CHANGE_PREFIX, on_change=changed.set
        )
        await writer.create(f"{CONFIG_CHANGES}/somebody_elses")
        await registry.write_config(writer, topic_entity("a"), {}, None)
        first = await notices.unseen()
        changed.clear()
        for topic in "bcdefghijkl":
            await registry.write_config(writer, topic_entity(topic), {}, None)
        await changed.wait()
        rest = await notices.unseen()

        heard = [decode_config_change(*notice).levels[0][1] for notice in first + rest]
        assert heard == list("abcdefghijkl")
        assert await notices.unseen() == []

    run(scenario())


def test_old_notifications_are_removed_by_the_first_broker_that_finds_them():
    async def scenario():
        clock = Clock()
        one, two = await cluster(lambda: clock)
        feeds = [
            registry.Notices(store, CONFIG_CHANGES, CONFIG_CHANGE_PREFIX, on_change=lambda: None)
            for store in (one, two)
        ]
        for ms in (10, 20):
            clock.ms = ms
            await registry.write_config(one, topic_entity(f"t{ms}"), {}, None)
        for feed in feeds:
            assert len(await feed.unseen()) == 2
        for feed in feeds:
            await feed.drop(before_ms=20)

        assert await one.children(CONFIG_CHANGES) == ["config_change_0000000001"]
        # A number is never used again, so the next one is not taken for one already read.
        await registry.write_config(one, topic_entity("t30"), {}, None)
        assert [path[-2:] for path, _ in await feeds[1].unseen()] == ["02"]

    run(scenario())


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
        await registry.write_config(store, topic_entity("t"), {}, None, guard=token)
        await registry.next_producer_id_block(store, 1, guard=token)
        await store.set_data(layout.CONTROLLER_EPOCH, b"2")

        with pytest.raises(MultiError, match="/controller_epoch has version 1, not 0"):
            await registry.write_config(store, topic_entity("t"), {"a": "1"}, 0, guard=token)
        with pytest.raises(MultiError, match="/controller_epoch has version 1, not 0"):
            await registry.next_producer_id_block(store, 1, guard=token)
        assert await registry.read_config(store, topic_entity("t")) == ({}, 0)
        assert (await store.exists(layout.PRODUCER_ID_BLOCK)).version == 1

    run(scenario())


def test_a_corrupt_configuration_is_named():
    async def scenario():
        store, _ = await cluster()
        await store.create("/config/topics/t", b"[]")
        with pytest.raises(CorruptNodeError, match="znode /config/topics/t: the data is"):
            await registry.read_config(store, topic_entity("t"))

    run(scenario())
