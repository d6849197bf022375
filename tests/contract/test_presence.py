"""Presence: who is woken, who is taken for dead, and who is not."""

import asyncio

from odradek.coord.presence import Presence
from odradek.sim.world.loop import run


class Heard:
    def __init__(self) -> None:
        self.woken = asyncio.Event()
        self.died = []


def presence(tmp_path, session, timeout_ms=1_000):
    heard = Heard()
    made = Presence(
        str(tmp_path / "store"), look_every_ms=250, woken=heard.woken.set, died=heard.died.append
    )
    made.claim(session, timeout_ms=timeout_ms)
    return made, heard


def test_who_arrives_is_woken_for_it_may_have_missed_what_was_written_meanwhile(tmp_path):
    async def scenario():
        one, _ = presence(tmp_path, 1)
        two, heard = presence(tmp_path, 2)
        await one.begin()
        await two.begin()
        two.greet(1)
        await asyncio.wait_for(heard.woken.wait(), 10)
        one.end()
        two.end()

    asyncio.run(scenario())


def test_the_silent_are_taken_for_dead_after_their_time_out(tmp_path):
    async def scenario():
        silent, _ = presence(tmp_path, 1)  # connections to it wait for ever
        listener, heard = presence(tmp_path, 2)
        await listener.begin()
        for _ in range(5):
            listener.tick({1: 1_000, 2: 1_000})
            await asyncio.sleep(0.25)
        assert heard.died == []
        listener.tick({1: 1_000, 2: 1_000})
        assert heard.died == [1]
        listener.end()
        silent.end()

    run(scenario())


def test_a_listener_that_slept_blames_nobody(tmp_path):
    async def scenario():
        silent, _ = presence(tmp_path, 1)
        listener, heard = presence(tmp_path, 2)
        await listener.begin()
        listener.tick({1: 1_000, 2: 1_000})
        await asyncio.sleep(3_600)
        listener.tick({1: 1_000, 2: 1_000})
        assert heard.died == []
        for _ in range(5):
            await asyncio.sleep(0.25)
            listener.tick({1: 1_000, 2: 1_000})
        assert heard.died == [1]
        listener.end()
        silent.end()

    run(scenario())


def test_a_beat_is_sent_in_time(tmp_path):
    async def scenario():
        one, heard_by_one = presence(tmp_path, 1)
        two, heard_by_two = presence(tmp_path, 2)
        await one.begin()
        await two.begin()
        two.greet(1)
        for _ in range(40):
            one.tick({1: 1_000, 2: 1_000})
            two.tick({1: 1_000, 2: 1_000})
            await asyncio.sleep(0.25)
        assert (heard_by_one.died, heard_by_two.died) == ([], [])
        one.end()
        two.end()

    run(scenario())
