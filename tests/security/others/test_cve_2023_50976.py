"""CVE-2023-50976 (Redpanda): APIs of transactions were not authorized."""

import asyncio

import pytest
from tests.unit.broker.apis.test_authorization import CHECKED, Only, state_of
from tests.unit.broker.every_api import error_codes
from tests.unit.broker.live import play

from odradek.wire.api_keys import ApiKey

TRANSACTIONAL = {
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.DESCRIBE_TRANSACTIONS,
}
EXAMPLES = [example for example in CHECKED if example.api in TRANSACTIONAL]


def test_there_is_an_example_of_each():
    assert {example.api for example in EXAMPLES} == TRANSACTIONAL


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_without_rights_nothing_is_changed(example):
    async def story(live):
        await live.topic("t", 2)
        await asyncio.sleep(1)
        live.authorizer.chosen = Only()
        before = state_of(live)
        version = example.last
        response = await live.peer().ask(example.request(live, version), version)
        assert error_codes(response) == {example.refusal}
        await asyncio.sleep(1)
        assert state_of(live) == before

    play(story)
