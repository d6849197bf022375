"""Metadata: what a client may see, which topics are created, what a version means."""

import asyncio
import inspect
from functools import partial

import pytest
from tests.unit.broker.cluster.test_metadata_cache import ID_A, update_metadata

from odradek.broker.apis.metadata import Encoded, MetadataApi, metadata
from odradek.broker.cluster.metadata_cache import DEPARTED_MS, MetadataCache
from odradek.broker.serving.session import AllowAll, Session
from odradek.coord.store import ConnectionLostError, SessionExpiredError
from odradek.model.acl import AclOperation, ResourceType
from odradek.model.errors import ApiError, ErrorCode
from odradek.model.invariants import InvariantError
from odradek.sim.world.loop import run
from odradek.wire.codec import decoder
from odradek.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)


class Only(AllowAll):
    """Allows the operations named."""

    def __init__(self, *allowed):
        self.allowed = allowed

    def authorize(self, session, operation, resource_type, name, *, is_logged=True):
        return (operation, resource_type, name) in self.allowed


class Maker:
    def __init__(self):
        self.made = []

    def make(self, names):
        self.made += names


def ask(
    request,
    version=12,
    *,
    authorizer=None,
    maker=None,
    brokers=(1,),
    leader=1,
    listener="PLAINTEXT",
):
    async def scenario():
        loop = asyncio.get_running_loop()
        cache = MetadataCache(loop, lambda: 0)
        cache.update(update_metadata(("orders", ID_A, {0: leader}), brokers=brokers))
        session = Session(authorizer=authorizer or AllowAll(), client_host="h", listener=listener)
        return metadata(cache, session, request, version, cluster_id="c", maker=maker)

    return run(scenario())


def named(*names, auto=True, **more):
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=auto,
        **more,
    )


def errors(response):
    return {topic.name: ErrorCode(topic.error_code).name for topic in response.topics}


def test_null_means_all_and_an_empty_list_none_except_in_version_0():
    assert errors(ask(MetadataRequest(topics=None))) == {"orders": "NONE"}
    assert errors(ask(MetadataRequest(topics=[]))) == {}
    assert errors(ask(MetadataRequest(topics=[]), version=0)) == {"orders": "NONE"}


def test_a_topic_may_be_asked_for_by_id():
    by_id = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=ID_A)])
    assert errors(ask(by_id)) == {"orders": "NONE"}

    unknown = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=b"x" * 16)])
    assert errors(ask(unknown)) == {None: "UNKNOWN_TOPIC_ID"}


@pytest.mark.parametrize("name", ["", "another"])
def test_an_id_decides_whatever_the_name_beside_it(name):
    """Java's AdminClient sends an empty name with an id."""
    by_id = MetadataRequest(topics=[MetadataRequestTopic(name=name, topic_id=ID_A)] * 2)
    assert [topic.name for topic in ask(by_id).topics] == ["orders"]

    unknown = MetadataRequest(topics=[MetadataRequestTopic(name=name, topic_id=b"x" * 16)])
    maker = Maker()
    assert errors(ask(unknown, maker=maker)) == {None: "UNKNOWN_TOPIC_ID"}
    assert maker.made == []


@pytest.mark.parametrize("version", [10, 11])
def test_before_version_12_topics_have_names_and_no_ids(version):
    topics = [
        MetadataRequestTopic(name=None, topic_id=ID_A),
        MetadataRequestTopic(name="orders"),
    ]
    response = ask(MetadataRequest(topics=topics), version)
    assert errors(response) == {"": "INVALID_REQUEST", "orders": "INVALID_REQUEST"}
    assert response.topics[0].topic_id == ID_A


def test_an_unknown_topic_is_created_if_client_and_broker_allow_it():
    maker = Maker()
    assert errors(ask(named("new"), maker=maker)) == {"new": "LEADER_NOT_AVAILABLE"}
    assert maker.made == ["new"]

    assert errors(ask(named("new"), maker=None)) == {"new": "UNKNOWN_TOPIC_OR_PARTITION"}
    maker = Maker()
    assert errors(ask(named("new", auto=False), maker=maker)) == {
        "new": "UNKNOWN_TOPIC_OR_PARTITION"
    }
    assert errors(ask(named("new", auto=False), version=3, maker=maker)) == {
        "new": "LEADER_NOT_AVAILABLE"
    }, "before version 4 a client could not forbid it"


def test_a_name_that_cannot_be_is_refused_and_not_made():
    maker = Maker()
    assert errors(ask(named("a b", ".."), maker=maker)) == {
        "a b": "INVALID_TOPIC_EXCEPTION",
        "..": "INVALID_TOPIC_EXCEPTION",
    }
    assert maker.made == []


def test_what_may_not_be_described_does_not_show_whether_it_exists():
    unauthorized = Only()
    refused = {
        "orders": "TOPIC_AUTHORIZATION_FAILED",
        "absent": "TOPIC_AUTHORIZATION_FAILED",
    }
    assert errors(ask(named("orders", "absent"), authorizer=unauthorized, maker=Maker())) == refused
    assert errors(ask(MetadataRequest(topics=None), authorizer=unauthorized)) == {}
    by_id = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=ID_A)])
    assert errors(ask(by_id, authorizer=unauthorized)) == {None: "TOPIC_AUTHORIZATION_FAILED"}


def test_making_a_topic_needs_the_right_to_create():
    may_see = (AclOperation.DESCRIBE, ResourceType.TOPIC, "new")
    may_make = (AclOperation.CREATE, ResourceType.TOPIC, "new")
    maker = Maker()
    assert errors(ask(named("new"), authorizer=Only(may_see), maker=maker)) == {
        "new": "TOPIC_AUTHORIZATION_FAILED"
    }
    assert maker.made == []
    ask(named("new"), authorizer=Only(may_see, may_make), maker=maker)
    assert maker.made == ["new"]


def test_a_partition_whose_leader_is_not_registered_has_an_error():
    (topic,) = ask(named("orders"), leader=7).topics
    (partition,) = topic.partitions

    assert partition.error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert partition.leader_id == -1
    assert partition.offline_replicas == [2], "1 is registered, 2 is not"


@pytest.mark.parametrize(
    ("version", "brokers", "error", "replicas"),
    [
        (0, (1,), ErrorCode.REPLICA_NOT_AVAILABLE, [1]),
        (0, (1, 2), ErrorCode.NONE, [1, 2]),
        (0, (2,), ErrorCode.LEADER_NOT_AVAILABLE, [2]),
        (1, (1,), ErrorCode.NONE, [1, 2]),
    ],
)
def test_version_0_names_no_replica_that_is_not_among_the_brokers(
    version, brokers, error, replicas
):
    (topic,) = ask(named("orders"), version, brokers=brokers).topics
    (partition,) = topic.partitions

    assert partition.error_code == error
    assert partition.replica_nodes == replicas


@pytest.mark.parametrize(
    ("version", "error"),
    [
        (0, ErrorCode.LEADER_NOT_AVAILABLE),
        (5, ErrorCode.LEADER_NOT_AVAILABLE),
        (6, ErrorCode.LISTENER_NOT_FOUND),
    ],
)
def test_a_leader_without_the_clients_listener(version, error):
    (topic,) = ask(named("orders"), version, listener="OTHER").topics
    (partition,) = topic.partitions

    assert (partition.error_code, partition.leader_id) == (error, -1)


def test_authorized_operations_are_answered_only_when_asked_for():
    (topic,) = ask(named("orders")).topics
    assert topic.topic_authorized_operations == -(2**31)

    (topic,) = ask(named("orders", include_topic_authorized_operations=True)).topics
    assert topic.topic_authorized_operations == 0b110111111000 & ~(1 << 9)


class Topics:
    """In place of the store: the names of its topics, and how it fails before it answers them."""

    def __init__(self, *names, failures=()):
        self.names = list(names)
        self.failures = list(failures)
        self.read = 0

    async def children(self, path):
        self.read += 1
        if self.failures:
            raise self.failures.pop(0)
        return self.names


def unannounced(store=None):
    """The handler and its cache, which has got no UpdateMetadata yet."""
    loop = asyncio.get_running_loop()
    cache = MetadataCache(loop, lambda: int(loop.time() * 1000))
    return MetadataApi(
        cache,
        cluster_id=lambda: "c",
        maker=Maker(),
        announced_within_ms=18_000,
        store=store or Topics(),
    ), cache


def kept(scenario):
    """Runs a scenario with the handler and a cache of one topic."""

    async def inside():
        api, cache = unannounced()
        cache.update(update_metadata(("orders", ID_A, {0: 1})))
        await scenario(api, cache)

    run(inside())


def session(principal="User:a", authorizer=None):
    return Session(
        authorizer=authorizer or AllowAll(),
        principal=principal,
        client_host="h",
        listener="PLAINTEXT",
    )


def test_an_answer_is_encoded_once_and_dropped_when_the_metadata_changes():
    async def scenario(api, cache):
        first = api.handle(session(), named("orders"), 12)
        assert isinstance(first, Encoded)
        assert api.handle(session(), named("orders"), 12) is first
        assert api.handle(session(), named("orders"), 11) is not first

        cache.update(update_metadata(("orders", ID_A, {0: 1, 1: 1})))
        second = api.handle(session(), named("orders"), 12)
        response, _ = decoder(MetadataResponse, 12)(memoryview(second.body), 0)
        assert len(response.topics[0].partitions) == 2

    kept(scenario)


def test_an_answer_never_crosses_principals():
    async def scenario(api, cache):
        api.handle(session("User:a"), named("orders"), 12)
        refused = api.handle(session("User:b", Only()), named("orders"), 12)
        assert errors(refused) == {"orders": "TOPIC_AUTHORIZATION_FAILED"}

    kept(scenario)


def test_an_answer_that_may_change_by_itself_is_not_kept():
    async def scenario(api, cache):
        assert errors(api.handle(session(), named("new"), 12)) == {"new": "LEADER_NOT_AVAILABLE"}
        assert api._answers == {}

    kept(scenario)


def test_a_question_that_is_larger_than_its_answer_is_not_kept():
    async def scenario(api, cache):
        for _ in range(2):
            assert isinstance(api.handle(session(), named(*["orders"] * 100_000), 12), Encoded)
        assert api._answers == {}

    kept(scenario)


def test_thousands_of_partitions_are_described_in_slices():
    async def scenario(api, cache):
        for number in range(20):
            partitions = dict.fromkeys(range(200), 1)
            cache.update(update_metadata((f"t{number}", bytes(15) + bytes([number]), partitions)))
        turns = 0

        async def others():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        other = asyncio.create_task(others())
        response = await api.handle(session(), MetadataRequest(topics=None), 12)
        other.cancel()
        assert len(response.topics) == 21
        assert turns >= 3
        assert isinstance(api.handle(session(), MetadataRequest(topics=None), 12), Encoded)

    kept(scenario)


def test_thousands_of_topics_that_may_not_be_described_are_looked_at_in_slices():
    async def scenario(api, cache):
        for number in range(3_000):
            topic_id = bytes(14) + number.to_bytes(2, "big")
            cache.update(update_metadata((f"t{number}", topic_id, {0: 1})))
        turns = 0

        async def others():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        other = asyncio.create_task(others())
        request = MetadataRequest(topics=None)
        response = await api.handle(session(authorizer=Only()), request, 12)
        other.cancel()
        assert response.topics == []
        assert turns >= 3

    kept(scenario)


def test_a_request_to_a_broker_before_its_registration_is_visible_waits():
    async def scenario():
        api, cache = unannounced()
        asyncio.get_running_loop().call_later(
            2, lambda: cache.update(update_metadata(("orders", ID_A, {0: 1})))
        )
        answer = await api.handle(session(), named("orders"), 12)
        assert asyncio.get_running_loop().time() == 2
        response, _ = decoder(MetadataResponse, 12)(memoryview(answer.body), 0)
        assert [broker.node_id for broker in response.brokers] == [1]
        assert errors(response) == {"orders": "NONE"}

    run(scenario())


def test_a_broker_that_is_never_announced_does_not_answer_that_there_are_no_brokers():
    async def scenario():
        api, _ = unannounced()
        with pytest.raises(ApiError, match="no controller has announced a broker"):
            await api.handle(session(), named("orders"), 12)
        assert asyncio.get_running_loop().time() == 18

    run(scenario())


ABOUT_TOPICS = [named("orders"), MetadataRequest(topics=None)]


@pytest.mark.parametrize("request_", ABOUT_TOPICS, ids=["one", "all"])
def test_a_broker_that_knows_the_brokers_and_no_topics_yet_does_not_answer_that_there_are_none(
    request_,
):
    """A new controller sends the brokers first, and the topics when it has loaded them."""

    async def scenario():
        failures = [ConnectionLostError("no answer"), SessionExpiredError("too late")]
        api, cache = unannounced(Topics("orders", failures=failures))
        cache.update(update_metadata(brokers=(1,)))
        of_brokers = api.handle(session(), MetadataRequest(topics=[]), 12)
        assert not inspect.isawaitable(of_brokers)

        loop = asyncio.get_running_loop()
        loop.call_later(3, lambda: cache.update(update_metadata(("orders", ID_A, {0: 1}))))
        assert (await leader_and_brokers(api.handle(session(), request_, 12)))[0] == [1]
        assert loop.time() == 3

    run(scenario())


@pytest.mark.parametrize("request_", ABOUT_TOPICS, ids=["one", "all"])
def test_a_cluster_without_topics_is_answered_at_once_and_the_store_read_once(request_):
    store = Topics()

    async def scenario():
        api, cache = unannounced(store)
        cache.update(update_metadata(brokers=(1,)))
        for _ in range(3):
            leaders, brokers = await leader_and_brokers(api.handle(session(), request_, 12))
            assert (leaders, brokers) == ([], [1])
        assert asyncio.get_running_loop().time() == 0
        assert store.read == 1

    run(scenario())


def test_topics_that_no_controller_can_announce_delay_answers_once():
    async def scenario():
        api, cache = unannounced(Topics("not JSON"))
        cache.update(update_metadata(brokers=(1,)))
        for _ in range(2):
            answer = api.handle(session(), MetadataRequest(topics=None), 12)
            assert (await leader_and_brokers(answer)) == ([], [1])
        assert asyncio.get_running_loop().time() == 18

    run(scenario())


# ------------------------------------------------------------------ leaders that are expected


def held(scenario, *, hold_ms=300, probe=lambda cache, leaders: None):
    """A scenario with an API and its cache; partition 0 of `orders` is led by broker 1 of 1, 2."""

    async def inside():
        loop = asyncio.get_running_loop()
        cache = MetadataCache(loop, lambda: round(loop.time() * 1000), hold_ms)
        cache.update(update_metadata(("orders", ID_A, {0: 1}), brokers=(1, 2)))
        api = MetadataApi(
            cache,
            cluster_id=lambda: "c",
            maker=None,
            announced_within_ms=1000,
            store=Topics(),
            probe=partial(probe, cache),
        )
        await scenario(api, cache, loop)

    run(inside())


async def leader_and_brokers(answer):
    """The leader of the only partition, and the brokers, in an answer that may have to wait."""
    encoded = await answer if inspect.isawaitable(answer) else answer
    if isinstance(encoded, Encoded):
        response, _ = decoder(MetadataResponse, 12)(memoryview(encoded.body), 0)
    else:
        response = encoded
    leaders = [part.leader_id for topic in response.topics for part in topic.partitions]
    return leaders, [broker.node_id for broker in response.brokers]


def moved(brokers=(1, 2)):
    """UpdateMetadata with the next leader, broker 2."""
    update = update_metadata(("orders", ID_A, {0: 2}), brokers=brokers)
    update.topic_states[0].partition_states[0].leader_epoch = 1
    return update


@pytest.mark.parametrize("request_of_it", [named("orders"), MetadataRequest(topics=None)])
def test_an_answer_waits_for_the_successor_of_a_leader_that_is_lost(request_of_it):
    async def scenario(api, cache, loop):
        cache.leader_lost(1)
        loop.call_later(0.05, cache.update, moved())

        leaders, _ = await leader_and_brokers(api.handle(session(), request_of_it, 12))
        assert leaders == [2]
        assert loop.time() < 0.1

    held(scenario)


def test_an_answer_waits_for_a_leader_epoch_that_the_controller_has_sent_to_the_replicas():
    async def scenario(api, cache, loop):
        cache.leader_announced("orders", 0, 1)
        loop.call_later(0.05, cache.update, moved())

        assert (await leader_and_brokers(api.handle(session(), named("orders"), 12)))[0] == [2]

    held(scenario)


def test_an_answer_waits_no_longer_than_the_limit():
    async def scenario(api, cache, loop):
        cache.leader_lost(1)
        await asyncio.sleep(0.2)
        cache.leader_lost(1)  # another attempt to connect has failed
        begun = loop.time()

        assert (await leader_and_brokers(api.handle(session(), named("orders"), 12)))[0] == [1]
        assert 0.09 < loop.time() - begun < 0.11, "300 ms after the loss"
        assert isinstance(api.handle(session(), named("orders"), 12), Encoded)

    held(scenario)


def test_an_answer_does_not_wait_for_a_leader_that_is_back():
    async def scenario(api, cache, loop):
        cache.leader_lost(1)
        loop.call_later(0.05, cache.leader_reached, 1)

        assert (await leader_and_brokers(api.handle(session(), named("orders"), 12)))[0] == [1]
        assert loop.time() < 0.1

    held(scenario)


def test_a_leader_that_stays_out_of_reach_is_waited_for_once():
    async def scenario(api, cache, loop):
        cache.leader_lost(1)
        await asyncio.sleep(0.5)
        cache.leader_lost(1)  # another attempt to connect has failed
        begun = loop.time()
        assert (await leader_and_brokers(api.handle(session(), named("orders"), 12)))[0] == [1]
        assert loop.time() == begun
        cache.leader_reached(1)
        cache.leader_lost(1)
        loop.call_later(0.05, cache.update, moved())

        assert (await leader_and_brokers(api.handle(session(), named("orders"), 12)))[0] == [2]

    held(scenario)


def test_a_client_that_asks_before_the_loss_is_noticed_here_gets_the_successor():
    probed = []

    async def notices(cache, leaders):
        probed.append(leaders)
        await asyncio.sleep(0.002)
        cache.leader_lost(1)

    async def scenario(api, cache, loop):
        loop.call_later(0.05, cache.update, moved())

        assert (await leader_and_brokers(api.handle(session(), named("orders"), 12)))[0] == [2]
        assert probed == [{1}]

    held(scenario, probe=notices)


@pytest.mark.parametrize(
    ("request_of_none", "hold_ms"),
    [(MetadataRequest(topics=None), 300), (MetadataRequest(topics=[]), 300), (named("orders"), 0)],
)
def test_leaders_are_probed_only_for_topics_that_are_named(request_of_none, hold_ms):
    async def scenario(api, cache, loop):
        assert isinstance(api.handle(session(), request_of_none, 12), Encoded)

    held(scenario, hold_ms=hold_ms, probe=lambda cache, leaders: asyncio.sleep(60))


def test_nothing_waits_if_the_limit_is_0():
    async def scenario(api, cache, loop):
        cache.leader_lost(1)
        cache.leader_announced("orders", 0, 1)
        assert isinstance(api.handle(session(), named("orders"), 12), Encoded)

    held(scenario, hold_ms=0)


def test_an_expectation_without_a_reason_violates_an_invariant():
    async def scenario(api, cache, loop):
        cache.leader_lost(1)
        cache.validate()
        cache.expected.met = lambda topic, index, epoch: None
        cache.update(moved())
        with pytest.raises(InvariantError, match="leader epoch 1 is expected, and is there"):
            cache.validate()

    held(scenario)


def test_an_expectation_for_too_long_violates_an_invariant():
    async def scenario(api, cache, loop):
        cache.expected.expect("orders", 0, 1, 60_000)
        with pytest.raises(InvariantError, match="a response waits until 60300"):
            cache.validate()

    held(scenario)


def test_a_broker_that_has_ended_is_named_for_a_while_to_those_who_name_topics():
    async def scenario(api, cache, loop):
        cache.update(moved(brokers=(2,)))

        async def brokers(request):
            return (await leader_and_brokers(api.handle(session(), request, 12)))[1]

        assert await brokers(named("orders")) == [2, 1]
        assert await brokers(MetadataRequest(topics=None)) == [2]
        assert await brokers(MetadataRequest(topics=[])) == [2]
        await asyncio.sleep(DEPARTED_MS / 1000)
        assert await brokers(named("orders")) == [2]

    held(scenario)
