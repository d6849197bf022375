"""Clocks and chance of programs; and nothing of it is left after a run."""

# What is looked up late is what is tested, and clocks without a zone are.
# ruff: noqa: ASYNC251, DTZ001, DTZ003, DTZ005, PLC0415, PLW0108

import asyncio
import datetime
import os
import random
import secrets
import signal
import socket
import subprocess
import threading
import time
import uuid
from datetime import datetime as imported_datetime
from time import monotonic as imported_monotonic

import pytest
from tests.unit.testkit.simulation.conftest import Programs

from odradek.sim.world.clock import EPOCH_MS
from odradek.testkit.simulation import patches as module

EPOCH_S = EPOCH_MS / 1000


def observed(programs, look):
    """What a function returns in a program after ten simulated seconds."""
    found = []

    async def main(_context):
        await asyncio.sleep(10)
        found.append(look())

    programs.add("shop", main)
    programs.play(11.0)
    return found[0]


@pytest.mark.parametrize(
    ("clock", "expected"),
    [
        (lambda: time.time(), EPOCH_S + 10),
        (lambda: time.time_ns() / 1e9, EPOCH_S + 10),
        (lambda: time.monotonic(), 1_010),
        (lambda: imported_monotonic(), 1_010),
        (lambda: time.perf_counter_ns() / 1e9, 1_010),
        (lambda: datetime.datetime.now().timestamp(), EPOCH_S + 10),
        (lambda: imported_datetime.now(datetime.UTC).timestamp(), EPOCH_S + 10),
        (lambda: imported_datetime.utcnow().replace(tzinfo=datetime.UTC).timestamp(), EPOCH_S + 10),
        (lambda: time.mktime(time.localtime()), EPOCH_S + 10),
        (lambda: asyncio.get_running_loop().time(), 10),
    ],
)
@pytest.mark.filterwarnings("ignore:datetime.datetime.utcnow")
def test_every_clock_shows_the_simulated_time(programs, clock, expected):
    assert observed(programs, clock) == pytest.approx(expected, abs=1.0)


def test_dates_are_still_dates(programs):
    now = observed(programs, lambda: datetime.datetime.now())
    assert type(now) is imported_datetime
    assert observed(
        Programs(), lambda: isinstance(imported_datetime(2026, 1, 1), datetime.datetime)
    )
    assert observed(Programs(), lambda: issubclass(imported_datetime, datetime.date))


@pytest.mark.parametrize(
    "chance",
    [
        lambda: random.random(),
        lambda: random.Random().random(),
        lambda: random.SystemRandom().random(),
        lambda: secrets.token_hex(),
        lambda: os.urandom(8),
        lambda: uuid.uuid4(),
        lambda: uuid.uuid1(),
    ],
)
def test_chance_is_a_function_of_the_seed(chance):
    same = [observed(Programs(seed=5), chance) for _ in range(2)]
    assert same[0] == same[1]
    assert observed(Programs(seed=6), chance) != same[0]


def test_a_program_that_sleeps_is_busy_and_the_others_go_on(programs):
    async def sleeper(context):
        await asyncio.sleep(1)
        before = time.monotonic()
        time.sleep(5)
        context.note(f"slept {time.monotonic() - before:.0f} s")
        await asyncio.sleep(0)
        context.note("awake")

    async def other(context):
        while True:
            await asyncio.sleep(1)
            context.note("tick")

    programs.add("sleeper", sleeper)
    programs.add("other", other)
    programs.play(8.5)
    times = {what: at for at, who, what in programs.events if who == "sleeper"}
    assert times["slept 5 s"] == pytest.approx(1.0, abs=0.1)
    assert times["awake"] == pytest.approx(6.0, abs=0.1)
    assert programs.said("other").count("tick") == 8


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: threading.Thread(target=print).start(), "threading.Thread.start"),
        (lambda: subprocess.Popen(["true"]), "subprocess.Popen"),
        (lambda: subprocess.run(["true"], check=False), "subprocess.Popen"),
        (lambda: socket.create_connection(("127.0.0.1", 9)), "socket.create_connection"),
        (lambda: socket.socket().connect(("127.0.0.1", 9)), "socket.connect"),
        (lambda: os.fork(), "os.fork"),
    ],
)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_what_is_not_simulated_is_named_with_its_place(programs, call, named):
    async def main(_context):
        call()

    error = programs.error(main)
    assert error.startswith(f"shop: NotSimulatedError: {named} is not simulated")
    assert "test_patches.py" in error


def test_signal_handlers_are_accepted(programs):
    def look():
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, print)
        return signal.signal(signal.SIGUSR1, print)

    before = signal.getsignal(signal.SIGUSR1)
    assert observed(programs, look) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGUSR1) is before


def names():
    return {
        "time": time.time,
        "sleep": time.sleep,
        "imported": imported_monotonic,
        "datetime": datetime.datetime,
        "imported datetime": imported_datetime,
        "urandom": os.urandom,
        "seed": random.Random.seed,
        "thread": threading.Thread.start,
        "popen": subprocess.Popen.__init__,
        "connect": socket.socket.connect,
        "signal": signal.signal,
    }


def test_nothing_is_left_after_a_run_or_an_exception(programs):
    before, state = names(), random.getstate()

    async def main(_context):
        assert time.time is not before["time"]
        raise ValueError("a mistake")

    programs.add("shop", main)

    async def script():
        await asyncio.sleep(1)
        raise LookupError("the run itself fails")

    with pytest.raises(LookupError):
        programs.play(script=script)
    assert names() == before
    assert random.getstate() == state
    assert abs(time.time() - imported_datetime.now().timestamp()) < 60
    assert time.time() > EPOCH_S + 365 * 86_400


def test_another_thread_has_the_real_clock(programs):
    found = []
    asked, answered = threading.Event(), threading.Event()

    def other():
        asked.wait(10)
        found.append(time.time())
        answered.set()

    thread = threading.Thread(target=other)
    thread.start()

    def look():
        asked.set()
        return answered.wait(10)

    assert observed(programs, look)
    thread.join()
    assert found[0] > EPOCH_S + 365 * 86_400


def test_a_module_that_was_imported_meanwhile_has_the_real_clock(programs, tmp_path, monkeypatch):
    (tmp_path / "imported_late.py").write_text("from time import time\n")
    monkeypatch.syspath_prepend(tmp_path)

    def look():
        import imported_late

        return imported_late.time

    simulated = observed(programs, look)
    import imported_late

    assert simulated is not time.time
    assert imported_late.time is time.time
    assert module._REAL_NOW is time.time
