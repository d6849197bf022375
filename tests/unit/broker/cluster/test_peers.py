"""Requests to another broker, one at a time, and what happens without a response."""

import asyncio

import pytest
from tests.unit.broker.other_broker import OtherBroker

import odradek.sim.world.loop as sim
from odradek.broker.cluster.peers import Peer, PeerError
from odradek.sim.world.clock import SimulatedClock
from odradek.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)

TIMEOUT_MS = 2_000
QUESTION = ControlledShutdownRequest(broker_id=1, broker_epoch=5)
ANSWER = ControlledShutdownResponse(error_code=9)


def play(story, answer=lambda request: ANSWER):
    async def main():
        loop = asyncio.get_running_loop()
        other = OtherBroker(answer)
        peer = Peer(
            "b2",
            9092,
            connector=other,
            clock=SimulatedClock(loop.time),
            client_id="broker-1",
            timeout_ms=TIMEOUT_MS,
        )
        await story(peer, other)

    sim.run(main())


def test_a_question_is_answered_over_one_connection_that_stays():
    async def story(peer, other):
        assert (await peer.ask(QUESTION, ControlledShutdownResponse)).error_code == 9
        assert (await peer.ask(QUESTION, ControlledShutdownResponse)).error_code == 9
        assert [(host, port) for host, port, _ in other.connections] == [("b2", 9092)]
        assert other.requests[0].broker_epoch == 5

    play(story)


def test_questions_wait_for_one_another():
    async def story(peer, other):
        asked = [
            asyncio.ensure_future(peer.ask(QUESTION, ControlledShutdownResponse)) for _ in range(3)
        ]
        for answered in range(3):
            await asyncio.sleep(0.01)
            assert len(other.requests) == answered + 1
            other.reply(ANSWER)
        assert [answer.error_code for answer in await asyncio.gather(*asked)] == [9, 9, 9]

    play(story, answer=lambda request: None)


def test_without_a_listener_the_request_fails():
    async def story(peer, other):
        other.refuses = True
        with pytest.raises(PeerError, match="b2:9092"):
            await peer.ask(QUESTION, ControlledShutdownResponse)
        other.refuses = False
        await peer.ask(QUESTION, ControlledShutdownResponse)

    play(story)


def test_no_answer_in_time_ends_the_connection():
    async def story(peer, other):
        with pytest.raises(PeerError, match="did not answer within 2000 ms"):
            await peer.ask(QUESTION, ControlledShutdownResponse)
        assert other.open_connections == []
        other.answer = lambda request: ANSWER
        await peer.ask(QUESTION, ControlledShutdownResponse)
        assert len(other.connections) == 2

    play(story, answer=lambda request: None)


def test_a_connection_that_cannot_be_made_in_time():
    async def story(peer, other):
        other.gate = asyncio.get_running_loop().create_future()
        with pytest.raises(PeerError, match="did not answer"):
            await peer.ask(QUESTION, ControlledShutdownResponse)

    play(story)


def test_a_connection_that_is_lost_while_it_is_waited():
    async def story(peer, other):
        asked = asyncio.ensure_future(peer.ask(QUESTION, ControlledShutdownResponse))
        await asyncio.sleep(0.01)
        other.open_connections[0].abort()
        with pytest.raises(PeerError, match="closed the connection"):
            await asked

    play(story, answer=lambda request: None)


def test_an_invalid_answer_counts_as_no_answer():
    async def story(peer, other):
        asked = asyncio.ensure_future(peer.ask(QUESTION, ControlledShutdownResponse))
        await asyncio.sleep(0.01)
        other.reply((7).to_bytes(4, "big") + (1).to_bytes(4, "big") + b"\0\xff\xff")
        with pytest.raises(PeerError):
            await asked
        other.answer = lambda request: ANSWER
        await peer.ask(QUESTION, ControlledShutdownResponse)

    play(story, answer=lambda request: None)


def test_after_a_closed_connection_the_next_request_connects_again():
    async def story(peer, other):
        await peer.ask(QUESTION, ControlledShutdownResponse)
        peer.close()
        await peer.ask(QUESTION, ControlledShutdownResponse)
        assert len(other.connections) == 2

    play(story)
