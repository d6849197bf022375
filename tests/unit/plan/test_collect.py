"""What the doctor is refused for want of a permission does not count as absent."""

import asyncio

import pytest

from odradek.model.errors import ApiError, ErrorCode
from odradek.plan.collect import throttles_of
from odradek.wire.messages.describe_configs import (
    DescribeConfigsResponse,
    DescribeConfigsResult,
)

DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class DeniedConfigs:
    """A cluster that describes the options of topics, and refuses those of brokers."""

    def __init__(self, code):
        self.code = code

    async def refresh(self):
        pass

    async def broker(self, _id):
        return self

    async def nodes(self):
        return {0: None}

    async def request(self, request, _response):
        results = [
            DescribeConfigsResult(
                resource_type=each.resource_type,
                resource_name=each.resource_name,
                error_code=0 if each.resource_name == "t" else self.code,
            )
            for each in request.resources
        ]  # fmt: skip
        return DescribeConfigsResponse(results=results)


def throttles(code, **more):
    return asyncio.run(throttles_of(DeniedConfigs(code), [0], ["t"], **more))


def test_throttles_that_may_not_be_seen_are_not_taken_for_none():
    with pytest.raises(ApiError) as refused:
        throttles(DENIED, of_all=True)
    assert refused.value.code == DENIED


def test_throttles_of_what_does_not_exist_any_more_and_of_a_plan_are_those_that_are_seen():
    assert throttles(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, of_all=True) == ({}, {"t": {}})
    assert throttles(DENIED) == ({}, {"t": {}})
