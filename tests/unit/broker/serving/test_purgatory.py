"""Waiting requests are checked again when woken, and answered when their time is up."""

import asyncio
import socket

from odradek.broker.serving.purgatory import Purgatory, Waiting
from odradek.sim.world.loop import run


class Wait(Waiting):
    def __init__(self, purgatory, log, name):
        super().__init__()
        self.purgatory, self.log, self.name = purgatory, log, name

    def expire(self):
        self._answer("expired")

    def look_again(self):
        self._answer("woken")

    def _answer(self, why):
        now_ms = round(asyncio.get_running_loop().time() * 1000)
        self.log.append((self.name, why, now_ms))
        self.purgatory.finish(self)


def purgatory():
    loop = asyncio.get_running_loop()
    return Purgatory(loop, lambda: round(loop.time() * 1000))


def test_each_expires_at_its_own_time_and_not_before():
    async def scenario():
        waiting, log = purgatory(), []
        for name, timeout_ms in (("late", 500), ("soon", 100), ("middle", 200)):
            waiting.wait(Wait(waiting, log, name), timeout_ms)
        await asyncio.sleep(1)
        assert waiting.size == 0
        return log

    log = run(scenario())
    assert [(name, why) for name, why, _ in log] == [
        ("soon", "expired"),
        ("middle", "expired"),
        ("late", "expired"),
    ]
    for (_, _, at_ms), due_ms in zip(log, (100, 200, 500), strict=True):
        assert due_ms <= at_ms <= due_ms + 10


def test_the_woken_is_answered_in_the_next_turn_and_only_once():
    async def scenario():
        waiting, log = purgatory(), []
        fetch = Wait(waiting, log, "fetch")
        waiting.wait(fetch, 500)
        waiting.wake(fetch)
        waiting.wake(fetch)
        assert log == [], "not inside the append that woke it"
        await asyncio.sleep(2)
        return log

    assert run(scenario()) == [("fetch", "woken", 0)]


def test_the_woken_is_answered_after_what_was_received_meanwhile_is_handled():
    async def scenario():
        waiting, log = purgatory(), []
        loop = asyncio.get_running_loop()
        fetch = Wait(waiting, log, "fetch")
        received = asyncio.Event()
        client, broker = socket.socketpair()
        with client, broker:

            def handle():
                log.append(broker.recv(7))
                received.set()

            loop.add_reader(broker, handle)
            waiting.wake(fetch)
            client.send(b"produce")
            await received.wait()
            await asyncio.sleep(0)
            loop.remove_reader(broker)
        return [log[0], log[1][1]]

    assert asyncio.run(scenario()) == [b"produce", "woken"]


def test_each_patient_request_waits_as_long_as_the_first():
    async def scenario():
        waiting, log = purgatory(), []
        for name in ("first", "second"):
            fetch = Wait(waiting, log, name)
            waiting.wait(fetch, 500)
            waiting.wake_soon(fetch)
            await asyncio.sleep(0.004)
        await asyncio.sleep(1)
        return log

    assert run(scenario()) == [("first", "woken", 5), ("second", "woken", 9)]


def test_thousands_that_were_answered_early_do_not_pile_up():
    async def scenario():
        waiting, log = purgatory(), []
        for number in range(10_000):
            fetch = Wait(waiting, log, number)
            waiting.wait(fetch, 3_600_000)
            waiting.finish(fetch)
        assert waiting.size == 0
        assert len(waiting._heap) < 3000

    run(scenario())


def test_when_the_broker_stops_every_waiting_request_is_answered():
    async def scenario():
        waiting, log = purgatory(), []
        for name in ("a", "b"):
            waiting.wait(Wait(waiting, log, name), 1000)
        waiting.expire_all()
        return log

    assert run(scenario()) == [("a", "expired", 0), ("b", "expired", 0)]


class Broken(Wait):
    def _answer(self, why):
        self.done = True
        raise RuntimeError(why)


def test_one_that_fails_does_not_take_the_others_along():
    async def scenario():
        waiting, log, failures = purgatory(), [], []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: failures.append(str(context["exception"])))
        woken = [kind(waiting, log, "woken") for kind in (Wait, Broken, Wait)]
        for wait in woken:
            waiting.wait(wait, 9_000)
            waiting.wake(wait)
        for kind, timeout_ms in ((Broken, 100), (Wait, 100), (Wait, 200)):
            waiting.wait(kind(waiting, log, "timed"), timeout_ms)
        await asyncio.sleep(1)
        return [why for _, why, _ in log], failures

    assert run(scenario()) == (
        ["woken", "woken", "expired", "expired"],
        ["woken", "expired"],
    )
