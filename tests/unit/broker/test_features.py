"""Transactions of version 2 are offered while every registered broker is ours, and no longer."""

import asyncio

import pytest
from tests.unit.broker.live import play

from odradek.coord import layout
from odradek.coord.memory import MemoryStore
from odradek.wire.messages.api_versions import ApiVersionsRequest

VERSION_2 = {0: 12, 26: 5, 28: 5}
VERSION_1 = {0: 11, 26: 4, 28: 4}


async def told(live, version=4):
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
        assert await told(live) == (VERSION_2, 2, 1)
        assert await told(live, 3) == (VERSION_2, 2, 1)
        assert (await told(live, 2))[0] == VERSION_2
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
        assert await told(live) == (VERSION_1, 1, 2)
        assert await stored(live) == layout.Features(epoch=2, transaction_version=1)
        await other.store.close()
        await level(live, 2)
        assert await told(live) == (VERSION_2, 2, 3)

    play(story)


def test_a_broker_of_ours_changes_nothing():
    async def story(live):
        await level(live, 2)
        other = Other(live)
        await other.store.open()
        await other.mark()
        await other.store.create(layout.broker_path(7), b"{}", ephemeral=True)
        await asyncio.sleep(1)
        assert await told(live) == (VERSION_2, 2, 1)

    play(story)


def test_a_mark_of_another_session_says_nothing():
    async def story(live):
        await level(live, 2)
        former, other = Other(live), Other(live)
        await former.store.open()
        await former.mark()
        await other.register()
        await level(live, 1)

    play(story)


def test_who_is_not_controller_believes_the_level_only_if_all_are_ours():
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
        assert await told(live) == (VERSION_1, 1, 0)

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
        assert "taken for the lowest" in caplog.text

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
