"""A follower's waiting fetch is answered with all that a pipelining producer is about to send."""

import asyncio

import pytest
from tests.unit.broker.live import fetch, part_of, play, produce, values

T0 = ("t", 0)
NEVER_MS = 600_000
TURN_S = 0.001
LARGE, SMALL = 10_000, 1_000
FOLLOWERS = (2, 3)


class Producer:
    """A producer with acks=all, and how many records are in the log."""

    def __init__(self, live):
        self.live, self.peer = live, live.peer()

    def send(self, *sizes):
        for size in sizes:
            batch = self.live.batch(b"x" * size)
            self.peer.send(produce(batch, acks=-1, timeout_ms=NEVER_MS))

    async def send_all(self, *sizes):
        """Requests that follow one another, and that are committed and answered in the end."""
        self.send(*sizes)
        for replica in FOLLOWERS:
            request = fetch({T0: self.live.log().leo}, replica_id=replica, max_wait_ms=0)
            await self.live.peer().ask(request, 12)
        await asyncio.sleep(2 * TURN_S)


def waiting(live, **more):
    """The response to a follower's fetch that waits for what is appended from now on."""
    request = fetch({T0: live.log().leo}, replica_id=2, max_wait_ms=NEVER_MS, **more)
    return live.peer().send(request, 12)


async def given(answer):
    """The sizes of the records that the follower has been given by the next turn."""
    await asyncio.sleep(TURN_S)
    if not answer.done():
        return None
    return [len(value) for value in values(part_of(answer.result()).records)]


async def pipelining(live, *sizes):
    """A producer that has always sent so much at a time, and a fetch that waits for more of it."""
    await live.order()
    producer = Producer(live)
    for _ in range(10):
        await producer.send_all(*sizes)
    return producer, waiting(live)


def test_as_much_is_waited_for_as_the_producer_sent_before():
    async def story(live):
        producer, answer = await pipelining(live, LARGE, LARGE, LARGE)
        producer.send(LARGE)
        assert await given(answer) is None
        producer.send(LARGE)
        assert await given(answer) is None
        producer.send(LARGE)
        assert await given(answer) == [LARGE] * 3

    play(story)


def test_what_does_not_come_is_waited_for_some_milliseconds():
    async def story(live):
        producer, answer = await pipelining(live, LARGE, LARGE)
        producer.send(LARGE)
        await asyncio.sleep(0.003)
        assert await given(answer) is None
        await asyncio.sleep(0.002)
        assert await given(answer) == [LARGE]

    play(story)


def test_much_is_not_kept_waiting_for_more():
    async def story(live):
        producer, answer = await pipelining(live, *[LARGE] * 5)
        producer.send(100_000, 100_000)
        assert await given(answer) is None
        producer.send(100_000)
        assert await given(answer) == [100_000] * 3

    play(story)


def test_a_request_that_is_large_enough_alone_does_not_wait(request):
    async def story(live):
        live.is_alone = lambda: True
        producer, answer = await pipelining(live, LARGE, LARGE, LARGE)
        producer.send(300_000)
        assert answer.done() or "general" in request.node.name, "in its turn"
        assert await given(answer) == [300_000]

    play(story)


@pytest.mark.parametrize("sizes", [(LARGE,), (SMALL, SMALL, SMALL)])
def test_a_producer_of_one_batch_at_a_time_or_of_small_ones_does_not_wait(sizes):
    async def story(live):
        producer, answer = await pipelining(live, *sizes)
        producer.send(sizes[0])
        assert await given(answer) == [sizes[0]]

    play(story)


def test_a_batch_that_does_not_wait_takes_those_along_that_do():
    async def story(live):
        producer, answer = await pipelining(live, LARGE, LARGE)
        producer.send(LARGE)
        assert await given(answer) is None
        Producer(live).send(SMALL)
        assert await given(answer) == [LARGE, SMALL]

    play(story)


def test_what_a_fetch_wants_at_least_is_waited_for_as_long_as_it_wants():
    async def story(live):
        producer, _ = await pipelining(live, LARGE, LARGE)
        answer = waiting(live, min_bytes=2 * LARGE)
        producer.send(LARGE)
        await asyncio.sleep(1)
        assert await given(answer) is None
        producer.send(LARGE)
        assert await given(answer) == [LARGE, LARGE]

    play(story)


def test_a_lone_request_of_a_pipelining_producer_is_not_passed_on_in_its_turn():
    async def story(live):
        live.is_alone = lambda: True
        producer, answer = await pipelining(live, LARGE, LARGE)
        producer.send(LARGE)
        assert await given(answer) is None
        producer.send(LARGE)
        assert await given(answer) == [LARGE, LARGE]

    play(story)
