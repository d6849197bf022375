"""Facts are collected while somebody looks."""

import asyncio

import pytest

from odradek.model.clock import WallMs
from odradek.model.errors import OdradekError
from odradek.web.facts.past import KEYS_MAX
from odradek.web.facts.poller import FactKey, FactKind, Poller

KEY = FactKey("count", "x")


class Counting:
    """A kind whose value is the number of times it was collected."""

    def __init__(self) -> None:
        self.count = 0
        self.fails: Exception | None = None

    async def __call__(self, source, argument, before):
        assert argument == "x"
        if self.fails is not None:
            raise self.fails
        self.count += 1
        return self.count


class Clock:
    now_ms = 1_000

    def __call__(self) -> WallMs:
        return WallMs(self.now_ms)


def made(counting: Counting, clock: Clock, period_s: float = 0.0) -> Poller:
    kinds = {"count": FactKind(counting, 1.0, kept=3)}
    return Poller(None, kinds, wall_ms=clock, period_s=period_s)


def test_what_is_fresh_is_not_collected_again():
    async def run() -> None:
        counting, clock = Counting(), Clock()
        poller = made(counting, clock)
        await poller.collect([KEY])
        await poller.collect([KEY])
        assert counting.count == 1
        clock.now_ms += 1_000
        facts = await poller.collect([KEY])
        assert facts[KEY].value == 2

    asyncio.run(run())


def test_a_key_is_collected_again_and_again_while_it_is_watched_and_not_afterwards():
    async def run() -> None:
        counting, clock = Counting(), Clock()
        poller = made(counting, clock)
        seen: list[int] = []
        third = asyncio.Event()

        def update(facts) -> None:
            seen.append(facts[KEY].value)
            if len(seen) == 3:
                third.set()

        with poller.watch([KEY], update), poller.watch([KEY], lambda _facts: None):
            await third.wait()
        assert seen[:3] == [1, 2, 3]  # one task, for both
        stopped_at = counting.count
        for _ in range(10):
            await asyncio.sleep(0)
        assert counting.count == stopped_at

    asyncio.run(run())


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (OdradekError("no broker answers"), "no broker answers"),
        (ConnectionError("closed"), "closed"),
        (ValueError("7"), "ValueError: 7"),
    ],
)
def test_a_failure_is_shown_with_the_last_value(error, problem):
    async def run() -> None:
        counting, clock = Counting(), Clock()
        poller = made(counting, clock)
        await poller.collect([KEY])
        counting.fails = error
        clock.now_ms += 5_000
        facts = await poller.collect([KEY])
        assert (facts[KEY].value, facts[KEY].problem) == (1, problem)
        assert facts[KEY].at_ms == 6_000

    asyncio.run(run())


def test_one_collection_that_waited_for_a_broker_does_not_delay_the_next():
    async def run() -> None:
        counting, third = Counting(), asyncio.Event()

        async def collect(source, argument, before):
            if counting.count == 1:
                await asyncio.sleep(0.05)  # a broker does not answer: 50 s with this share
            return await counting(source, argument, before)

        def update(facts) -> None:
            if facts[KEY].value == 3:
                third.set()

        poller = Poller(None, {"count": FactKind(collect, 0.001)}, wall_ms=Clock(), period_s=0.0)
        with poller.watch([KEY], update):
            async with asyncio.timeout(20):
                await third.wait()

    asyncio.run(run())


def test_the_past_is_kept():
    async def run() -> None:
        counting, clock = Counting(), Clock()
        poller = made(counting, clock)
        for now_ms in (1_000, 3_000, 5_000):
            clock.now_ms = now_ms
            await poller.collect([KEY])
        assert poller.at([KEY], 999) == {}
        assert poller.at([KEY], 4_999)[KEY].value == 2
        assert poller.at([KEY], 9_000)[KEY].value == 3
        assert poller.begins_ms([KEY]) == 1_000
        clock.now_ms = 7_000
        await poller.collect([KEY])
        assert poller.begins_ms([KEY]) == 3_000  # three values are kept

    asyncio.run(run())


def test_facts_of_keys_that_no_page_shows_are_dropped_when_there_are_many():
    async def run() -> None:
        async def collect(_source, argument, _before):
            return argument

        poller = Poller(None, {"any": FactKind(collect)})
        keys = [FactKey("any", str(number)) for number in range(KEYS_MAX + 2)]
        with poller.watch(keys[:1], lambda _facts: None):
            for key in keys:
                await poller.collect([key])
            assert keys[0] in poller.facts
            assert keys[1] not in poller.facts
            # The watched one is collected again each second, and counts then.
            assert len(poller.facts) <= KEYS_MAX + 1

    asyncio.run(run())
