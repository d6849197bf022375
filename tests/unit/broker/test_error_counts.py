"""The errors that clients got are counted by API, client and what the request names."""

import asyncio
import json
from types import SimpleNamespace

from tests.unit.broker.live import fetch, play, produce

from odradek.broker.error_counts import (
    KEPT_MAX,
    KEPT_OF_A_HOST_MAX,
    TEXT_MAX,
    ErrorCounts,
    Subject,
)
from odradek.broker.serving.answered_errors import ELEMENTS_MAX, ERRORS_MAX, errors_in
from odradek.model.errors import ErrorCode
from odradek.wire.api_keys import APIS, ApiKey
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from odradek.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from odradek.wire.messages.describe_state import DescribeStateRequest
from odradek.wire.messages.end_txn import EndTxnRequest
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.heartbeat import HeartbeatRequest
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

BY_NAME = 12
GROUP, TRANSACTION = 0, 1
LOADING = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)


async def reported(live, name="errors"):
    answer = await live.peer().ask(DescribeStateRequest(report="broker", fields=[]))
    return json.loads(bytes(answer.body))[name]


def client(live, client_id):
    peer = live.peer()
    peer.client_id = client_id
    return peer


async def coordinated(live, key, kind):
    """Wait until the coordinator of a group or a transactional id serves."""
    peer = live.peer()
    asked = (
        InitProducerIdRequest(transactional_id=key, transaction_timeout_ms=60_000)
        if kind == TRANSACTION
        else HeartbeatRequest(group_id=key)
    )
    while True:
        await peer.ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]), 4)
        if (await peer.ask(asked, 3)).error_code not in LOADING:
            return
        await asyncio.sleep(0.05)


async def counted(live):
    """The errors of the clients of a test: those of `coordinated` have the name `peer`."""
    return [each for each in await reported(live) if each["client_id"] != "peer"]


def join(group, *protocols, member_id="", instance_id=None):
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name=name) for name in protocols],
    )


# ---------------------------------------------------------------------------- what is counted


def test_two_producers_with_one_transactional_id_are_counted():
    async def story(live):
        await coordinated(live, "pay", TRANSACTION)
        asked = InitProducerIdRequest(transactional_id="pay", transaction_timeout_ms=60_000)
        first = await client(live, "a").ask(asked, 4)
        await client(live, "b").ask(asked, 4)
        ends = EndTxnRequest(
            transactional_id="pay",
            producer_id=first.producer_id,
            producer_epoch=first.producer_epoch,
            committed=True,
        )
        answer = await client(live, "a").ask(ends, 3)

        assert answer.error_code == ErrorCode.PRODUCER_FENCED
        (error,) = await counted(live)
        assert (error["api"], error["error"]) == ("EndTxn", "PRODUCER_FENCED")
        assert (error["client_id"], error["transactional_id"]) == ("a", "pay")
        assert (error["host"], error["count"]) == ("10.0.0.7", 1)

    play(story)


def test_two_applications_in_one_group_are_counted():
    async def story(live):
        await coordinated(live, "g", GROUP)
        waiting = client(live, "a").send(join("g", "range"), 3)
        answer = await client(live, "b").ask(join("g", "roundrobin"), 3)

        assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        (error,) = await counted(live)
        assert (error["api"], error["error"]) == ("JoinGroup", "INCONSISTENT_GROUP_PROTOCOL")
        assert (error["client_id"], error["group"]) == ("b", "g")
        waiting.cancel()

    play(story)


def test_two_consumers_with_one_instance_id_are_counted():
    async def story(live):
        await coordinated(live, "g", GROUP)
        first = await client(live, "a").ask(join("g", "range", instance_id="i"), 5)
        second = client(live, "b").send(join("g", "range", instance_id="i"), 5)
        beat = HeartbeatRequest(
            group_id="g",
            generation_id=first.generation_id,
            member_id=first.member_id,
            group_instance_id="i",
        )
        answer = await client(live, "a").ask(beat, 3)

        assert answer.error_code == ErrorCode.FENCED_INSTANCE_ID
        (error,) = await counted(live)
        assert (error["api"], error["error"]) == ("Heartbeat", "FENCED_INSTANCE_ID")
        assert (error["client_id"], error["group"], error["instance_id"]) == ("a", "g", "i")
        second.cancel()

    play(story)


def test_a_topic_that_does_not_exist_is_counted_for_each_client():
    async def story(live):
        await live.topic("orders")
        asked = MetadataRequest(
            topics=[MetadataRequestTopic(name="orderz"), MetadataRequestTopic(name="orders")],
            allow_auto_topic_creation=False,
        )
        for _ in range(3):
            await client(live, "app").ask(asked)

        (error,) = await counted(live)
        assert (error["api"], error["topic"]) == ("Metadata", "orderz")
        assert (error["error"], error["count"]) == ("UNKNOWN_TOPIC_OR_PARTITION", 3)

    play(story)


def test_errors_of_fetch_and_produce_are_counted():
    async def story(live):
        await live.topic("t")
        await client(live, "reads").ask(fetch({("t", 0): 99}), BY_NAME)
        await client(live, "writes").ask(produce(live.batch(b"a"), "unknown"))

        by_client = {each["client_id"]: each for each in await counted(live)}
        read, written = by_client["reads"], by_client["writes"]
        assert (read["api"], read["error"], read["topic"]) == ("Fetch", "OFFSET_OUT_OF_RANGE", "t")
        assert (written["api"], written["topic"]) == ("Produce", "unknown")

    play(story)


def test_errors_of_the_protocol_are_not_counted():
    async def story(live):
        await coordinated(live, "g", GROUP)
        answer = await client(live, "a").ask(join("g", "range"), 5)

        assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert await counted(live) == []

    play(story)


def test_a_throttled_client_is_counted_with_the_quota_that_it_exceeds():
    async def story(live):
        await live.topic("t")
        entity = [EntityData(entity_type="client-id", entity_name="app")]
        ops = [OpData(key="producer_byte_rate", value=100.0)]
        request = AlterClientQuotasRequest(entries=[EntryData(entity=entity, ops=ops)])
        await live.peer().ask(request)
        await live.until(lambda: not live.broker.client_quotas._is_unlimited)
        peer = client(live, "app")
        for _ in range(2):
            await peer.ask(produce(live.batch(b"x" * 2_000)))

        (throttle,) = await reported(live, "throttles")
        assert (throttle["client_id"], throttle["client"], throttle["user"]) == ("app", "app", "")
        assert (throttle["option"], throttle["rate"]) == ("producer_byte_rate", 100.0)
        assert throttle["count"] >= 1
        assert throttle["total_ms"] > 0

    play(story)


# ------------------------------------------------------------------------ errors in responses


def test_each_topic_of_a_response_has_its_error():
    response = ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=name,
                partitions=[
                    ListOffsetsPartitionResponse(partition_index=n, error_code=error)
                    for n, error in enumerate(errors)
                ],
            )
            for name, errors in (("a", (0, 3, 3)), ("b", (0,)), ("c", (6, 3)))
        ]
    )

    found = errors_in(ApiKey.LIST_OFFSETS, ListOffsetsRequest(), response)

    assert found == [(3, Subject("a")), (6, Subject("c")), (3, Subject("c"))]


def test_the_errors_of_a_transactions_partitions_name_it():
    results = [
        AddPartitionsToTxnTopicResult(
            name="t",
            results_by_partition=[AddPartitionsToTxnPartitionResult(partition_error_code=90)],
        )
    ]
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="pay",
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
    )
    response = AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)

    found = errors_in(ApiKey.ADD_PARTITIONS_TO_TXN, request, response)

    assert found == [(90, Subject(topic="t", transactional_id="pay"))]


def test_a_response_with_very_many_errors_is_examined_in_part():
    topics = [
        ListOffsetsTopicResponse(
            name=f"t{n}", partitions=[ListOffsetsPartitionResponse(error_code=3)]
        )
        for n in range(ELEMENTS_MAX * 2)
    ]

    found = errors_in(ApiKey.LIST_OFFSETS, ListOffsetsRequest(), ListOffsetsResponse(topics=topics))

    assert len(found) == ERRORS_MAX


def test_every_response_can_be_examined():
    for key, api in APIS.items():
        assert errors_in(key, None, api.response_class()) == []


# --------------------------------------------------------------------------- bounded memory


def session(host="10.0.0.7", client_id="app"):
    return SimpleNamespace(client_host=host, client_id=client_id)


def test_a_host_that_invents_names_drops_its_own_errors_and_no_others():
    counts = ErrorCounts(lambda: 5)
    counts.count(session("10.0.0.1"), 3, 3, Subject("kept"))
    for n in range(3 * KEPT_MAX):
        counts.count(session("10.0.0.9", f"c{n}"), 3, 3, Subject(f"t{n}"))

    assert len(counts.errors) == KEPT_OF_A_HOST_MAX + 1
    assert [each["topic"] for each in counts.errors_as_json()][-1] == "kept"


def test_many_hosts_drop_what_was_counted_longest_ago():
    counts = ErrorCounts(lambda: 5)
    for n in range(KEPT_MAX + 1):
        counts.count(session(f"10.0.{n // 250}.{n % 250}"), 3, 3, Subject(f"t{n}"))

    topics = [each["topic"] for each in counts.errors_as_json()]
    assert len(topics) == KEPT_MAX
    assert "t0" not in topics


def test_long_names_are_cut():
    counts = ErrorCounts(lambda: 5)
    counts.count(session(client_id="c" * 30_000), 3, 3, Subject("t" * 30_000))

    (error,) = counts.errors_as_json()
    assert (len(error["client_id"]), len(error["topic"])) == (TEXT_MAX, TEXT_MAX)


def test_a_repeated_error_has_its_first_and_its_last_time():
    times = iter([1_000, 2_000, 3_000])
    counts = ErrorCounts(lambda: next(times))
    for _ in range(3):
        counts.count(session(), 3, 3, Subject("t"))

    (error,) = counts.errors_as_json()
    assert (error["first_ms"], error["last_ms"], error["count"]) == (1_000, 3_000, 3)
