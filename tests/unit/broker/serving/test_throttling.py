"""A client that exceeds a quota gets a throttle time and is muted for as long (KIP-219)."""

import asyncio

import pytest
from tests.unit.broker.every_api import EXAMPLES, error_codes
from tests.unit.broker.live import fetch, fetched, play, produce, produced

from odradek.broker.serving.quotas import BYTES_MAX, NO_QUOTA
from odradek.model.errors import ErrorCode
from odradek.wire.api_keys import APIS

T0 = ("t", 0)
# Followers are exempt from the quotas of clients.
CLIENTS = [example for example in EXAMPLES if str(example) != "Fetch of a follower"]
BY_NAME = 12
THROTTLE_MS = 3_000


class Strict:
    """Throttles every client, for a given time."""

    def __init__(self, *throttle_ms):
        self.throttle_ms = list(throttle_ms) or [THROTTLE_MS]
        self.counted = []

    def _throttle(self, *what):
        self.counted.append(what)
        return self.throttle_ms.pop(0) if len(self.throttle_ms) > 1 else self.throttle_ms[0]

    def produced(self, session, size_bytes):
        return self._throttle("produced", size_bytes)

    def fetched(self, session, size_bytes):
        return self._throttle("fetched", size_bytes)

    def requested(self, session, api_key):
        return self._throttle("requested", api_key)

    def fetch_bytes_max(self, session):
        return BYTES_MAX

    def limits(self, session, api_key):
        return []

    def exempt(self, session):
        """No time is counted."""

    def mutations(self, session, *, strict):
        return NO_QUOTA


async def strict(live, *throttle_ms) -> Strict:
    await live.topic("t", 2)
    await live.topic("other")
    live.append(b"a")
    live.quotas.chosen = Strict(*throttle_ms)
    return live.quotas.chosen


@pytest.mark.parametrize("example", CLIENTS, ids=str)
def test_every_api_answers_the_throttle_time_and_mutes_the_connection(example):
    async def story(live):
        await strict(live, THROTTLE_MS, 0)
        peer, version = live.peer(), example.last
        answer = await peer.ask(example.request(live, version), version)
        muted_at = live.loop.time()

        # The requests between brokers have no such field.
        assert getattr(answer, "throttle_time_ms", THROTTLE_MS) == THROTTLE_MS
        assert error_codes(answer) == {example.allowed}
        next_one = peer.send(produce(live.batch(b"b"), "other"))
        assert not next_one.done()
        assert live.log("other").leo == 0
        await next_one
        assert live.loop.time() - muted_at == pytest.approx(THROTTLE_MS / 1000, abs=0.01)

    play(story)


@pytest.mark.parametrize("example", CLIENTS, ids=str)
def test_versions_without_the_field_are_muted_all_the_same(example):
    async def story(live):
        await strict(live, THROTTLE_MS, 0)
        peer, version = live.peer(), APIS[example.api].served.first
        await peer.ask(example.request(live, version), version)

        assert peer.connection._muted
        await asyncio.sleep(THROTTLE_MS / 1000 + 0.01)
        assert not peer.connection._muted

    play(story)


def test_what_was_written_and_read_is_counted_in_bytes():
    async def story(live):
        quotas = await strict(live, 0)
        peer = live.peer()
        batch = live.batch(b"x" * 100)
        await peer.ask(produce({T0: batch, ("t", 1): batch, ("absent", 0): batch}))
        await peer.ask(fetch({T0: 1}), BY_NAME)

        assert quotas.counted == [("produced", 2 * len(batch)), ("fetched", len(batch))]

    play(story)


def test_acks_0_is_counted_and_mutes_as_well():
    async def story(live):
        quotas = await strict(live, THROTTLE_MS, 0)
        peer = live.peer()
        batch = live.batch(b"b")
        peer.send(produce(batch, acks=0), answered=False)

        assert quotas.counted == [("produced", len(batch))]
        behind = peer.send(produce(live.batch(b"c")))
        assert not behind.done()
        assert produced(await behind) == {T0: 2}

    play(story)


def test_what_was_sent_before_is_answered_although_the_channel_is_muted():
    async def story(live):
        await live.order()
        live.quotas.chosen = Strict(0, THROTTLE_MS, 0)
        peer = live.peer()
        waiting = peer.send(produce(live.batch(b"a"), acks=-1, timeout_ms=100))
        at_once = peer.send(produce(live.batch(b"b"), acks=1))
        started = live.loop.time()

        assert produced(await waiting) == {T0: ErrorCode.REQUEST_TIMED_OUT}
        assert produced(await at_once) == {T0: 1}
        assert live.loop.time() - started < 0.12

    play(story)


def test_a_shorter_wait_does_not_end_a_longer_one():
    async def story(live):
        await live.order()
        live.quotas.chosen = Strict(THROTTLE_MS, 100, 0)
        peer = live.peer()
        # Both wait at the same time, so both are answered before the connection is muted.
        answers = [peer.send(produce(live.batch(b"a"), acks=-1, timeout_ms=50)) for _ in range(2)]
        for answer in answers:
            await answer
        muted_at = live.loop.time()
        await peer.ask(produce(live.batch(b"a")))

        assert live.loop.time() - muted_at == pytest.approx(THROTTLE_MS / 1000, abs=0.01)

    play(story)


def test_others_are_not_held_up():
    async def story(live):
        await strict(live, THROTTLE_MS, 0)
        await live.peer().ask(fetch({T0: 0}), BY_NAME)
        other = live.peer().send(fetch({T0: 0}), BY_NAME)

        assert fetched(other.result()) == {T0: [b"a"]}

    play(story)


def test_a_client_that_disconnects_while_muted_is_dropped():
    async def story(live):
        await strict(live)
        peer = live.peer()
        await peer.ask(produce(live.batch(b"a")))
        peer.hang_up()
        await asyncio.sleep(THROTTLE_MS / 1000 + 1)

        assert live.broker.server.connection_count == 2, "those that made the topics"

    play(story)
