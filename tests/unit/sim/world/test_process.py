"""A simulated process that is killed runs nothing more; one that is paused goes on where it was."""

import asyncio
from functools import partial

from odradek.sim.world.disk import SimulatedCrash
from odradek.sim.world.loop import run
from odradek.sim.world.network import SimulatedLoop
from odradek.sim.world.process import MortalLoop, running_process


def on_simulated_loop(main):
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        runner.run(main)


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
        process.bury()

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


def test_a_timer_that_is_cancelled_while_it_is_held_back_does_not_fire():
    async def scenario():
        process, log = MortalLoop(asyncio.get_running_loop()), []
        second = process.call_later(1.5, log.append, "never")
        process.call_later(1, second.cancel)
        process.pause()
        await asyncio.sleep(2)
        process.resume()
        await asyncio.sleep(2)
        assert log == []

    run(scenario())


def test_tasks_that_are_started_behind_the_loops_back_die_with_it():
    async def scenario():
        process, log = MortalLoop(asyncio.get_running_loop()), []

        async def tick(name):
            while True:
                log.append(name)
                await asyncio.sleep(1)

        async def work():
            async with asyncio.TaskGroup() as group:
                group.create_task(tick("group"))
                await asyncio.gather(tick("gathered"))

        process.create_task(work())
        await asyncio.sleep(0.5)
        process.kill()
        await asyncio.sleep(5)
        assert sorted(log) == ["gathered", "group"]
        process.bury()

    on_simulated_loop(scenario())


def test_a_process_is_the_current_one_wherever_it_is_entered():
    async def scenario():
        loop, names = asyncio.get_running_loop(), []

        async def work():
            names.append(running_process().name)

        for process in MortalLoop(loop, "a"), MortalLoop(loop, "b"):
            process.create_task(work())
            process.call_soon(lambda: names.append(running_process().name))
        await asyncio.sleep(1)
        assert sorted(names) == ["a", "a", "b", "b"]
        assert running_process() is None

    on_simulated_loop(scenario())


def test_its_disk_ends_it_in_the_middle_of_a_callback_or_of_a_task():
    async def scenario():
        def crash():
            raise SimulatedCrash("/data")

        async def work(log):
            crash()
            log.append("survived")

        for in_task in True, False:
            process, log = MortalLoop(asyncio.get_running_loop()), []
            process.on_crash = partial(log.append, "crashed")
            if in_task:
                process.create_task(work(log))
            else:
                process.call_soon(crash)
            await asyncio.sleep(1)
            assert process.is_dead
            assert log == ["crashed"]
            process.bury()

    run(scenario())


def test_an_error_in_the_moment_of_the_kill_is_not_reported():
    async def scenario():
        loop = asyncio.get_running_loop()
        process, log = MortalLoop(loop), []
        failing = loop.create_future()

        async def work():
            try:
                await failing
            except ConnectionError:
                log.append("heard")

        task = process.create_task(work())
        await asyncio.sleep(1)
        failing.set_exception(ConnectionError("hung up"))
        process.kill()
        await asyncio.sleep(1)
        assert log == []
        assert not task.done()
        process.bury()

    run(scenario())
