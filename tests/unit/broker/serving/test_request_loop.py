"""From frame to handler and back: order, malformed requests, slow requests, and counters."""

import asyncio
import inspect
import logging
from collections import Counter

import pytest
from tests.unit.broker.live import fetch, play, produce, produced

from odradek.broker.admin.topic_maker import MADE_AT_ONCE
from odradek.broker.serving.parts import PART
from odradek.broker.serving.request_loop import Route
from odradek.model.errors import ApiError, ErrorCode
from odradek.obs.metrics import FETCH_CONSUMER
from odradek.wire.api_keys import ApiKey
from odradek.wire.codec import encoder
from odradek.wire.header import encode_request_header
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)
from odradek.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from odradek.wire.messages.list_offsets import ListOffsetsRequest
from odradek.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from odradek.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

T0 = ("t", 0)


def replace(live, key, handle):
    live.broker.requests._routes[int(key)] = Route(handle)


def test_answers_keep_the_order_of_the_requests_however_long_each_takes():
    async def story(live):
        await live.topic("t")
        delays = iter([3.0, 1.0])

        async def slowly(request):
            await asyncio.sleep(next(delays))
            return DescribeClusterResponse(controller_id=request.header.correlation_id)

        replace(live, ApiKey.DESCRIBE_CLUSTER, slowly)
        peer, started, order = live.peer(), live.loop.time(), []
        requests = [
            (DescribeClusterRequest(), 1),
            (ApiVersionsRequest(), 0),
            (DescribeClusterRequest(), 1),
            (produce(live.batch(b"a")), 9),
            (fetch({T0: 0}), 12),
        ]
        answers = [peer.send(request, version) for request, version in requests]
        for n, answer in enumerate(answers):
            answer.add_done_callback(lambda _, n=n: order.append(n))
        assert not any(answer.done() for answer in answers)
        assert live.log().leo == 1, "handled all the same"
        await asyncio.gather(*answers)

        assert order == [0, 1, 2, 3, 4]
        assert live.loop.time() - started == pytest.approx(3.0, abs=0.01)

    play(story)


def test_a_request_that_came_in_the_turn_in_which_the_broker_stops_leaves_nothing_behind():
    async def story(live):
        handlers = []

        async def never(request):
            raise AssertionError(request)

        def begin(request):
            handlers.append(never(request))
            return handlers[0]

        replace(live, ApiKey.DESCRIBE_CLUSTER, begin)
        live.peer().send(DescribeClusterRequest(), 1)
        await live.broker.tasks.cancel_all()

        assert inspect.getcoroutinestate(handlers[0]) == inspect.CORO_CLOSED

    play(story)


def test_requests_in_pieces_and_many_at_once_are_the_same():
    async def story(live):
        await live.topic("t")
        peer = live.peer()
        frame = encode_request_header(18, 0, 1, "x")
        data = (len(frame).to_bytes(4, "big") + frame) * 3
        answers = [peer.expect_frame() for _ in range(3)]
        for byte in data:
            room = peer.connection.get_buffer(1)
            room[0] = byte
            peer.connection.buffer_updated(1)
        peer.connection.send_ready()

        assert len({bytes(answer.result()) for answer in answers}) == 1

    play(story)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(b"", id="nothing where a body was due"),
        pytest.param(b"\xff" * 3, id="too little of it"),
        pytest.param(b"\x7f" * 40, id="counts that cannot be"),
    ],
)
@pytest.mark.parametrize(
    ("key", "version"),
    [(ApiKey.PRODUCE, 9), (ApiKey.PRODUCE, 3), (ApiKey.FETCH, 12), (ApiKey.METADATA, 12)],
)
def test_damaged_requests_end_the_connection_with_one_line_and_a_count(
    key, version, damage, caplog
):
    async def story(live):
        await live.topic("t")
        peer, other = live.peer(), live.peer()
        before = peer.send(ApiVersionsRequest(), 0)
        with caplog.at_level(logging.WARNING):
            peer.send_frame(encode_request_header(key, version, 1, "x") + damage)
        assert before.result().error_code == ErrorCode.NONE, "what came before is answered"
        assert peer.closed
        output = [r.getMessage() for r in caplog.records if "closed 10.0.0.7" in r.getMessage()]
        assert len(output) == 1
        assert live.broker.metrics.requests.malformed == 1
        assert produced(await other.ask(produce(live.batch(b"a")))) == {T0: 0}

    play(story)


def test_a_frame_that_is_too_long_ends_the_connection_before_it_has_come():
    async def story(live):
        peer = live.peer()
        peer._to_send += (1001).to_bytes(4, "big")
        peer.pump()

        assert peer.closed
        assert live.broker.metrics.requests.malformed == 1

    play(story, socket_request_max_bytes=1000)


def test_what_waits_for_others_is_not_slow(caplog):
    async def story(live):
        async def slowly(request):
            await asyncio.sleep(3)
            return SyncGroupResponse()

        replace(live, ApiKey.SYNC_GROUP, slowly)
        with caplog.at_level(logging.WARNING):
            await live.peer().ask(SyncGroupRequest(), 5)
        assert "slow request" not in caplog.text

    play(story)


def test_an_error_that_a_handler_raises_is_answered_if_the_response_has_a_field_for_it():
    async def story(live):
        def refuse(request):
            raise ApiError(ErrorCode.POLICY_VIOLATION, "because")

        async def refuse_later(request):
            await asyncio.sleep(1)
            refuse(request)

        peer = live.peer()
        for handle in (refuse, refuse_later):
            replace(live, ApiKey.DESCRIBE_CLUSTER, handle)
            answer = await peer.ask(DescribeClusterRequest())
            assert answer.error_code == ErrorCode.POLICY_VIOLATION
            assert answer.error_message == "because"
        assert live.broker.metrics.requests.failed == 0, "refusing is no failure"

    play(story)


def test_an_error_without_a_field_closes_the_connection_after_earlier_answers():
    async def story(live):
        await live.order()

        def fail(request):
            raise RuntimeError("an unexpected error")

        replace(live, ApiKey.LIST_OFFSETS, fail)
        peer = live.peer()
        before = peer.send(ApiVersionsRequest(), 0)
        peer.send(ListOffsetsRequest())

        assert before.result().error_code == ErrorCode.NONE
        assert peer.closed

    play(story)


def test_an_answer_that_cannot_be_encoded_is_a_failure_of_ours():
    async def story(live):
        async def nonsense(request):
            return DescribeClusterResponse(controller_id=1 << 40)

        replace(live, ApiKey.DESCRIBE_CLUSTER, nonsense)
        answer = await live.peer().ask(DescribeClusterRequest())
        assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert live.broker.metrics.requests.failed == 1

    play(story)


def test_slow_requests_are_logged(caplog):
    async def story(live):
        async def slowly(request):
            await asyncio.sleep(1.5)
            return DescribeClusterResponse()

        peer = live.peer()
        peer.client_id = "sleepy"
        with caplog.at_level(logging.WARNING):
            await peer.ask(DescribeClusterRequest())
            assert "slow request" not in caplog.text
            replace(live, ApiKey.DESCRIBE_CLUSTER, slowly)
            await peer.ask(DescribeClusterRequest())
        assert "slow request: DescribeCluster version 1 from 10.0.0.7" in caplog.text
        assert "'sleepy' took 15" in caplog.text

    play(story)


def test_every_connection_has_a_session_of_its_own():
    async def story(live):
        first, second = live.peer(host="10.0.0.1"), live.peer(9093, host="10.0.0.2")
        first.client_id, second.client_id = "one", None
        await first.ask(MetadataRequest(topics=[]))
        await second.ask(MetadataRequest(topics=[]))
        sessions = [peer.connection.session for peer in (first, second)]

        assert [s.client_host for s in sessions] == ["10.0.0.1", "10.0.0.2"]
        assert [s.client_id for s in sessions] == ["one", None]
        assert [s.listener for s in sessions] == ["IN", "OUT"]
        assert {s.principal for s in sessions} == {"User:ANONYMOUS"}

    play(
        story,
        listeners="IN://b0:9092,OUT://b0:9093",
        listener_security_protocol_map="IN:PLAINTEXT,OUT:PLAINTEXT",
        inter_broker_listener_name="IN",
    )


def test_what_was_answered_is_counted_by_api_and_version():
    async def story(live):
        await live.topic("t")
        peer = live.peer()
        for _ in range(3):
            await peer.ask(produce(live.batch(b"a")), 9)
        peer.send(produce(live.batch(b"a"), acks=0), 9, answered=False)
        await peer.ask(fetch({T0: 0}), 12)
        apis = live.broker.metrics.requests.apis
        topic = live.broker.metrics.topics["t"]

        assert apis[ApiKey.PRODUCE].versions == {9: 4}
        assert apis[FETCH_CONSUMER].versions == {12: 1}
        assert apis[ApiKey.CREATE_TOPICS].versions == {7: 1}
        assert (topic.messages_in, topic.produces, topic.fetches) == (4, 4, 1)
        assert topic.bytes_in == topic.bytes_out == live.log().size_bytes

    play(story)


# ------------------------------------------------------------------------- large requests


def many(count):
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=f"topic-{n}") for n in range(count)],
        allow_auto_topic_creation=False,
    )


def names(response):
    return [topic.name for topic in response.topics]


def test_a_large_request_is_answered_as_a_small_one_in_parts():
    async def story(live):
        await live.topic("topic-7")
        asked = many(5_000)
        parts = []
        whole = live.broker.metadata_api.handle

        def handle(session, request, api_version, *, part):
            parts.append((len(request.topics), part))
            return whole(session, request, api_version, part=part)

        live.broker.metadata_api.handle = handle
        response = await live.peer().ask(asked, 12)

        assert names(response) == names(asked)
        errors = {topic.error_code for topic in response.topics if topic.name != "topic-7"}
        assert errors == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert len(response.topics[7].partitions) == 1
        assert parts == [(PART, index) for index in range(5_000 // PART)]

    play(story)


def test_a_large_request_begins_no_more_topics_than_a_broker_makes_at_once():
    async def story(live):
        asked = many(5_000)
        asked.allow_auto_topic_creation = True
        answered = await live.peer().ask(asked, 12)
        errors = Counter(topic.error_code for topic in answered.topics)

        assert errors == {
            ErrorCode.LEADER_NOT_AVAILABLE: MADE_AT_ONCE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 5_000 - MADE_AT_ONCE,
        }

    play(story, auto_create_topics_enable="true")


def test_while_a_large_request_is_handled_others_are_answered_and_its_own_peer_waits():
    async def story(live):
        await live.topic("t")
        large, other = live.peer(), live.peer()
        answer = large.send(many(5_000), 12)
        behind = large.send(produce(live.batch(b"a")), 9)
        served = 0
        while not answer.done():
            await other.ask(ApiVersionsRequest(), 0)
            assert live.log().leo == 0 or answer.done(), "it must not be overtaken"
            served += 1
            await asyncio.sleep(0)

        assert served > 50
        assert produced(await behind) == {T0: 0}

    play(story)


def test_a_large_request_that_is_damaged_ends_the_connection():
    async def story(live):
        peer = live.peer()
        body = encoder(MetadataRequest, 12)(many(5_000))
        peer.send_frame(encode_request_header(ApiKey.METADATA, 12, 1, "x") + body[:-20])
        await asyncio.sleep(1)

        assert peer.closed
        assert live.broker.metrics.requests.malformed == 1

    play(story)


def test_a_large_request_of_a_peer_that_goes_is_given_up():
    async def story(live):
        parts = 0

        def handle(request):
            nonlocal parts
            parts += 1
            if parts == 10:
                peer.hang_up()
            return MetadataResponse()

        replace(live, ApiKey.METADATA, handle)
        peer = live.peer()
        answer = peer.send(many(5_000), 12)
        await asyncio.sleep(1)

        assert answer.cancelled()
        assert 10 <= parts < 20

    play(story)


@pytest.mark.parametrize("fails", [False, True])
def test_parts_that_wait_for_replicas_wait_together(fails):
    async def story(live):
        async def wait(request):
            await asyncio.sleep(3)
            if fails:
                raise ApiError(ErrorCode.POLICY_VIOLATION)
            topics = [DeleteRecordsTopicResult(name=t.name) for t in request.body.topics]
            return DeleteRecordsResponse(topics=topics)

        replace(live, ApiKey.DELETE_RECORDS, wait)
        asked = [DeleteRecordsTopic(name=f"topic-{n}") for n in range(2_000)]
        peer, started = live.peer(), live.loop.time()
        answer = peer.send(DeleteRecordsRequest(topics=asked), 2)
        await asyncio.wait([answer])

        assert live.loop.time() - started == pytest.approx(3.0, abs=0.1)
        assert peer.closed is fails, "the answer has no place for an error of the whole request"
        reported = [] if fails else [topic.name for topic in answer.result().topics]
        assert reported == ([] if fails else [topic.name for topic in asked])

    play(story)


def test_what_a_large_request_leaves_with_a_handler_stays_as_it_is():
    async def story(live):
        kept = []

        def handle(request):
            kept.extend(request.body.assignments)
            return SyncGroupResponse()

        replace(live, ApiKey.SYNC_GROUP, handle)
        peer = live.peer()
        values = [bytes([65 + n]) * 1_500_000 for n in range(2)]
        await peer.ask(
            SyncGroupRequest(
                assignments=[
                    SyncGroupRequestAssignment(member_id=str(n), assignment=value)
                    for n, value in enumerate(values)
                ]
            ),
            5,
        )
        await peer.ask(many(300_000 // 10), 12)

        assert [bytes(each.assignment) for each in kept] == values

    play(story)
