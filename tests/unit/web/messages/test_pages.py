"""How many searches run at the same time."""

import asyncio

import pytest
from starlette.exceptions import HTTPException

from odradek.web.messages.pages import SearchLanes


def test_a_search_waits_for_a_lane_and_gets_one_that_is_free():
    async def work():
        lanes = SearchLanes(1)
        async with lanes.lane() as first:
            second = lanes.lane()
            waiting = asyncio.create_task(second.__aenter__())
            await asyncio.sleep(0)
            assert not waiting.done()
        return first, await waiting

    first, second = asyncio.run(work())

    assert first == second


def test_a_search_is_refused_when_no_lane_becomes_free():
    async def work():
        lanes = SearchLanes(1, wait_s=0.0)
        async with lanes.lane(), lanes.lane():
            pass

    with pytest.raises(HTTPException, match="no more are allowed"):
        asyncio.run(work())
