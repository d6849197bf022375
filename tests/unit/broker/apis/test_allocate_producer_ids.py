"""AllocateProducerIds: blocks of producer ids for registered brokers, as in Apache Kafka."""

import pytest
from tests.unit.broker.live import play

from odradek.model.errors import ErrorCode
from odradek.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest


async def allocate(live, *, broker=0, broker_epoch):
    request = AllocateProducerIdsRequest(broker_id=broker, broker_epoch=broker_epoch)
    answer = await live.peer().ask(request)
    return ErrorCode(answer.error_code), answer.producer_id_start, answer.producer_id_len


def test_a_registered_broker_gets_the_next_block():
    async def story(live):
        epoch = live.broker.broker_epoch
        assert await allocate(live, broker_epoch=epoch) == (ErrorCode.NONE, 0, 1_000)
        assert await allocate(live, broker_epoch=epoch) == (ErrorCode.NONE, 1_000, 1_000)

    play(story)


@pytest.mark.parametrize("epoch_of", [lambda epoch: epoch - 1, lambda _: -1])
def test_a_request_of_another_registration_gets_no_block(epoch_of):
    async def story(live):
        epoch = live.broker.broker_epoch
        stale = await allocate(live, broker_epoch=epoch_of(epoch))
        assert stale[0] == ErrorCode.STALE_BROKER_EPOCH
        assert await allocate(live, broker_epoch=epoch) == (ErrorCode.NONE, 0, 1_000)

    play(story)


def test_a_broker_that_is_not_registered_gets_no_block():
    async def story(live):
        answer = await allocate(live, broker=9, broker_epoch=live.broker.broker_epoch)
        assert answer[0] == ErrorCode.BROKER_ID_NOT_REGISTERED

    play(story)
