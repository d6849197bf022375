"""Brokers that do not answer, or are not Odradek's, are named with the reason."""

import asyncio

from odradek.explain.reports import NOT_OURS, ask_cluster
from odradek.model.errors import ApiError, ErrorCode
from odradek.plan.commands import Caller
from odradek.plan.facts import Gap, Reason

CLUSTER_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class Foreign:
    """A connection to a broker that does not offer reports."""

    versions = {}  # noqa: RUF012 - constant


class FakeCluster:
    def __init__(self, **brokers):
        self.brokers = brokers

    async def refresh(self):
        pass

    async def nodes(self):
        return {int(name[1:]): None for name in self.brokers}

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
