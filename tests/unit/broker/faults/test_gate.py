"""A broker that is cut off from its coordination store, frozen, or whose session is expired."""

import asyncio

import pytest

import odradek.sim.world.loop as sim
from odradek.broker.faults.gate import FaultError, StoreGate
from odradek.coord.memory import MemoryStore, MemoryTree
from odradek.coord.store import ConnectionLostError, SessionExpiredError


class Gated:
    """A gate before a store with an open session, and another broker's store."""

    @classmethod
    async def begin(cls):
        self = cls()
        tree = MemoryTree()
        self.other, self.events = MemoryStore(tree), []
        self.gate = StoreGate(MemoryStore(tree), session_timeout_ms=1_000)
        self.gate.on_session_lost = lambda: self.events.append("lost")
        await self.other.open()
        await self.gate.open()
        await self.gate.create("/mine", b"", ephemeral=True)
        return self

    def seen(self):
        self.events.append("changed")


@pytest.fixture
def play():
    def run(story):
        async def main():
            await story(await Gated.begin())

        sim.run(main())

    return run


def test_requests_fail_and_watches_wait_while_it_is_cut_off(play):
    async def story(at):
        await at.gate.exists("/there", at.seen)
        session = at.gate.session_id
        at.gate.cut()
        await at.other.create("/there", b"")
        with pytest.raises(ConnectionLostError):
            await at.gate.get("/there")
        assert at.events == []

        at.gate.restore()
        assert at.events == ["changed"]
        assert (await at.gate.get("/there"))[0] == b""
        assert at.gate.session_id == session

    play(story)


def test_the_session_expires_after_its_time_out_and_the_broker_is_notified_later(play):
    async def story(at):
        session = at.gate.session_id
        at.gate.cut()
        await asyncio.sleep(0.9)
        assert await at.other.exists("/mine") is not None
        await asyncio.sleep(0.2)
        assert await at.other.exists("/mine") is None
        assert (at.gate.session_id, at.events) == (session, [])

        at.gate.restore()
        assert at.events == ["lost"]
        with pytest.raises(SessionExpiredError):
            await at.gate.get("/mine")
        await at.gate.open()
        assert at.gate.session_id not in (0, session)

    play(story)


def test_requests_wait_while_it_is_frozen(play):
    async def story(at):
        at.gate.freeze()
        asked = asyncio.create_task(at.gate.exists("/mine"))
        await asyncio.sleep(0.5)
        assert not asked.done()

        at.gate.thaw()
        assert await asked is not None
        await asyncio.sleep(2)  # the time-out was not reached
        assert await at.other.exists("/mine") is not None

    play(story)


def test_a_watch_that_is_set_twice_fires_once(play):
    async def story(at):
        await at.gate.exists("/there", at.seen)
        await at.gate.exists("/there", at.seen)
        await at.other.create("/there", b"")
        await asyncio.sleep(0.1)
        assert at.events == ["changed"]

    play(story)


def test_a_session_is_expired_on_request(play):
    async def story(at):
        at.gate.expire_session()
        await asyncio.sleep(0.1)
        assert at.events == ["lost"]
        assert await at.other.exists("/mine") is None
        with pytest.raises(FaultError, match="no session"):
            at.gate.expire_session()

    play(story)
