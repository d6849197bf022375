"""Programs on the simulated loop: streams, executors, and how they end."""

import asyncio
import sys
import time

import pytest

from odradek.testkit.simulation import loop as module
from odradek.testkit.simulation.program import RESTART_S, Ending


async def serve_echo(context):
    async def echo(reader, writer):
        while line := await reader.readline():
            writer.write(line.upper())
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(echo, port=7000) as server:
        assert server.sockets[0].getsockname() == ("db", 7000)
        await server.serve_forever()


async def ask(context):
    await asyncio.sleep(0.1)
    reader, writer = await asyncio.open_connection("db", 7000)
    for word in ("one", "two"):
        writer.write(f"{word}\n".encode())
        context.note((await reader.readline()).decode().strip())
    writer.close()
    await writer.wait_closed()


def test_streams_connect_programs(programs):
    programs.add("db", serve_echo)
    programs.add("shop", ask)
    programs.play(2.0)
    assert programs.said("shop") == ["starts", "ONE", "TWO", "ends"]
    assert programs.failures == []


def test_a_connection_to_a_killed_program_is_reset(programs):
    async def main(context):
        await asyncio.sleep(0.1)
        reader, _ = await asyncio.open_connection("db", 7000)
        try:
            await reader.read()
        except ConnectionResetError:
            context.note("reset")

    db = programs.add("db", serve_echo)
    programs.add("shop", main)

    async def script():
        await asyncio.sleep(1)
        db.kill()

    programs.play(2.0, script)
    assert "reset" in programs.said("shop")


def test_functions_in_threads_run_inline_and_their_results_come_later(programs):
    def work(number):
        if number == 3:
            raise ValueError("three")
        return number * 2

    async def main(context):
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        results = await asyncio.gather(
            asyncio.to_thread(work, 1),
            loop.run_in_executor(None, work, 2),
            asyncio.to_thread(work, 3),
            return_exceptions=True,
        )
        assert loop.time() > began_s
        context.note(repr(results))

    programs.add("shop", main)
    programs.play(1.0)
    assert programs.said("shop")[1] == "[2, 4, ValueError('three')]"


def test_timeouts_groups_and_generators_are_those_of_asyncio(programs):
    async def numbers():
        for number in range(3):
            await asyncio.sleep(0.1)
            yield number

    async def main(context):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await asyncio.sleep(60)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(asyncio.sleep(1, result=n)) for n in range(3)]
        context.note(repr([task.result() for task in tasks]))
        context.note(repr([number async for number in numbers()]))

    programs.add("shop", main)
    programs.play(5.0)
    assert programs.said("shop")[1:] == ["[0, 1, 2]", "[0, 1, 2]", "ends"]


def test_no_code_of_a_killed_program_runs(programs):
    after = []

    async def child():
        try:
            await asyncio.sleep(60)
        finally:
            after.append("finally")

    async def main(_context):
        asyncio.get_running_loop().call_later(2, after.append, "callback")
        task = asyncio.create_task(child())
        try:
            await task
        finally:
            after.append("main")

    shop = programs.add("shop", main)

    async def script():
        await asyncio.sleep(1)
        shop.kill()
        await asyncio.sleep(5)
        assert after == []

    programs.play(1.0, script)
    assert programs.said("shop") == ["starts", "is killed"]


def test_a_paused_program_goes_on_where_it_was(programs):
    async def main(context):
        while True:
            await asyncio.sleep(1)
            context.note("tick")

    shop = programs.add("shop", main)

    async def script():
        await asyncio.sleep(1.5)
        shop.pause()
        await asyncio.sleep(10)
        shop.resume()

    programs.play(0.9, script)
    ticks = [at for at, _, what in programs.events if what == "tick"]
    assert ticks == pytest.approx([1.0, 11.5], abs=0.01)


def test_a_slow_program_does_less_in_the_same_time(programs):
    async def main(context):
        for number in range(1000):
            await asyncio.sleep(0)
            context.outside.done.append(number)

    shop = programs.add("shop", main)
    shop.slow_down(0.1)
    programs.play(5.0)
    assert 20 < len(programs.outside.done) < 60


@pytest.mark.parametrize(
    ("ending", "events"),
    [
        (Ending.RESTART, ["starts", "ends with ValueError: oops (test_programs.py:", "starts"]),
        (Ending.STAY, ["starts", "ends with ValueError: oops (test_programs.py:"]),
    ],
)
def test_what_becomes_of_a_program_that_fails(programs, ending, events):
    async def main(_context):
        await asyncio.sleep(1)
        raise ValueError("oops")

    programs.add("shop", main, ending)
    programs.play(1.0 + RESTART_S + 0.5)
    found = programs.said("shop")
    assert len(found) == len(events)
    assert all(have.startswith(want) for have, want in zip(found, events, strict=True))
    assert programs.failures == []


def test_an_assertion_of_a_program_fails_the_test(programs):
    async def main(_context):
        assert sys.maxsize < 0, "numbers are small"

    programs.add("shop", main)
    programs.play(0.5)
    assert "numbers are small" in programs.failures[0]


def test_sys_exit_ends_the_program_alone(programs):
    async def main(_context):
        sys.exit(3)

    async def other(context):
        await asyncio.sleep(1)
        context.note("alive")

    programs.add("shop", main)
    programs.add("other", other)
    programs.play(2.0)
    assert programs.said("shop") == ["starts", "exits with 3"]
    assert "alive" in programs.said("other")


def test_a_program_is_asked_to_stop_and_killed_if_it_does_not(programs):
    async def polite(context):
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.5)
            context.note("closed")

    async def stubborn(_context):
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                continue

    first, second = programs.add("polite", polite), programs.add("stubborn", stubborn)

    async def script():
        await asyncio.sleep(1)
        await asyncio.gather(first.stop(), second.stop())

    programs.play(1.0, script)
    assert programs.said("polite") == ["starts", "is asked to stop", "closed", "is stopped"]
    assert programs.said("stubborn") == ["starts", "is asked to stop", "is killed"]


def test_a_program_that_waits_for_a_deadline_sees_it_pass(programs):
    async def main(context):
        deadline_s = time.monotonic() + 0.01
        while not time.monotonic() > deadline_s:  # noqa: ASYNC110 - as aiokafka does
            await asyncio.sleep(0)
        context.note("passed")

    programs.add("shop", main)
    programs.play(1.0)
    assert "passed" in programs.said("shop")


def test_a_program_that_spins_is_named_with_its_place(programs, monkeypatch):
    monkeypatch.setattr(module, "TURNS_MAX", 500)

    async def main(_context):
        while True:  # noqa: ASYNC110 - it spins
            await asyncio.sleep(0)

    programs.add("shop", main)
    with pytest.raises(module.ProgramSpinsError) as found:
        programs.play(1.0)
    assert "shop made 500 turns in one simulated second, at test_programs.py:" in str(found.value)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: asyncio.create_subprocess_exec("true"), "loop.subprocess_exec"),
        (lambda: asyncio.open_unix_connection("/tmp/x"), "loop.create_unix_connection"),
        (lambda: asyncio.open_connection("db", 1, ssl=True), "a connection with TLS"),
        (
            lambda: asyncio.get_running_loop().create_datagram_endpoint(asyncio.DatagramProtocol),
            "loop.create_datagram_endpoint",
        ),
    ],
)
def test_calls_of_the_loop_that_are_not_simulated_are_named(programs, call, named):
    async def main(_context):
        await call()

    error = programs.error(main)
    assert f"{named} is not simulated" in error
    assert "test_programs.py" in error
