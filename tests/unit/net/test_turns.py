"""Long work runs in slices, one slice in each iteration of the event loop."""

import asyncio

import pytest

from odradek.net.turns import SLICE_MS, Turns


class Clock:
    def __init__(self):
        self.ms = 0

    def monotonic_ms(self):
        return self.ms


def steps(clock, name, count, done, step_ms=SLICE_MS + 1):
    """Work in which every step uses up a slice."""
    for number in range(count):
        clock.ms += step_ms
        done.append(f"{name}{number}")
        yield
    return name


def test_two_pieces_of_long_work_alternate_by_slice():
    async def story():
        clock, done = Clock(), []
        turns = Turns(asyncio.get_running_loop(), clock.monotonic_ms)
        ended = await asyncio.gather(
            turns.run(steps(clock, "a", 3, done)), turns.run(steps(clock, "b", 3, done))
        )
        assert ended == ["a", "b"]
        assert done == ["a0", "b0", "a1", "b1", "a2", "b2"]

    asyncio.run(story())


def test_each_iteration_of_the_loop_runs_one_slice_of_all_long_work():
    async def story():
        loop, clock, done, between = asyncio.get_running_loop(), Clock(), [], []
        turns = Turns(loop, clock.monotonic_ms)
        works = asyncio.gather(
            *(turns.run(steps(clock, name, 4, done)) for name in ("a", "b", "c"))
        )
        while not works.done():
            before = len(done)
            await asyncio.sleep(0)  # every ready task runs once in an iteration
            between.append(len(done) - before)
        assert between[0] == 3  # the first slice of each, in the iteration in which it started
        assert max(between[1:]) == 1
        assert sum(between) == 12

    asyncio.run(story())


def test_short_work_runs_without_waiting():
    async def story():
        clock, done = Clock(), []
        turns = Turns(asyncio.get_running_loop(), clock.monotonic_ms)
        work = turns.run(steps(clock, "a", 100, done, step_ms=0))
        with pytest.raises(StopIteration) as end:
            work.send(None)
        assert end.value.value == "a"

    asyncio.run(story())


def test_work_that_is_cancelled_while_it_waits_does_not_stop_the_others():
    async def story():
        clock, done = Clock(), []
        turns = Turns(asyncio.get_running_loop(), clock.monotonic_ms)
        first = asyncio.ensure_future(turns.run(steps(clock, "a", 3, done)))
        second = asyncio.ensure_future(turns.run(steps(clock, "b", 3, done)))
        await asyncio.sleep(0)
        first.cancel()
        assert await second == "b"

    asyncio.run(story())


def test_an_exception_of_the_work_reaches_its_caller():
    def failing():
        yield
        raise ValueError("bad")

    async def story():
        turns = Turns(asyncio.get_running_loop(), lambda: 0)
        with pytest.raises(ValueError, match="bad"):
            await turns.run(failing())

    asyncio.run(story())
