"""Brokers that do not answer, or are not Odradek's, are named with the reason."""

import asyncio
import json

from odradek.explain.reports import NOT_OURS, ask_cluster
from odradek.model.errors import ApiError, ErrorCode
from odradek.plan.commands import Caller
from odradek.plan.facts import Gap, Reason
from odradek.wire.api_keys import ApiKey
from odradek.wire.messages.describe_state import DescribeStateResponse

CLUSTER_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class Foreign:
    """A connection to a broker that does not offer reports."""

    versions = {}  # noqa: RUF012 - constant


class FakeCluster:
    def __init__(self, others=(), **brokers):
        self.others = dict(others)  # at bootstrap addresses that the metadata does not name
        self.brokers = brokers

    async def refresh(self):
        pass

    async def nodes(self):
        return {int(name[1:]): None for name in self.brokers}

    def unnamed(self):
        return [*self.others]

    async def open(self, host, port):
        return self.others[host, port]

    async def broker(self, id_):
        found = self.brokers[f"b{id_}"]
        if isinstance(found, Exception):
            raise found
        return found


def test_brokers_that_report_nothing_are_named_with_the_reason():
    cluster = FakeCluster(
        b1=Foreign(), b2=ConnectionError("h:1: Connection refused"),
        b3=ApiError(ErrorCode.BROKER_NOT_AVAILABLE, "removed"), b4=TimeoutError(),
        b5=ApiError(CLUSTER_DENIED),
    )  # fmt: skip
    asked = asyncio.run(ask_cluster(cluster, Caller("h:1"), {"controller": {}, "journal": {}}))

    assert asked.silent == {
        1: NOT_OURS, 2: Gap("h:1: Connection refused"), 3: Gap("BROKER_NOT_AVAILABLE: removed"),
        4: Gap("no answer within 5 s"),
        5: Gap("CLUSTER_AUTHORIZATION_FAILED", Reason.DENIED, CLUSTER_DENIED),
    }  # fmt: skip
    assert asked.foreign == [1]
    assert (asked.state, asked.journal, asked.caller.bootstrap) == (None, [], "h:1")


class Reporting:
    """A connection to a broker that makes reports."""

    versions = (ApiKey.DESCRIBE_STATE,)

    def __init__(self, broker_id):
        self.broker_id = broker_id
        self.is_closed = False

    async def request(self, request, _response, timeout_ms):
        body = {"broker_id": self.broker_id, "report": request.report}
        return DescribeStateResponse(body=json.dumps(body).encode())

    async def close(self):
        self.is_closed = True


def test_a_broker_that_is_not_registered_is_asked_at_its_bootstrap_address():
    cut_off, known = Reporting(2), Reporting(1)
    cluster = FakeCluster({("h", 2): cut_off, ("h", 3): known}, b1=Reporting(1))
    wanted = {"broker": {}, "controller": {}}
    asked = asyncio.run(ask_cluster(cluster, Caller("h:1,h:2,h:3"), wanted))

    assert asked.by_broker("broker").keys() == {1, 2}
    assert asked.by_broker("controller").keys() == {1}  # it may have been the controller
    assert cut_off.is_closed
    assert known.is_closed
