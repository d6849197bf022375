"""FindCoordinator: the leader of one partition of an internal topic, which it creates."""

import asyncio
from types import SimpleNamespace

import pytest
from tests.unit.broker.live import play

from odradek.broker.apis.find_coordinator import find_coordinator
from odradek.broker.coordinators.coordinator_log import coordinator_partition, java_hash
from odradek.coord.layout_config import decode_config, topic_entity
from odradek.model.errors import ErrorCode
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest

GROUP, TRANSACTION = 0, 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("console-consumer-12345", 158455506),
        ("polygenelubricants", 0),  # -2^31, of which there is no absolute value
        ("xe6f7db61d7g-live", 1_939_989_096),  # negative in Java
        ("ÿ€", 16269),
        ("𝄞", 1772394),  # two UTF-16 code units
    ],
)
def test_the_hash_is_javas(text, value):
    assert java_hash(text) == value


@pytest.mark.parametrize(
    ("group", "partition"),
    [
        # The partitions of Apache Kafka 3.9.2, of 50.
        ("g", 3),
        ("h", 4),
        ("xe6f7db61d7g-live", 46),
        ("xe6f7db61d7g-idle", 34),
        ("xe6f7db61d7g-warm", 49),
    ],
)
def test_a_group_has_the_same_coordinator_partition_as_in_kafka(group, partition):
    assert coordinator_partition(group, 50) == partition


async def found(live, *keys, key_type=GROUP):
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=list(keys))
    response = await live.peer().ask(request)
    return {
        c.key: ErrorCode(c.error_code) or (c.node_id, c.host, c.port) for c in response.coordinators
    }


@pytest.mark.parametrize(
    ("key_type", "topic", "policy"),
    [
        (GROUP, "__consumer_offsets", {"compression.type": "producer"}),
        (
            TRANSACTION,
            "__transaction_state",
            {
                "compression.type": "uncompressed",
                "min.insync.replicas": "1",
                "unclean.leader.election.enable": "false",
            },
        ),
    ],
)
def test_the_internal_topic_is_made_when_it_is_first_asked_for(key_type, topic, policy):
    async def story(live):
        not_yet = {"x": ErrorCode.COORDINATOR_NOT_AVAILABLE}
        assert await found(live, "x", key_type=key_type) == not_yet
        assert await found(live, "x", key_type=key_type) == not_yet, "it is being made"
        await live.until(lambda: live.broker.metadata.topic(topic) is not None)

        assert await found(live, "x", key_type=key_type) == {"x": (0, "b0", 9092)}
        assert len(live.broker.metadata.topic(topic).partitions) == 2
        path = topic_entity(topic).path
        options = decode_config(path, live.tree.find(path).data)
        assert options["cleanup.policy"] == "compact"
        assert options["segment.bytes"] == "104857600"
        assert options.items() >= policy.items()

    play(story, auto_create_topics_enable="false")


def test_one_key_before_version_4():
    async def story(live):
        await found(live, "x")
        await live.until(lambda: live.broker.metadata.topic("__consumer_offsets") is not None)
        for version in range(4):
            response = await live.peer().ask(FindCoordinatorRequest(key="x"), version)
            assert (response.error_code, response.node_id, response.port) == (0, 0, 9092)

    play(story)


def test_many_keys_each_at_its_own_partitions_leader():
    async def story(live):
        keys = ["", "a", "b", "c"]
        await live.order("__consumer_offsets", leader=2, partitions=2)
        assert await found(live, *keys) == dict.fromkeys(
            keys, ErrorCode.COORDINATOR_NOT_AVAILABLE
        ), "the number of partitions is not known from the store"
        live.broker.coordinator_counts = SimpleNamespace(
            of={"__consumer_offsets": 2}.get, metadata_changed=lambda: None
        )
        assert await found(live, *keys) == dict.fromkeys(keys, (2, "b2", 9092))
        await live.order("__consumer_offsets", leader=9, leader_epoch=1, replicas=(2, 9))

        answers = await found(live, *keys)
        assert answers == {
            key: (2, "b2", 9092) if java_hash(key) % 2 else ErrorCode.COORDINATOR_NOT_AVAILABLE
            for key in keys
        }, "the leader of partition 0 is not registered"

    play(story)


async def led_by_others(live):
    """Of the partitions of __consumer_offsets, broker 2 leads 0, and broker 3 leads 1."""
    live.broker.fetchers.stop()  # there is no other broker: each of them would be lost at once
    await live.order("__consumer_offsets", leader=3, partitions=2, replicas=(2, 3))
    await live.order("__consumer_offsets", leader=2, leader_epoch=1, replicas=(2, 3))
    live.broker.coordinator_counts = SimpleNamespace(
        of={"__consumer_offsets": 2}.get, metadata_changed=lambda: None
    )


OF_PARTITION_0, OF_PARTITION_1 = "b", "a"


@pytest.mark.parametrize(
    ("version", "keys"), [(3, {"key": OF_PARTITION_0}), (4, {"coordinator_keys": [OF_PARTITION_0]})]
)
def test_an_answer_waits_for_the_next_leader_of_a_coordinators_partition(version, keys):
    async def story(live):
        await led_by_others(live)
        live.broker.metadata.leader_lost(2)
        begun = live.loop.time()
        waiting = live.loop.create_task(live.peer().ask(FindCoordinatorRequest(**keys), version))
        assert await found(live, OF_PARTITION_1) == {OF_PARTITION_1: (3, "b3", 9092)}
        assert live.loop.time() - begun < 0.1, "it is not the partition of the lost leader"

        assert not waiting.done()
        await live.order("__consumer_offsets", leader=3, leader_epoch=2, replicas=(2, 3))
        response = await waiting
        answer = [*response.coordinators, response][0]  # v4: the only one of many
        assert (answer.error_code, answer.node_id) == (ErrorCode.NONE, 3)
        assert live.loop.time() - begun < 0.1

    play(story)


def test_an_answer_waits_no_longer_than_the_limit():
    async def story(live):
        await led_by_others(live)
        live.broker.metadata.leader_lost(2)
        begun = live.loop.time()

        assert await found(live, OF_PARTITION_0) == {OF_PARTITION_0: (2, "b2", 9092)}
        assert 0.29 < live.loop.time() - begun < 0.4
        assert await found(live, OF_PARTITION_0) == {OF_PARTITION_0: (2, "b2", 9092)}
        assert live.loop.time() - begun < 0.4, "the same loss is a reason once"

    play(story, odradek_metadata_hold_ms=300)


def test_nothing_waits_if_the_limit_is_0():
    async def story(live):
        await led_by_others(live)
        live.broker.metadata.leader_lost(2)
        begun = live.loop.time()

        assert await found(live, OF_PARTITION_0) == {OF_PARTITION_0: (2, "b2", 9092)}
        assert live.loop.time() - begun < 0.1

    play(story, odradek_metadata_hold_ms=0)


def test_the_leader_of_the_coordinators_partition_is_probed_alone():
    probed = []

    async def notices(live):
        await asyncio.sleep(0.002)
        live.broker.metadata.leader_lost(2)

    async def story(live):
        await led_by_others(live)
        request = FindCoordinatorRequest(coordinator_keys=[OF_PARTITION_0])

        def probe(leaders):
            probed.append(leaders)
            return notices(live)

        answer = find_coordinator(
            live.broker.metadata,
            live.broker.coordinator_counts,
            Anyone(),
            request,
            4,
            make_topic=None,
            probe=probe,
        )
        waiting = live.loop.create_task(answer)
        await asyncio.sleep(0.1)
        await live.order("__consumer_offsets", leader=3, leader_epoch=2, replicas=(2, 3))
        assert [each.node_id for each in (await waiting).coordinators] == [3]
        assert probed == [{2}]

    play(story)


class Anyone:
    """A session that may do everything."""

    listener = "PLAINTEXT"

    @staticmethod
    def authorize(*_):
        return True


def test_a_coordinator_that_cannot_be_reached_on_the_askers_listener():
    async def story(live):
        await live.order("__consumer_offsets", leader=2)
        request = FindCoordinatorRequest(coordinator_keys=["x"])
        response = await live.peer(9093).ask(request)

        assert response.coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE

    play(
        story,
        listeners="PLAINTEXT://b0:9092,OUT://b0:9093",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,OUT:PLAINTEXT",
        inter_broker_listener_name="PLAINTEXT",
    )


def test_an_unknown_type_of_key():
    async def story(live):
        assert await found(live, "x", "y", key_type=2) == {
            "x": ErrorCode.INVALID_REQUEST,
            "y": ErrorCode.INVALID_REQUEST,
        }

    play(story)
