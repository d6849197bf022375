"""InitProducerId: unique ids, from blocks that the controller allocates."""

import asyncio

import pytest
from tests.unit.broker.live import play

from odradek.broker.coordinators.producer_ids import ProducerIds
from odradek.coord import layout
from odradek.coord.store import SetData
from odradek.model.errors import ApiError, ErrorCode
from odradek.sim.world.loop import run
from odradek.wire.messages.init_producer_id import InitProducerIdRequest


async def ask(live, version=5, **fields):
    request = InitProducerIdRequest(**{"transactional_id": None, **fields})
    response = await live.peer().ask(request, version)
    return ErrorCode(response.error_code) or (response.producer_id, response.producer_epoch)


def test_ids_rise_and_a_restart_takes_another_block():
    async def story(live):
        assert [await ask(live, version) for version in range(6)] == [(n, 0) for n in range(6)]
        await live.restart()
        assert await ask(live) == (1000, 0)

    play(story)


def test_a_producer_that_names_its_id_and_epoch_gets_the_next_epoch():
    async def story(live):
        assert await ask(live, producer_id=0, producer_epoch=3) == (0, 0)
        assert await ask(live, producer_id=0, producer_epoch=3) == (1, 0)

    play(story)


@pytest.mark.parametrize("half", [{"producer_id": 5}, {"producer_epoch": 5}])
def test_half_of_what_it_has_is_an_invalid_request(half):
    async def story(live):
        assert await ask(live, **half) == ErrorCode.INVALID_REQUEST

    play(story)


def test_transactions_have_their_coordinator_elsewhere():
    async def story(live):
        named = {"transactional_id": "x", "transaction_timeout_ms": 1000}
        assert await ask(live, **named) == ErrorCode.NOT_COORDINATOR
        assert await ask(live, transactional_id="") == ErrorCode.INVALID_REQUEST

    play(story)


def test_a_former_controller_allocates_no_block():
    async def story(live):
        live.tree.write(
            lambda draft: draft.single(SetData(layout.CONTROLLER_EPOCH, b"9"), session=0)
        )
        assert await ask(live) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    play(story)


def test_without_a_controller_there_are_none_for_now():
    async def story(live):
        await live.broker.controller.stop()
        assert await ask(live) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    play(story)


def test_all_waiting_producers_share_one_request_for_a_block():
    async def scenario():
        asked = []

        async def allocate():
            asked.append(len(asked))
            await asyncio.sleep(1)
            return 1000 * asked[-1], 1000

        ids = ProducerIds(allocate)
        drawn = await asyncio.gather(*(ids.next() for _ in range(1500)))
        return drawn, asked

    drawn, asked = run(scenario())
    assert sorted(drawn) == list(range(1500))
    assert asked == [0, 1]


def test_a_block_that_was_refused_is_asked_for_again():
    async def scenario():
        refusals = [ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)]

        async def allocate():
            if refusals:
                raise refusals.pop()
            return 7000, 1000

        ids = ProducerIds(allocate)
        with pytest.raises(ApiError):
            await ids.next()
        return await ids.next()

    assert run(scenario()) == 7000
