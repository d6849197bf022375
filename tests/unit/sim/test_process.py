"""A simulated process that is killed runs nothing more; one that is paused goes on where it was."""

import asyncio

from odradek.sim.loop import run
from odradek.sim.process import MortalLoop


def test_a_killed_process_does_not_even_clean_up():
    async def scenario():
        process, log = MortalLoop(asyncio.get_running_loop()), []

        async def work():
            try:
                while True:
                    log.append("step")
                    await asyncio.sleep(1)
            finally:
                log.append("cleaned up")

        process.create_task(work())
        process.call_later(1.5, log.append, "timer")
        process.call_later(2.7, log.append, "never")
        await asyncio.sleep(2.5)
        process.kill()
        await asyncio.sleep(10)
        assert log == ["step", "step", "timer", "step"]

    run(scenario())


def test_a_paused_process_does_later_what_became_due():
    async def scenario():
        loop = asyncio.get_running_loop()
        process, log = MortalLoop(loop), []

        async def work():
            for _ in range(3):
                log.append(("step", loop.time()))
                await asyncio.sleep(1)

        process.create_task(work())
        process.call_later(1.5, lambda: log.append(("timer", loop.time())))
        await asyncio.sleep(0.5)
        process.pause()
        await asyncio.sleep(9.5)
        process.resume()
        await asyncio.sleep(5)
        assert sorted(log, key=lambda entry: (entry[1], entry[0])) == [
            ("step", 0),
            ("step", 10),
            ("timer", 10),
            ("step", 11),
        ]

    run(scenario())
