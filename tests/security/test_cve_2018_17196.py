"""CVE-2018-17196: a client wrote records of a transaction without Write on its transactional id."""

import pytest
from tests.unit.broker.live import play, produce, produced

from odradek.model.acl import ResourceType
from odradek.model.errors import ErrorCode

T0 = ("t", 0)


class NoTransactions:
    """Allows everything but on transactional ids."""

    version = 1

    def authorize(self, session, operation, resource_type, name, *, is_logged=True):
        return resource_type is not ResourceType.TRANSACTIONAL_ID


class NoTopics:
    """Allows everything but on topics, from here on."""

    version = 2

    def authorize(self, session, operation, resource_type, name, *, is_logged=True):
        return resource_type is not ResourceType.TOPIC


@pytest.mark.parametrize("transactional_id", [None, "x"])
@pytest.mark.parametrize("version", [3, 9, 11])
def test_records_of_a_transaction_need_write_on_the_id(transactional_id, version):
    async def story(live):
        await live.topic("t")
        live.authorizer.chosen = NoTransactions()
        batch = live.batch(
            b"a", producer_id=5, producer_epoch=0, base_sequence=0, transactional=True
        )
        plain = live.batch(b"a")
        request = produce({T0: plain, ("t", 1): batch}, transactional_id=transactional_id)
        answer = await live.peer().ask(request, version)

        assert set(produced(answer).values()) == {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
        assert live.log().leo == 0

    play(story)


def test_without_an_authorizer_records_of_a_transaction_need_an_id():
    async def story(live):
        await live.topic("t")
        batch = live.batch(
            b"a", producer_id=5, producer_epoch=0, base_sequence=0, transactional=True
        )
        answer = await live.peer().ask(produce(batch))

        assert produced(answer) == {T0: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
        assert live.log().leo == 0

    play(story)


def test_other_records_need_no_transactional_id():
    async def story(live):
        await live.topic("t")
        live.authorizer.chosen = NoTransactions()
        answer = await live.peer().ask(produce(live.batch(b"a"), transactional_id="x"))

        assert produced(answer) == {T0: 0}

    play(story)


def test_write_on_the_id_is_not_enough():
    async def story(live):
        await live.topic("t")
        live.authorizer.chosen = NoTopics()
        batch = live.batch(
            b"a", producer_id=5, producer_epoch=0, base_sequence=0, transactional=True
        )
        answer = await live.peer().ask(produce(batch, transactional_id="x"))

        assert produced(answer) == {T0: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        assert live.log().leo == 0

    play(story)
