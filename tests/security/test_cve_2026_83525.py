"""CVE-2026-83525: a request without elements ended the controller's process.

The request (FetchSnapshot) is of KRaft alone. Here every request is sent without elements, and with
one empty element in each list, by a client that may do everything.
"""

import asyncio

import pytest
from tests.unit.broker.live import play

from odradek.wire.api_keys import APIS, ApiKey, request_class
from odradek.wire.messages.api_versions import ApiVersionsRequest

TERM = {"controller_epoch": 1}  # of the test's controller, so that its requests are not stale


def without_elements(message_class, _version):
    """A request with its defaults: lists are empty."""
    names = {field.name for field in message_class.SCHEMA.fields}
    return message_class(**{name: value for name, value in TERM.items() if name in names})


def with_empty_elements(message_class, version):
    """A request with one element in each list, whose own lists are empty."""
    request = without_elements(message_class, version)
    for field in message_class.SCHEMA.fields:
        is_list = field.kind == "array" and isinstance(field.part, type)
        if is_list and version in field.versions:
            setattr(request, field.name, [field.part()])
    return request


@pytest.mark.parametrize("make", [without_elements, with_empty_elements])
@pytest.mark.parametrize("key", APIS, ids=lambda key: ApiKey(key).name)
def test_a_request_without_elements_ends_no_more_than_its_connection(key, make):
    async def story(live):
        await live.topic("t", 2)
        for version in range(APIS[key].first, APIS[key].last + 1):
            sent = live.peer().send(make(request_class(key), version), version)
            await asyncio.wait([sent], timeout=120)
            other = await live.peer().ask(ApiVersionsRequest(), 0)
            assert other.error_code == 0
        assert live.fatal == []

    play(story)
