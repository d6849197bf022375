"""Presence: which sessions are woken, which are reported as ended, and which are not."""

import asyncio

from odradek.coord.presence import Presence
from odradek.sim.world.loop import run


class Calls:
    def __init__(self) -> None:
        self.woken = asyncio.Event()
        self.died = []


def presence(tmp_path, session, timeout_ms=1_000):
    calls = Calls()
    made = Presence(
        str(tmp_path / "store"), look_every_ms=250, woken=calls.woken.set, died=calls.died.append
    )
    made.claim(session, timeout_ms=timeout_ms)
    return made, calls


def test_a_session_that_connects_is_woken_because_it_may_have_missed_changes(tmp_path):
    async def scenario():
        one, _ = presence(tmp_path, 1)
        two, calls = presence(tmp_path, 2)
        one.begin()
        two.begin()
        two.connect_to(1)
        await asyncio.wait_for(calls.woken.wait(), 10)
        one.end()
        two.end()

    asyncio.run(scenario())


def test_a_session_that_sends_nothing_is_reported_after_its_time_out(tmp_path):
    async def scenario():
        silent, _ = presence(tmp_path, 1)  # connections to it wait for ever
        listener, calls = presence(tmp_path, 2)
        listener.begin()
        for _ in range(5):
            listener.tick({1: 1_000, 2: 1_000})
            await asyncio.sleep(0.25)
        assert calls.died == []
        listener.tick({1: 1_000, 2: 1_000})
        assert calls.died == [1]
        listener.end()
        silent.end()

    run(scenario())


def test_a_listener_that_was_suspended_reports_no_session(tmp_path):
    async def scenario():
        silent, _ = presence(tmp_path, 1)
        listener, calls = presence(tmp_path, 2)
        listener.begin()
        listener.tick({1: 1_000, 2: 1_000})
        await asyncio.sleep(3_600)
        listener.tick({1: 1_000, 2: 1_000})
        assert calls.died == []
        for _ in range(5):
            await asyncio.sleep(0.25)
            listener.tick({1: 1_000, 2: 1_000})
        assert calls.died == [1]
        listener.end()
        silent.end()

    run(scenario())


def test_a_heartbeat_is_sent_in_time(tmp_path):
    async def scenario():
        one, heard_by_one = presence(tmp_path, 1)
        two, heard_by_two = presence(tmp_path, 2)
        one.begin()
        two.begin()
        two.connect_to(1)
        for _ in range(40):
            one.tick({1: 1_000, 2: 1_000})
            two.tick({1: 1_000, 2: 1_000})
            await asyncio.sleep(0.25)
        assert (heard_by_one.died, heard_by_two.died) == ([], [])
        one.end()
        two.end()

    run(scenario())
