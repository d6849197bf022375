"""All brokers have the delegation tokens that are in the store."""

import asyncio
import contextlib
from itertools import count

import pytest

from odradek.broker.admin.delegation_tokens import DelegationTokens
from odradek.broker.cluster.store_update import NOTICE_AGE_MS_MAX
from odradek.coord.layout_security import TOKEN_CHANGES, TOKENS, decode_token, token_path
from odradek.coord.memory import MemoryStore, MemoryTree
from odradek.model.errors import ApiError, ErrorCode
from odradek.security.delegation_tokens import TokenOptions, WantedToken, hmac_of, scram_credential
from odradek.sim.world.loop import run

OWNER, RENEWER = "User:owner", "User:renewer"
SECRET = "s3cret"
SHA_256 = "SCRAM-SHA-256"


class Clock:
    ms = 1_000_000

    def wall_ms(self):
        return self.ms

    def monotonic_ms(self):
        return self.ms


class Node:
    """The delegation tokens of one broker."""

    def __init__(self, tree, clock, ids):
        self.tree = tree
        self.store = MemoryStore(tree)
        self.is_controller = True
        self.tokens = DelegationTokens(
            self.store,
            clock,
            options=TokenOptions(secret=SECRET, lifetime_ms=7_000, renewal_ms=1_000),
            draw_id=lambda: f"id{next(ids)}",
            is_controller=lambda: self.is_controller,
        )

    async def start(self):
        await self.store.open()
        await self.tokens.load()
        self.task = asyncio.get_running_loop().create_task(self.tokens.run())

    async def create(self, **fields):
        return await self.tokens.create(WantedToken(OWNER, OWNER, (RENEWER,))._replace(**fields))

    def expires_ms(self, token_id):
        found = self.tokens.credential(SHA_256, token_id)
        return found and found.expires_ms

    async def until_it_expires_at(self, token_id, expires_ms):
        for _ in range(1_000):
            if self.expires_ms(token_id) == expires_ms:
                return
            await asyncio.sleep(0.001)
        raise AssertionError(f"{token_id} expires at {self.expires_ms(token_id)}")


def play_nodes(story, *, prepare=None):
    async def main():
        clock = Clock()
        tree = MemoryTree(clock.wall_ms)
        ids = count(1)
        if prepare is not None:
            store = MemoryStore(tree)
            await store.open()
            await prepare(store)
        nodes = [Node(tree, clock, ids), Node(tree, clock, ids)]
        for node in nodes:
            await node.start()
        try:
            await story(*nodes, clock)
        finally:
            for node in nodes:
                node.task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await node.task

    run(main())


def mac(token_id):
    return hmac_of(SECRET, token_id)


async def code_of(change):
    with pytest.raises(ApiError) as caught:
        await change
    return caught.value.code


def test_a_change_is_in_force_where_it_was_made_at_once_and_elsewhere_soon():
    async def story(one, other, clock):
        token = await one.create()
        assert one.expires_ms("id1") == clock.ms + 1_000
        await other.until_it_expires_at("id1", clock.ms + 1_000)
        assert other.tokens.credential(SHA_256, "id1").owner == OWNER
        assert await other.tokens.renew(mac("id1"), RENEWER, 5_000) == clock.ms + 5_000
        await one.until_it_expires_at("id1", clock.ms + 5_000)
        assert await one.tokens.expire(mac("id1"), OWNER, 10) == clock.ms + 10
        await other.until_it_expires_at("id1", clock.ms + 10)
        assert await other.tokens.expire(mac("id1"), OWNER, -1) == clock.ms
        assert other.expires_ms("id1") is None
        await one.until_it_expires_at("id1", None)
        assert await code_of(one.tokens.renew(mac("id1"), OWNER, 1)) == (
            ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        )
        assert one.tokens.hmac_of(token) == mac("id1")

    play_nodes(story)


def test_it_is_stored_where_kafka_looks_for_it():
    async def story(one, _, clock):
        token = await one.create()
        data, _ = await one.store.get("/delegation_token/tokens/id1")
        assert decode_token(token_path(token.token_id), data) == token
        (change,) = await one.store.children("/delegation_token/token_changes")
        assert change == "token_change_0000000000"
        assert (await one.store.get(f"{TOKEN_CHANGES}/{change}"))[0] == b"id1"

    play_nodes(story)


def test_a_change_is_derived_from_the_stored_token():
    async def story(one, other, clock):
        await one.create()
        await other.until_it_expires_at("id1", clock.ms + 1_000)
        other.task.cancel()  # it follows no changes from here on
        await one.tokens.expire(mac("id1"), OWNER, 1)
        clock.ms += 2
        assert await code_of(other.tokens.renew(mac("id1"), OWNER, -1)) == (
            ErrorCode.DELEGATION_TOKEN_EXPIRED
        )
        await one.tokens.expire(mac("id1"), OWNER, -1)
        assert await code_of(other.tokens.renew(mac("id1"), OWNER, -1)) == (
            ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        )

    play_nodes(story)


def test_a_token_of_another_secret_is_not_found():
    async def story(one, *_):
        await one.create()
        change = one.tokens.expire(hmac_of("another", "id1"), OWNER, -1)
        assert await code_of(change) == ErrorCode.DELEGATION_TOKEN_NOT_FOUND

    play_nodes(story)


def test_the_controller_removes_tokens_that_have_expired():
    async def story(one, other, clock):
        other.is_controller = False
        await one.create()
        await one.create(lifetime_ms=500)
        await other.until_it_expires_at("id2", clock.ms + 500)
        clock.ms += 501
        await other.tokens.remove_expired()
        assert await one.store.children(TOKENS) == ["id1", "id2"]
        await one.tokens.remove_expired()
        assert await one.store.children(TOKENS) == ["id1"]
        await other.until_it_expires_at("id2", None)
        assert [token.token_id for token in other.tokens.all()] == ["id1"]

    play_nodes(story)


def test_a_token_that_was_renewed_elsewhere_is_not_removed():
    async def story(one, other, clock):
        await one.create()
        await other.until_it_expires_at("id1", clock.ms + 1_000)
        one.task.cancel()  # it follows no changes from here on
        await other.tokens.renew(mac("id1"), OWNER, 5_000)
        clock.ms += 1_001
        await one.tokens.remove_expired()
        assert await one.store.children(TOKENS) == ["id1"]
        assert one.expires_ms("id1") == clock.ms + 3_999

    play_nodes(story)


def test_a_token_that_was_removed_elsewhere_does_not_stop_the_removal_of_others():
    async def story(one, other, clock):
        await one.create()
        await one.create()
        await other.until_it_expires_at("id2", clock.ms + 1_000)
        one.task.cancel()
        await other.tokens.expire(mac("id1"), OWNER, -1)
        clock.ms += 1_001
        await one.tokens.remove_expired()
        assert await one.store.children(TOKENS) == []

    play_nodes(story)


def test_tokens_from_before_the_start_are_found():
    async def prepare(store):
        node = (
            b'{"version":1,"owner":"User%3Ao","renewers":[],"issueTimestamp":1,'
            b'"maxTimestamp":3,"expiryTimestamp":2,"tokenId":"old"}'
        )
        await store.create(token_path("old"), node, make_parents=True)
        await store.create(token_path("bad"), b"{", make_parents=True)

    async def story(one, *_):
        assert one.expires_ms("old") == 2
        assert one.expires_ms("bad") is None

    play_nodes(story, prepare=prepare)


def test_after_a_lost_session_everything_is_read_again():
    async def story(one, other, clock):
        await one.create()
        await other.until_it_expires_at("id1", clock.ms + 1_000)
        other.tree.expire(other.store.session_id)
        await one.tokens.expire(mac("id1"), OWNER, -1)
        await one.create()
        await other.store.open()
        other.tokens.session_opened()
        await other.until_it_expires_at("id2", clock.ms + 1_000)
        assert other.expires_ms("id1") is None
        await one.create()
        await other.until_it_expires_at("id3", clock.ms + 1_000)

    play_nodes(story)


def test_a_notification_that_names_no_token_stops_no_other():
    async def story(one, other, clock):
        for data in (None, b"", b"../x", b"\xff", b"nobody"):
            await one.store.create(f"{TOKEN_CHANGES}/token_change_", data, sequential=True)
        await one.create()
        await other.until_it_expires_at("id1", clock.ms + 1_000)

    play_nodes(story)


def test_old_notifications_are_deleted():
    async def story(one, other, clock):
        await one.create()
        clock.ms += NOTICE_AGE_MS_MAX + 1
        await one.create()
        await other.until_it_expires_at("id2", clock.ms + 1_000)
        await asyncio.sleep(0.1)
        assert await one.store.children(TOKEN_CHANGES) == ["token_change_0000000001"]

    play_nodes(story)


def test_a_credential_is_derived_once():
    async def story(one, *_):
        await one.create()
        first = one.tokens.credential(SHA_256, "id1").credential
        assert first == scram_credential(SECRET, SHA_256, "id1")
        assert one.tokens.credential(SHA_256, "id1").credential is first
        other = one.tokens.credential("SCRAM-SHA-512", "id1").credential
        assert other == scram_credential(SECRET, "SCRAM-SHA-512", "id1")
        await one.tokens.expire(mac("id1"), OWNER, -1)
        assert one.tokens.credential(SHA_256, "id1") is None

    play_nodes(story)
