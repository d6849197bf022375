"""Requests to partition leaders: what is retried, what is an error at once, and until when."""

import asyncio

import pytest
from tests.unit.client.fakes import FakeCluster

from odradek.client.errors import ClientTimeoutError
from odradek.client.fetch.leaders import try_leaders
from odradek.client.fetch.offsets import (
    LATEST,
    MAX_TIMESTAMP,
    ListedOffset,
    list_offsets,
    try_to_list_offsets,
)
from odradek.client.settings import ClientSettings
from odradek.model.errors import ApiError, ErrorCode
from odradek.model.partition import TopicPartition
from odradek.sim.world.loop import run
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

T0, OTHER = TopicPartition("t", 0), TopicPartition("missing", 0)


def listed(code=0, offset=7):
    part = ListOffsetsPartitionResponse(
        partition_index=0, error_code=code, offset=offset, timestamp=-1, leader_epoch=3
    )
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[part])])


def asked(call, *answers):
    """The result of `call(cluster)` and the cluster, whose broker gives these answers in turn."""

    async def play():
        cluster = FakeCluster(settings=ClientSettings(api_timeout_ms=5_000))
        cluster.answers = list(answers)
        return await call(cluster), cluster

    return run(play())


@pytest.mark.parametrize(
    "failure",
    [
        listed(ErrorCode.NOT_LEADER_OR_FOLLOWER),
        listed(ErrorCode.UNKNOWN_LEADER_EPOCH),
        ConnectionError("closed"),
        ApiError(ErrorCode.BROKER_NOT_AVAILABLE, "there is no broker 1"),
    ],
    ids=["not leader", "unknown leader epoch", "connection lost", "broker not registered"],
)
def test_a_temporary_error_is_retried_with_new_metadata(failure):
    found, cluster = asked(lambda c: list_offsets(c, {T0: LATEST}), failure, listed())

    assert found == {T0: ListedOffset(7, -1, 3)}
    assert cluster.refreshed == 2
    assert cluster.asked[0].topics[0].partitions[0].current_leader_epoch == 0


def test_a_permanent_error_is_raised_or_returned():
    refused = listed(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    with pytest.raises(ApiError, match="TOPIC_AUTHORIZATION_FAILED: t-0"):
        asked(lambda c: list_offsets(c, {T0: LATEST}), refused)
    found, _ = asked(lambda c: try_to_list_offsets(c, {T0: LATEST}), refused)
    assert found[T0].code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_missing_topic_is_an_error_at_once_or_is_waited_for():
    found, cluster = asked(lambda c: try_to_list_offsets(c, {OTHER: LATEST, T0: LATEST}), listed())
    assert str(found[OTHER]).endswith("because metadata for topic `missing` could not be found")
    assert (found[T0].offset, cluster.refreshed) == (7, 1)

    with pytest.raises(ClientTimeoutError, match="in 1500ms: missing-0$"):
        asked(lambda c: list_offsets(c, {OTHER: LATEST, T0: LATEST}, timeout_ms=1500), listed())


def test_a_cluster_that_does_not_answer_is_an_error_after_the_time_out():
    async def ask(connection, wanted):
        raise ConnectionError("refused")

    async def call(cluster):
        found = await try_leaders(cluster, {T0: None}, ask)
        return found, asyncio.get_running_loop().time()

    (found, ended_s), _ = asked(call)

    assert str(found[T0]) == "NETWORK_EXCEPTION: refused"
    assert 4 < ended_s <= 5


def test_an_offset_that_the_broker_cannot_list_is_an_error_of_its_own():
    async def call(cluster):
        cluster.connection.name = "b:1"
        cluster.connection.version_of = lambda api_key: 6
        return await try_to_list_offsets(cluster, {T0: MAX_TIMESTAMP})

    found, cluster = asked(call)

    assert "b:1 does not support the MAX_TIMESTAMP offset spec" in str(found[T0])
    assert cluster.asked == []
