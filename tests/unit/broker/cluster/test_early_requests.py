"""Requests of the controller that come before the broker knows its broker epoch."""

import asyncio

import pytest
from tests.unit.broker.live import Live, play, produce, produced
from tests.unit.broker.test_controller_requests import KINDS, has_happened, know, lead

import odradek.sim.world.loop as sim
from odradek.broker.cluster.early_requests import WAITING_MAX
from odradek.coord import layout
from odradek.coord.memory import MemoryStore, RequestFate
from odradek.model.errors import ErrorCode
from odradek.wire.messages.describe_cluster import DescribeClusterRequest
from odradek.wire.messages.metadata import MetadataRequest
from odradek.wire.messages.update_metadata import UpdateMetadataEndpoint

PATH = layout.broker_path(0)
LATE_MS = 500  # of the store's answer to the registration
every_kind = pytest.mark.parametrize("kind", KINDS)


def late_answer(operation):
    return RequestFate(answer_delay_ms=LATE_MS if operation == "multi" else 0)


def play_early(story, **properties):
    """Play a story with a broker that is registered, and has not been answered."""

    async def main():
        live = Live({key.replace("_", "."): str(value) for key, value in properties.items()})
        # A controller of another session: this broker's own one is not elected.
        live.controller = MemoryStore(live.tree)
        await live.controller.open()
        for path in layout.TOP_LEVEL:
            await live.controller.create(path, make_parents=True)
        await live.controller.create(layout.CONTROLLER, b"", ephemeral=True)
        live.store.fate = late_answer
        live.starting = asyncio.create_task(live.broker.start())
        await live.until(lambda: live.tree.find(PATH) is not None)
        try:
            await story(live)
        finally:
            live.starting.cancel()
            await asyncio.gather(live.starting, return_exceptions=True)
            await live.end()

    sim.run(main())


def epoch_of(live):
    return live.tree.find(PATH).created_id


def error_of(answer):
    return ErrorCode(answer.result().error_code)


@every_kind
def test_a_request_waits_until_the_broker_epoch_is_known_and_is_accepted(kind):
    async def story(live):
        answer = live.peer().send(KINDS[kind](broker_epoch=epoch_of(live)))
        await asyncio.sleep(LATE_MS / 2000)
        assert live.broker.broker_epoch == -1
        assert not answer.done()
        assert live.partition() is None
        assert live.broker.metadata.topic("t") is None

        await live.until(answer.done)
        assert live.broker.broker_epoch == epoch_of(live)
        assert error_of(answer) is ErrorCode.NONE
        await live.until(lambda: has_happened(live, kind))
        assert live.broker.controller_requests.refused == 0

    play_early(story)


@every_kind
def test_a_request_for_an_earlier_registration_waits_and_is_refused(kind):
    async def story(live):
        answer = live.peer().send(KINDS[kind](broker_epoch=epoch_of(live) - 1))
        await asyncio.sleep(LATE_MS / 2000)
        assert not answer.done()

        await live.until(answer.done)
        assert error_of(answer) is ErrorCode.STALE_BROKER_EPOCH
        assert live.partition() is None
        assert live.broker.metadata.topic("t") is None

    play_early(story)


def test_a_request_for_a_session_that_ended_before_the_answer_is_refused():
    async def story(live):
        first = epoch_of(live)
        answer = live.peer().send(lead(broker_epoch=first))
        live.store.cut()  # the answer is lost
        live.tree.expire(live.store.session_id)
        live.store.restore()
        await live.until(answer.done)

        assert epoch_of(live) == live.broker.broker_epoch > first
        assert error_of(answer) is ErrorCode.STALE_BROKER_EPOCH
        assert live.partition() is None

    play_early(story)


def test_requests_of_one_controller_are_handled_in_their_order():
    async def story(live):
        peer = live.peer()
        update = peer.send(know(broker_epoch=epoch_of(live)))
        roles = peer.send(lead(broker_epoch=epoch_of(live)))
        await live.until(roles.done)

        assert update.done()
        assert (error_of(update), error_of(roles)) == (ErrorCode.NONE, ErrorCode.NONE)

    play_early(story)


def test_other_requests_are_answered_meanwhile():
    async def story(live):
        held = live.peer().send(know(broker_epoch=epoch_of(live)))
        refused = await live.peer().ask(produce(live.batch(b"a")))

        assert produced(refused) == {("t", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert not held.done()

    play_early(story)


def test_a_broker_that_stops_meanwhile_hangs_up_on_its_controller():
    async def story(live):
        peer = live.peer()
        answer = peer.send(lead(broker_epoch=epoch_of(live)))
        live.starting.cancel()
        await live.broker.stop()

        await live.until(lambda: peer.closed)
        assert answer.cancelled()
        assert live.partition() is None

    play_early(story)


def test_the_number_of_waiting_requests_is_limited():
    async def story(live):
        first = [live.peer() for _ in range(WAITING_MAX)]
        answers = [peer.send(know(broker_epoch=epoch_of(live))) for peer in first]
        above = live.peer()
        above.send(know(broker_epoch=epoch_of(live)))
        await live.until(lambda: above.closed)
        assert not any(peer.closed for peer in first)

        first[0].hang_up()  # makes room for another
        await asyncio.sleep(0)
        next_one = live.peer()
        last = next_one.send(know(broker_epoch=epoch_of(live)))
        await live.until(last.done)
        assert all(answer.done() for answer in answers)
        assert error_of(last) is ErrorCode.NONE

    play_early(story)


@pytest.mark.parametrize(
    "request_", [MetadataRequest(topics=None), DescribeClusterRequest()], ids=type
)
def test_a_client_is_not_told_of_an_empty_cluster(request_):
    async def story(live):
        answer = live.peer().send(request_)
        await live.until(lambda: live.broker.broker_epoch >= 0)
        await asyncio.sleep(1)
        assert not answer.done(), "the controller has not announced the broker yet"

        update = know(broker_epoch=epoch_of(live))
        update.live_brokers[0].endpoints.append(
            UpdateMetadataEndpoint(host="b0", port=9092, listener="PLAINTEXT")
        )
        await live.peer().ask(update)
        await live.until(answer.done)
        assert [broker.host for broker in answer.result().brokers] == ["b0"]

    play_early(story)


def test_a_broker_that_is_never_announced_says_so_to_describe_cluster():
    async def story(live):
        answer = await live.peer().ask(DescribeClusterRequest())

        assert ErrorCode(answer.error_code) is ErrorCode.BROKER_NOT_AVAILABLE

    play_early(story, zookeeper_session_timeout_ms=6000)


def test_a_registration_needs_one_answer_of_the_store():
    async def story(live):
        asked = []

        def watched(operation):
            asked.append(operation)
            return RequestFate()

        await live.broker.stop()
        live.broker = live.make()
        live.store.fate = watched
        await live.start()

        # The epoch is in the result of the write; what comes next is the election.
        assert live.broker.broker_epoch == epoch_of(live)
        assert asked[asked.index("multi") + 1] != "exists"

    play(story)
