"""The event loop in simulated time: what is queued in a turn."""

import asyncio

from odradek.sim.world.loop import run


def noted(schedule):
    """What `is_last` says in callbacks: `schedule` is given the loop, and makes such a callback."""
    found = {}

    async def main():
        loop = asyncio.get_running_loop()

        def noting(name, *, also=None):
            def call():
                if also is not None:
                    loop.call_soon(also)
                found[name] = loop.is_last()

            return call

        schedule(loop, noting)
        await asyncio.sleep(10)

    run(main())
    return found


def test_the_last_callback_of_a_turn_is_the_one_with_nothing_behind_it():
    def schedule(loop, noting):
        for name in ("first", "second", "third"):
            loop.call_soon(noting(name))

    assert noted(schedule) == {"first": False, "second": False, "third": True}


def test_a_callback_that_queues_another_is_not_the_last():
    def schedule(loop, noting):
        loop.call_soon(noting("queues", also=noting("queued")))

    assert noted(schedule) == {"queues": False, "queued": True}


def test_timers_are_queued_when_they_are_due_and_not_before():
    def schedule(loop, noting):
        loop.call_later(1, noting("early"))
        loop.call_later(2, noting("together"))
        loop.call_later(2, noting("last"))

    assert noted(schedule) == {"early": True, "together": False, "last": True}
