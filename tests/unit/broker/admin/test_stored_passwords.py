"""Passwords of a broker's options that were stored with another secret."""

import asyncio
from types import SimpleNamespace

import pytest

from odradek.broker.admin.stored_passwords import StoredPasswords, reencode
from odradek.config.broker import BrokerConfig
from odradek.coord.layout_config import broker_entity, decode_config, encode_config
from odradek.coord.memory import MemoryStore, MemoryTree
from odradek.coord.sqlite import SqliteStore

pytest.importorskip("cryptography")

NAME = "listener.name.ssl.ssl.key.password"
PATH = broker_entity(1).path
CLOCK = SimpleNamespace(wall_ms=lambda: 0, monotonic_ms=lambda: 0)


def passwords(secret, former=None):
    options = {"password.encoder.secret": secret}
    if former is not None:
        options["password.encoder.old.secret"] = former
    static = {"log.dirs": "/tmp/none", **options}
    return StoredPasswords(BrokerConfig(static, host_name="localhost"))


@pytest.fixture(params=["memory", "sqlite"])
def play(request, tmp_path):
    async def run(story):
        store = (
            MemoryStore(MemoryTree(wall_ms=CLOCK.wall_ms))
            if request.param == "memory"
            else SqliteStore(str(tmp_path / "store.db"), clock=CLOCK)
        )
        await store.open()
        try:
            await store.create(PATH.rpartition("/")[0], make_parents=True)
            await story(store)
        finally:
            await store.close()

    return lambda story: asyncio.run(asyncio.wait_for(run(story), 60))


async def stored(store):
    (node,) = await store.get_many([PATH])
    return decode_config(PATH, node[0]), node[1].version


def test_a_start_with_both_secrets_stores_with_the_present_one(play):
    async def story(store):
        options = {NAME: "key-secret", "background.threads": "3"}
        await store.create(PATH, encode_config(passwords("old").encoded(options, {})))
        await reencode(store, 1, passwords("new", "old"))
        found, version = await stored(store)
        assert passwords("new").decoded(found) == options
        await reencode(store, 1, passwords("new", "old"))
        assert await stored(store) == (found, version), "written once"

    play(story)


def test_a_password_of_a_third_secret_and_a_broker_without_options_stay(play):
    async def story(store):
        await reencode(store, 1, passwords("new", "old"))
        assert await store.get_many([PATH]) == [None]
        data = encode_config(passwords("third").encoded({NAME: "key-secret"}, {}))
        await store.create(PATH, data)
        await reencode(store, 1, passwords("new", "old"))
        (node,) = await store.get_many([PATH])
        assert node[0] == data

    play(story)


def test_a_former_secret_is_needed_only_with_a_present_one():
    assert passwords("new", "old").has_former_secret
    assert not passwords("new").has_former_secret
