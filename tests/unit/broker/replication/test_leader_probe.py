"""A probe ends when the leader has answered, when it is lost, or after a moment."""

import asyncio

import odradek.sim.world.loop as simulated
from odradek.broker.cluster.peers import PeerError
from odradek.broker.replication.leader_probe import PROBE_MS, LeaderProbe


class Leader:
    """Answers, or fails to, as a test says."""

    def __init__(self):
        self.asked = 0
        self.answer = asyncio.get_running_loop().create_future()

    async def ask(self, request, kind):
        self.asked += 1
        return await self.answer


def play(story):
    async def main():
        loop, leader = asyncio.get_running_loop(), Leader()
        tasks = []
        probe = LeaderProbe(leader, 2, lambda work, _name: tasks.append(loop.create_task(work)))
        probe.connected()
        await story(probe, leader, loop)
        await asyncio.gather(*tasks)

    simulated.run(main())


def test_a_leader_that_answers_ends_the_probe():
    async def story(probe, leader, loop):
        loop.call_later(0.001, leader.answer.set_result, None)
        await probe.wait()
        assert loop.time() == 0.001

    play(story)


def test_the_loss_of_the_fetchers_connection_is_waited_for():
    async def story(probe, leader, loop):
        loop.call_later(0.001, leader.answer.set_exception, PeerError("closed"))
        loop.call_later(0.003, probe.disconnected)
        await probe.wait()
        assert loop.time() == 0.003

    play(story)


def test_a_leader_that_neither_answers_nor_ends_is_waited_for_a_moment_only():
    async def story(probe, leader, loop):
        await probe.wait()
        assert loop.time() == PROBE_MS / 1000

    play(story)


def test_a_probe_connection_that_is_closed_alone_is_no_loss():
    async def story(probe, leader, loop):
        leader.answer.set_exception(PeerError("idle"))
        await probe.wait()
        assert loop.time() == PROBE_MS / 1000

    play(story)


def test_those_who_wait_at_the_same_time_share_a_request():
    async def story(probe, leader, loop):
        loop.call_later(0.002, leader.answer.set_result, None)
        await asyncio.gather(*(probe.wait() for _ in range(100)))
        assert leader.asked == 1
        await probe.wait()
        assert leader.asked == 2, "the next one asks again"

    play(story)


def test_a_waiting_request_that_is_cancelled_does_not_end_the_probe_of_others():
    async def story(probe, leader, loop):
        first, second = loop.create_task(probe.wait()), loop.create_task(probe.wait())
        await asyncio.sleep(0.001)
        first.cancel()
        leader.answer.set_result(None)
        await second
        assert first.cancelled()

    play(story)
