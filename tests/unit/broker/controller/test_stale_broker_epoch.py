"""STALE_BROKER_EPOCH from a broker: sent again while its registration is the one in the store."""

import asyncio
from itertools import pairwise

import pytest

from odradek.coord import layout
from odradek.coord.store import ConnectionLostError, SessionExpiredError
from odradek.model.errors import ErrorCode
from odradek.wire.messages.leader_and_isr import LeaderAndIsrRequest


class Registrations:
    """In place of the controller's look at the store: answers in order, the last one for ever."""

    def __init__(self, *answers) -> None:
        self.answers = list(answers)

    async def look(self, broker):
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


async def refusing_broker(cluster, *answers):
    """A cluster whose broker 2 refuses all requests as stale; and its controller's node."""
    node = await cluster.start(1)
    if answers:
        node.channels.is_registered = Registrations(*answers).look
    cluster.brokers[2].error = ErrorCode.STALE_BROKER_EPOCH
    await cluster.add(2)
    return node


def test_a_request_is_sent_again_until_the_broker_knows_its_registration(play, caplog):
    async def story(cluster):
        await refusing_broker(cluster)
        notified = cluster.brokers[2]
        await cluster.until(lambda: len(notified.received) == 4)
        await cluster.create_topic("t", {0: (2,)})
        assert len(set(map(id, notified.received))) == 1, (
            "and nothing is sent before it is accepted"
        )

        notified.error = ErrorCode.NONE
        await cluster.until(lambda: len(notified.leaders()) == 1)
        assert notified.requests(LeaderAndIsrRequest) != []
        warnings = [r.message for r in caplog.records if "STALE_BROKER_EPOCH" in r.message]
        assert len(warnings) == 1
        assert warnings[0].startswith("broker 2 refuses UpdateMetadata")

    play(story)


def test_the_pauses_double_up_to_a_second(play):
    async def story(cluster):
        await refusing_broker(cluster)
        notified = cluster.brokers[2]
        now_s = asyncio.get_running_loop().time
        times_s = []
        for count in range(1, 8):
            await cluster.until(lambda count=count: len(notified.received) == count)
            times_s.append(now_s())

        pauses_s = [round(after - before, 1) for before, after in pairwise(times_s)]
        assert pauses_s == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]

    play(story)


@pytest.mark.parametrize(
    "answer", [False, SessionExpiredError("over")], ids=["it ended", "the controller's session did"]
)
def test_a_request_for_a_registration_that_has_ended_is_not_sent_again(play, answer):
    async def story(cluster):
        await refusing_broker(cluster, answer)
        notified = cluster.brokers[2]
        await asyncio.sleep(5)

        assert len(notified.received) == len(set(map(id, notified.received))) > 1

    play(story)


def test_while_the_store_does_not_say_whether_it_ended_it_is_sent_again(play):
    async def story(cluster):
        lost = ConnectionLostError("no answer")
        await refusing_broker(cluster, lost, lost, lost, False)
        notified = cluster.brokers[2]
        await asyncio.sleep(5)

        first = notified.received[0]
        assert sum(each is first for each in notified.received) == 4
        assert notified.received[-1] is not first

    play(story)


def test_it_ends_with_the_registration(play):
    async def story(cluster):
        node = await refusing_broker(cluster)
        notified = cluster.brokers[2]
        await cluster.until(lambda: len(notified.received) == 2)
        await cluster.nodes[2].store.delete(layout.broker_path(2))
        await cluster.until(lambda: 2 not in node.channels.queued())
        sent = len(notified.received)
        await asyncio.sleep(5)

        assert len(notified.received) == sent

    play(story)
