"""Quotas of users and client ids on a broker: what its clients get in simulated time."""

import asyncio
from types import SimpleNamespace

import pytest
from tests.unit.broker.live import fetch, fetched, part_of, play, produce, produced

from odradek.broker.serving.client_quotas import REQUEST, ClientQuotas
from odradek.broker.serving.session import AllowAll, Session
from odradek.model.errors import ErrorCode
from odradek.quota.precedence import Entity, Part
from odradek.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.metadata import MetadataRequest

BY_NAME = 12
SECONDS = 30
USER = {"user": "ANONYMOUS"}


async def alter(live, entity, **rates):
    """Set quotas, or remove those of None, as a client does; the broker has handled it then."""
    request = AlterClientQuotasRequest(
        entries=[
            EntryData(
                entity=[EntityData(entity_type=k, entity_name=v) for k, v in entity.items()],
                ops=[
                    OpData(key=key, value=value or 0.0, remove=value is None)
                    for key, value in rates.items()
                ],
            )
        ]
    )
    (entry,) = (await live.peer().ask(request)).entries
    assert entry.error_code == 0, entry
    await asyncio.sleep(0.1)


def peer(live, client_id):
    made = live.peer()
    made.client_id = client_id
    return made


async def produce_for(live, peer, rate, topic="t", seconds=SECONDS):
    """Offer `rate` bytes a second, in 20 requests a second. Returns the bytes accepted a second."""
    loop, size = live.loop, rate // 20
    began, total, number = loop.time(), 0, 0
    batch = live.batch(b"x" * (size - 80))
    while loop.time() - began < seconds:
        await peer.ask(produce(batch, topic))
        total, number = total + len(batch), number + 1
        await asyncio.sleep(max(0, began + number / 20 - loop.time()))
    return total / seconds


async def consume_for(live, peer, topic, seconds=SECONDS):
    """Read 2 KB a request, as fast as it goes. Returns the bytes a second."""
    began, total, answers = live.loop.time(), 0, []
    while live.loop.time() - began < seconds:
        answer = await peer.ask(fetch({(topic, 0): 0}, max_bytes=2_000), BY_NAME)
        total += sum(len(p.records or b"") for t in answer.responses for p in t.partitions)
        answers.append(answer)
        await asyncio.sleep(0.05)
    return total / seconds, answers


def test_a_producer_at_twice_its_quota_gets_its_quota_and_another_what_it_offers():
    async def story(live):
        await live.topic("t")
        await live.topic("other")
        await alter(live, {"client-id": "slow"}, producer_byte_rate=10_000)
        # What the windows allow at once is used before.
        slow, free = peer(live, "slow"), peer(live, "free")
        await produce_for(live, slow, 20_000)
        limited, unlimited = await asyncio.gather(
            produce_for(live, slow, 20_000), produce_for(live, free, 20_000, "other")
        )

        assert limited == pytest.approx(10_000, rel=0.1)
        assert unlimited == pytest.approx(20_000, rel=0.02)

    play(story)


def test_two_clients_with_the_default_quota_do_not_affect_each_other():
    async def story(live):
        await live.topic("t")
        await live.topic("other")
        await alter(live, {"client-id": None}, producer_byte_rate=10_000)
        first, second = peer(live, "first"), peer(live, "second")
        await asyncio.gather(
            produce_for(live, first, 20_000), produce_for(live, second, 5_000, "other")
        )
        rates = await asyncio.gather(
            produce_for(live, first, 20_000), produce_for(live, second, 5_000, "other")
        )

        assert rates == pytest.approx([10_000, 5_000], rel=0.1)

    play(story)


def test_a_changed_quota_holds_at_once_and_a_removed_one_no_longer():
    async def story(live):
        await live.topic("t")
        await alter(live, USER, producer_byte_rate=10_000)
        client = peer(live, "app")
        await produce_for(live, client, 20_000)
        await alter(live, USER, producer_byte_rate=15_000)
        assert await produce_for(live, client, 40_000) == pytest.approx(15_000, rel=0.2)
        await alter(live, USER, producer_byte_rate=None)
        assert await produce_for(live, client, 20_000) > 18_000
        answer = await client.ask(produce(live.batch(b"a")))
        assert answer.throttle_time_ms == 0
        assert not live.broker.client_quotas.rates("producer_byte_rate")

    play(story)


def test_a_consumer_gets_its_quota_and_empty_responses_when_it_is_throttled():
    async def story(live):
        await live.topic("t")
        live.append(b"x" * 1_900)
        await alter(live, USER, consumer_byte_rate=10_000)
        reader = peer(live, "reader")
        await consume_for(live, reader, "t")
        rate, answers = await consume_for(live, reader, "t")

        assert rate == pytest.approx(10_000, rel=0.1)
        throttled = [answer for answer in answers if answer.throttle_time_ms]
        assert throttled
        assert not any(answer.responses for answer in throttled)
        ((labels, shown),) = live.broker.client_quotas.rates("consumer_byte_rate")
        assert labels == ("ANONYMOUS", "")
        assert shown == pytest.approx(10_000, rel=0.1)

    play(story)


def test_a_throttled_first_fetch_of_a_session_begins_none():
    async def story(live):
        await live.topic("t")
        live.append(b"x" * 900)
        await alter(live, USER, consumer_byte_rate=1)
        reader = peer(live, "reader")
        await reader.ask(fetch({("t", 0): 0}), BY_NAME)
        answer = await reader.ask(fetch({("t", 0): 0}, session_epoch=0), BY_NAME)

        assert (answer.throttle_time_ms > 0, answer.session_id, answer.responses) == (True, 0, [])
        assert not len(live.broker.fetch.sessions)

    play(story)


def test_a_batch_above_what_all_windows_allow_is_delivered():
    async def story(live):
        await live.topic("t")
        live.append(b"x" * 5_000)
        await alter(live, USER, consumer_byte_rate=10)
        answer = await live.peer().ask(fetch({("t", 0): 0}), BY_NAME)

        assert answer.throttle_time_ms == 0
        assert fetched(answer) == {("t", 0): [b"x" * 5_000]}

    play(story)


def test_a_fetch_is_answered_with_what_all_windows_allow():
    async def story(live):
        await live.topic("t")
        for _ in range(20):
            live.append(b"x" * 900)
        await alter(live, USER, consumer_byte_rate=500)
        answer = await live.peer().ask(fetch({("t", 0): 0}, min_bytes=10_000), BY_NAME)

        assert answer.throttle_time_ms == 0
        assert 4_000 < len(part_of(answer).records) <= 5_000

    play(story)


def test_followers_are_not_throttled():
    async def story(live):
        await live.order()
        live.append(b"x" * 5_000)
        await alter(live, USER, consumer_byte_rate=1, request_percentage=0.001)
        follower = peer(live, "follower")
        for _ in range(3):
            answer = await follower.ask(fetch({("t", 0): 0}, replica_id=2), BY_NAME)
            assert answer.throttle_time_ms == 0
            assert part_of(answer).records

    play(story)


def test_quotas_are_read_at_the_start_of_a_broker():
    async def story(live):
        await live.topic("t")
        await alter(live, {"user": "ANONYMOUS", "client-id": "app"}, producer_byte_rate=10)
        await alter(live, {"user": None}, producer_byte_rate=1_000_000)
        await live.restart()
        await live.until(lambda: live.partition("t") is not None and live.partition("t").leader)
        batch = live.batch(b"x" * 1_000)

        limited = await peer(live, "app").ask(produce(batch))
        assert produced(limited)
        assert limited.throttle_time_ms == pytest.approx(len(batch) * 100 - 10_000, abs=2)
        other = await peer(live, "other").ask(produce(batch))
        assert other.throttle_time_ms == 0

    play(story)


def test_the_time_of_requests_is_limited_by_one_window_at_most():
    async def story(live):
        await alter(live, USER, request_percentage=1)
        client = live.peer()
        live.clock.ms_per_reading = 20  # each request takes many times 1 % of a second
        answers = [await client.ask(MetadataRequest(topics=[])) for _ in range(12)]
        live.clock.ms_per_reading = 0

        assert answers[0].throttle_time_ms == 0
        assert answers[-1].throttle_time_ms == 1_000
        await alter(live, USER, request_percentage=None)
        assert (await client.ask(MetadataRequest(topics=[]))).throttle_time_ms == 0
        assert not live.broker.client_quotas.times_requests

    play(story)


def limited_to_half(monotonic_ms, processor_ns):
    """Quotas of which a client has 50 % of the requests' time, and its connection."""
    quotas = ClientQuotas(
        monotonic_ms=monotonic_ms,
        processor_ns=processor_ns,
        windows=11,
        window_ms=1_000,
        mutation_windows=11,
        mutation_window_ms=1_000,
    )
    quotas.set_limits({Entity(Part.ABSENT, "app"): {REQUEST: 50.0}}, whole=True)
    session = Session(authorizer=AllowAll(), client_host="h", listener="L", client_id="app")
    return quotas, SimpleNamespace(session=session)


@pytest.mark.parametrize(
    ("around_ms", "counted_ms"),
    [(0, 10), (15, 25), (500, 30)],
    ids=["nothing", "what the loop did for it", "the broker's own work"],
)
def test_what_the_loop_does_around_a_request_counts_with_it_up_to_a_limit(around_ms, counted_ms):
    processor_ms = 0

    def frame(_connection, _data):
        nonlocal processor_ms
        processor_ms += 10

    quotas, connection = limited_to_half(lambda: 0, lambda: processor_ms * 1_000_000)
    metadata = memoryview(b"\0\3")
    handle = quotas.timed(frame)
    unlimited = SimpleNamespace(session=None)
    handle(unlimited, metadata)  # what came before it is not its own
    processor_ms += around_ms
    handle(connection, metadata)

    ((_, percent_per_s),) = quotas.rates(REQUEST)
    percent_seconds = 100 * counted_ms / 1_000
    assert percent_per_s == pytest.approx(percent_seconds / 10, rel=0.01)


def test_the_time_that_counting_takes_counts_with_the_next_request():
    processor_ms = 0

    def frame(_connection, _data):
        nonlocal processor_ms
        processor_ms += 10

    def monotonic_ms():  # read once for each count
        nonlocal processor_ms
        processor_ms += 5
        return 0

    quotas, connection = limited_to_half(monotonic_ms, lambda: processor_ms * 1_000_000)
    metadata = memoryview(b"\0\3")
    handle = quotas.timed(frame)
    handle(SimpleNamespace(session=None), metadata)
    for _ in range(3):
        handle(connection, metadata)

    ((_, percent_per_s),) = quotas.rates(REQUEST)
    percent_seconds = 100 * (3 * 10 + 2 * 5) / 1_000
    assert percent_per_s == pytest.approx(percent_seconds / 10, rel=0.01)


def test_versions_before_authentication_count_for_no_user():
    secure = {
        "listeners": "PLAINTEXT://b0:9092,SECURE://b0:9093",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    }

    async def story(live):
        await alter(live, {"user": None}, request_percentage=1)
        await alter(live, USER, request_percentage=1)
        live.clock.ms_per_reading = 20
        peers = [live.peer(9093) for _ in range(12)]
        answers = [await each.ask(ApiVersionsRequest(), 2) for each in peers]
        throttled = [await live.peer().ask(ApiVersionsRequest(), 2) for _ in range(12)]
        live.clock.ms_per_reading = 0
        assert [answer.throttle_time_ms for answer in answers] == [0] * 12
        assert throttled[-1].throttle_time_ms > 0

    play(story, **secure)


def created(*topics):
    return CreateTopicsRequest(
        topics=[
            CreatableTopic(name=name, num_partitions=count, replication_factor=1)
            for name, count in topics
        ],
        timeout_ms=10_000,
    )


def codes(results):
    return [ErrorCode(result.error_code) for result in results]


EXCEEDED = ErrorCode.THROTTLING_QUOTA_EXCEEDED


def test_changes_to_topics_are_refused_while_the_bucket_is_overdrawn():
    async def story(live):
        await alter(live, USER, controller_mutation_rate=1)  # 11 at once
        client = live.peer()
        answer = await client.ask(created(("a", 9), ("b", 3), ("c", 1), ("d", 1)))
        assert codes(answer.topics) == [ErrorCode.NONE, ErrorCode.NONE, EXCEEDED, EXCEEDED]
        assert answer.throttle_time_ms == pytest.approx(1_000, abs=300)

        more = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name="b", count=6, assignments=None)], timeout_ms=9_000
        )
        assert codes((await client.ask(more)).results) == [ErrorCode.NONE]
        answer = await client.ask(
            DeleteTopicsRequest(topics=[DeleteTopicState(name="a")], timeout_ms=9_000)
        )
        assert codes(answer.responses) == [EXCEEDED]
        assert answer.throttle_time_ms > 1_500
        answer = await client.ask(
            DeleteTopicsRequest(topics=[DeleteTopicState(name="a")], timeout_ms=9_000)
        )
        assert codes(answer.responses) == [ErrorCode.NONE]

    play(story)


def test_versions_without_the_error_are_throttled_afterwards():
    async def story(live):
        await alter(live, USER, controller_mutation_rate=1)
        client = live.peer()
        answer = await client.ask(created(("a", 12), ("b", 3)), 5)
        assert codes(answer.topics) == [ErrorCode.NONE, ErrorCode.NONE]
        assert answer.throttle_time_ms == pytest.approx(4_000, abs=300)
        ((labels, tokens),) = live.broker.client_quotas.tokens()
        assert labels == ("ANONYMOUS", "")
        assert tokens < -3

    play(story)


def test_validation_takes_no_token():
    async def story(live):
        await alter(live, USER, controller_mutation_rate=1)
        client = live.peer()
        request = created(("a", 100))
        request.validate_only = True
        assert codes((await client.ask(request)).topics) == [ErrorCode.NONE]
        assert not live.broker.client_quotas.tokens()

    play(story)


async def connected_ms(live, count, **more):
    """How long each of some connections, made now, waits for its first answer."""
    began = live.loop.time()

    async def one(made):
        await made.ask(MetadataRequest(topics=[]))
        return round((live.loop.time() - began) * 1_000)

    return await asyncio.gather(*(one(live.peer(**more)) for _ in range(count)))


def test_connections_above_the_rate_of_the_broker_are_served_later():
    async def story(live):
        waited_ms = await connected_ms(live, 13)
        assert waited_ms == pytest.approx([0] * 10 + [1_000, 2_000, 3_000], abs=100)
        assert live.broker.server.delayed_connections == 3

    play(story, max_connection_creation_rate=1)


def test_a_listener_has_a_limit_and_a_rate_of_its_own():
    async def story(live):
        waited_ms = await connected_ms(live, 11)
        assert waited_ms == pytest.approx([0] * 10 + [1_000], abs=100)
        assert [live.peer().closed for _ in range(4)] == [False, True, True, True]

    prefix = "listener.name.plaintext"
    limits = {f"{prefix}.max.connections": 12, f"{prefix}.max.connection.creation.rate": 1}
    play(story, **limits)


def test_an_address_above_its_rate_is_closed_after_the_throttle_time_and_others_are_served():
    async def story(live):
        await alter(live, {"ip": "10.0.0.8"}, connection_creation_rate=1)
        peers = [live.peer(host="10.0.0.8") for _ in range(11)]
        assert max(await connected_ms(live, 5)) < 100
        assert not peers[10].closed
        await asyncio.sleep(1.1)
        assert [each.closed for each in peers] == [False] * 10 + [True]
        await alter(live, {"ip": "10.0.0.8"}, connection_creation_rate=None)
        assert max(await connected_ms(live, 20, host="10.0.0.8")) < 100

    play(story)
