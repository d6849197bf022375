"""Transaction version 2 is offered while every registered broker is an Odradek broker."""

import asyncio

import pytest
from tests.unit.broker.live import play

from odradek.broker.cluster import features
from odradek.broker.cluster.features import FeatureShell
from odradek.coord import layout
from odradek.coord.memory import MemoryStore, MemoryTree
from odradek.sim.world.loop import run
from odradek.wire.messages.api_versions import ApiVersionsRequest

VERSION_2 = {0: 12, 26: 5, 28: 5}
VERSION_1 = {0: 11, 26: 4, 28: 4}


async def offered(live, version=4):
    """The last versions of the three APIs, the level, and its epoch."""
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    response = await live.peer().ask(request, version)
    last = {api.api_key: api.max_version for api in response.api_keys if api.api_key in VERSION_1}
    levels = {f.name: f.max_version_level for f in response.finalized_features}
    return last, levels.get("transaction.version", 1), response.finalized_features_epoch


async def stored(live):
    data, _ = await live.store.get(layout.ODRADEK_FEATURES)
    return layout.decode_features(data)


async def level(live, wanted):
    await live.until(lambda: live.broker.features.present.transaction_version == wanted)


class Other:
    """Another broker in the store: a session, a registration, and perhaps a mark."""

    def __init__(self, live) -> None:
        self.store = MemoryStore(live.tree)

    async def register(self, *, marked=False, broker_id=7):
        await self.store.open()
        await self.store.create(layout.broker_path(broker_id), b"{}", ephemeral=True)
        if marked:
            await self.mark(broker_id)

    async def mark(self, broker_id=7):
        await self.store.create(layout.odradek_broker_path(broker_id), ephemeral=True)


def test_a_cluster_of_ours_offers_version_2():
    async def story(live):
        await level(live, 2)
        assert await offered(live) == (VERSION_2, 2, 1)
        assert await offered(live, 3) == (VERSION_2, 2, 1)
        assert (await offered(live, 2))[0] == VERSION_2
        assert await stored(live) == layout.Features(epoch=1, transaction_version=2)
        data, _ = await live.store.get(layout.FEATURE)
        assert layout.decode_feature(data).features == {}

    play(story)


def test_a_broker_of_another_kind_takes_it_back_and_its_end_brings_it_again():
    async def story(live):
        await level(live, 2)
        other = Other(live)
        await other.register()
        await level(live, 1)
        assert await offered(live) == (VERSION_1, 1, 2)
        assert await stored(live) == layout.Features(epoch=2, transaction_version=1)
        await other.store.close()
        await level(live, 2)
        assert await offered(live) == (VERSION_2, 2, 3)

    play(story)


def test_a_broker_of_ours_changes_nothing():
    async def story(live):
        await level(live, 2)
        other = Other(live)
        await other.store.open()
        await other.mark()
        await other.store.create(layout.broker_path(7), b"{}", ephemeral=True)
        await asyncio.sleep(1)
        assert await offered(live) == (VERSION_2, 2, 1)

    play(story)


def test_a_mark_of_another_session_does_not_count():
    async def story(live):
        await level(live, 2)
        former, other = Other(live), Other(live)
        await former.store.open()
        await former.mark()
        await other.register()
        await level(live, 1)

    play(story)


def test_a_broker_uses_the_stored_level_only_if_all_brokers_have_a_mark():
    async def story(live):
        await level(live, 2)
        await live.broker.controller.stop()
        other = Other(live)
        await other.register()
        await level(live, 1)
        assert (await stored(live)).transaction_version == 2
        await other.store.close()
        await level(live, 2)

    play(story)


def test_it_can_be_held_back():
    async def story(live):
        await asyncio.sleep(1)
        assert await offered(live) == (VERSION_1, 1, 1)

    play(story, odradek_transaction_version_max=1)


def test_a_lower_limit_lowers_what_is_stored():
    async def story(live):
        await level(live, 2)
        await live.restart(odradek_transaction_version_max=1)
        await level(live, 1)
        assert await stored(live) == layout.Features(epoch=2, transaction_version=1)

    play(story)


@pytest.mark.parametrize("data", [None, b"", b"{}", b'{"epoch": "x", "features": {}}'])
def test_damage_is_taken_for_the_lowest_and_written_over(data, caplog):
    async def story(live):
        await level(live, 2)
        await live.store.set_data(layout.ODRADEK_FEATURES, data)
        await asyncio.sleep(1)
        await level(live, 2)
        assert await stored(live) == layout.Features(epoch=1, transaction_version=2)
        assert "the lowest level is used" in caplog.text

    play(story)


def test_a_new_session_looks_again():
    async def story(live):
        await level(live, 2)
        before = live.store.session_id
        live.tree.expire(before)
        await live.until(lambda: live.store.session_id not in {0, before})
        other = Other(live)
        await other.register()
        await level(live, 1)

    play(story)


# --------------------------------------------------- registrations that change while they are read


class Meddled(MemoryStore):
    """A store in which something happens right after certain nodes are read."""

    def __init__(self, tree) -> None:
        super().__init__(tree)
        self.after = {}

    async def get_many(self, paths):
        nodes = await super().get_many(paths)
        meddle = self.after.get(tuple(paths))
        if meddle is not None:
            await meddle()
        return nodes


class Cluster:
    """Brokers in a store with level 2, and a shell that reviews them."""

    def __init__(self):
        self.tree = MemoryTree()
        self.store = Meddled(self.tree)
        self.shell = FeatureShell(self.store, guard=lambda: None, transaction_version_max=lambda: 2)
        self.brokers = {}

    async def begin(self, *brokers):
        await self.store.open()
        for path in (layout.BROKER_IDS, layout.ODRADEK_BROKERS):
            await self.store.create(path, make_parents=True)
        level = layout.encode_features(layout.Features(epoch=1, transaction_version=2))
        await self.store.create(layout.ODRADEK_FEATURES, level)
        for broker in brokers:
            await self.join(broker)

    async def join(self, broker, *, marked=True):
        store = self.brokers[broker] = MemoryStore(self.tree)
        await store.open()
        await store.create(layout.broker_path(broker), b"{}", ephemeral=True)
        if marked:
            await store.create(layout.odradek_broker_path(broker), ephemeral=True)

    async def leave(self, broker):
        await self.brokers.pop(broker).close()

    def once_read(self, path, *brokers, meddle):
        """After the first read of these nodes of these brokers."""
        paths = tuple(map(path, brokers))

        async def once():
            del self.store.after[paths]
            await meddle()

        self.store.after[paths] = once

    async def level(self):
        await self.shell.learn()
        return self.shell.present.transaction_version


def look(story):
    async def main():
        await story(Cluster())

    run(main())


async def one_leaves_while_it_is_looked_at(cluster):
    await cluster.begin(0, 1)
    cluster.once_read(layout.broker_path, 0, 1, meddle=lambda: cluster.leave(1))
    return await cluster.level()


def test_a_broker_that_stops_during_the_review_does_not_count_as_foreign():
    async def story(cluster):
        assert await one_leaves_while_it_is_looked_at(cluster) == 2

    look(story)


def test_without_a_second_look_at_the_registrations_it_would_be(monkeypatch):
    monkeypatch.setattr(features, "is_one_picture", lambda before, after: True)

    async def story(cluster):
        assert await one_leaves_while_it_is_looked_at(cluster) == 1

    look(story)


@pytest.mark.parametrize("path", [layout.broker_path, layout.odradek_broker_path])
def test_neither_is_one_that_comes_or_is_restarted(path):
    async def story(cluster):
        await cluster.begin(0, 1)

        async def restart():
            await cluster.leave(1)
            await cluster.join(1)
            await cluster.join(2)

        cluster.once_read(path, 0, 1, meddle=restart)
        assert await cluster.level() == 2

    look(story)


@pytest.mark.parametrize("path", [layout.broker_path, layout.odradek_broker_path])
def test_a_foreign_broker_that_registers_during_the_review_counts(path):
    async def story(cluster):
        await cluster.begin(0, 1)

        async def restart_as_another():
            await cluster.leave(1)
            await cluster.join(1, marked=False)

        cluster.once_read(path, 0, 1, meddle=restart_as_another)
        assert await cluster.level() == 1

    look(story)


def test_a_level_is_kept_while_brokers_come_and_go_too_fast():
    async def story(cluster):
        await cluster.begin(0, 1)
        assert await cluster.level() == 2
        restarts = 0

        async def restart():
            nonlocal restarts
            restarts += 1
            await cluster.leave(1)
            await cluster.join(1)
            if restarts == 3 * features.LOOKS:
                cluster.store.after.clear()

        cluster.store.after[layout.broker_path(0), layout.broker_path(1)] = restart
        seen = asyncio.create_task(cluster.level())
        while not seen.done():
            assert cluster.shell.present.transaction_version == 2
            await asyncio.sleep(0.001)
        assert await seen == 2
        assert restarts == 3 * features.LOOKS

    look(story)


def test_a_broker_alone_in_the_store_is_one_of_ours():
    async def story(cluster):
        await cluster.begin()
        assert await cluster.level() == 2

    look(story)


# ------------------------------------------------------------------------- brokers that start


def test_a_client_that_comes_too_early_is_answered_when_the_level_is_known():
    async def story(live):
        await level(live, 2)
        await live.broker.stop()
        other = MemoryStore(live.tree)
        await other.open()
        await other.delete(layout.ODRADEK_FEATURES)
        controller = layout.encode_controller(layout.ControllerNode(7, 0))
        await other.create(layout.CONTROLLER, controller, ephemeral=True)
        live.broker = live.make()
        starting = asyncio.create_task(live.start())
        await live.until(lambda: 9092 in live.network.listening)
        answered = asyncio.create_task(offered(live))
        await asyncio.sleep(2)
        assert not answered.done()
        await other.close()
        assert await answered == (VERSION_2, 2, 1)
        await starting

    play(story)


def test_while_nothing_is_stored_the_wait_has_an_end():
    async def story(cluster):
        await cluster.begin(0)
        await cluster.store.delete(layout.ODRADEK_FEATURES)
        assert await cluster.level() == 1
        assert not cluster.shell.is_known
        await cluster.shell.wait_known(100)
        assert not cluster.shell.is_known
        await cluster.join(1, marked=False)
        assert await cluster.level() == 1
        assert cluster.shell.is_known

    look(story)
