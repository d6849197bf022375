"""Waiting requests are checked again when woken, and answered when their time is up."""

import asyncio
import socket

import pytest

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


def purgatory(*, is_alone=lambda: False):
    loop = asyncio.get_running_loop()
    return Purgatory(loop, lambda: round(loop.time() * 1000), is_alone)


def waiting_in(waiting, log, *kinds):
    """A request of each kind, named by its number; they wait for long."""
    requests = [kind(waiting, log, number) for number, kind in enumerate(kinds)]
    for request in requests:
        waiting.wait(request, 3_600_000)
    return requests


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


# ------------------------------------------------------------------------ gathered for one look


async def turns():
    """As many turns as are enough for everything that is due now."""
    for _ in range(3):
        await asyncio.sleep(0)


def test_gathered_requests_are_looked_at_when_the_caller_says_so_and_once():
    async def scenario():
        waiting, log = purgatory(is_alone=lambda: True), []
        first, second = waiting_in(waiting, log, Wait, Wait)
        assert waiting.gather()
        waiting.wake(first)
        waiting.wake(second)
        await turns()
        assert log == [], "it has not said so"
        waiting.look()
        assert log == [(0, "woken", 0), (1, "woken", 0)]
        await turns()
        assert len(log) == 2

    run(scenario())


def test_beside_other_work_requests_are_not_gathered():
    async def scenario():
        waiting, log = purgatory(is_alone=lambda: False), []
        (request,) = waiting_in(waiting, log, Wait)
        assert not waiting.gather()
        waiting.wake(request)
        assert log == []
        await turns()
        assert log == [(0, "woken", 0)], "in the next turn, without look"

    run(scenario())


def test_after_look_a_woken_request_is_looked_at_in_the_next_turn_again():
    async def scenario():
        waiting, log = purgatory(is_alone=lambda: True), []
        (request,) = waiting_in(waiting, log, Wait)
        assert waiting.gather()
        waiting.look()
        waiting.wake(request)
        assert log == []
        await turns()
        assert log == [(0, "woken", 0)]

    run(scenario())


def test_what_was_woken_before_is_looked_at_with_the_gathered_and_once():
    async def scenario():
        waiting, log = purgatory(is_alone=lambda: True), []
        before, gathered, after = waiting_in(waiting, log, Wait, Wait, Wait)
        waiting.wake(before)
        assert waiting.gather()
        waiting.wake(gathered)
        waiting.look()
        assert [name for name, *_ in log] == [0, 1]
        waiting.wake(after)
        assert len(log) == 2
        await turns()
        assert [name for name, *_ in log] == [0, 1, 2]

    run(scenario())


class Waking(Wait):
    """Wakes another while it is looked at."""

    other = None

    def look_again(self):
        super().look_again()
        self.purgatory.wake(self.other)


def test_what_a_gathered_request_wakes_is_looked_at_in_the_next_turn():
    async def scenario():
        waiting, log = purgatory(is_alone=lambda: True), []
        first, second = waiting_in(waiting, log, Waking, Wait)
        first.other = second
        assert waiting.gather()
        waiting.wake(first)
        waiting.look()
        assert [name for name, *_ in log] == [0]
        await turns()
        assert [name for name, *_ in log] == [0, 1]

    run(scenario())


def test_one_that_was_answered_while_it_was_gathered_is_not_looked_at():
    async def scenario():
        waiting, log = purgatory(is_alone=lambda: True), []
        (request,) = waiting_in(waiting, log, Wait)
        assert waiting.gather()
        waiting.wake(request)
        request.expire()
        waiting.look()
        assert log == [(0, "expired", 0)]

    run(scenario())


def test_a_gathered_request_that_fails_does_not_take_the_others_along():
    async def scenario():
        waiting, log = purgatory(is_alone=lambda: True), []
        requests = waiting_in(waiting, log, Wait, Broken, Wait, Wait)
        assert waiting.gather()
        for request in requests:
            waiting.wake(request)
        with pytest.raises(RuntimeError, match="woken"):
            waiting.look()
        assert [name for name, *_ in log] == [0]
        await turns()
        assert [name for name, *_ in log] == [0, 2, 3], "in the next turn"

    run(scenario())
