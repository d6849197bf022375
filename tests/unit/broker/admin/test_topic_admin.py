"""Topics created, deleted and grown through a controller, and what Kafka's messages refuse."""

import pytest

from odradek.broker.admin.topics import WantedPartitions, WantedTopic
from odradek.broker.apis.create_partitions import create_partitions
from odradek.broker.apis.create_topics import create_topics
from odradek.broker.apis.delete_topics import delete_topics
from odradek.coord import layout
from odradek.coord.layout_config import encode_config, topic_entity
from odradek.model.acl import AclOperation, ResourceType
from odradek.model.errors import ErrorCode
from odradek.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from odradek.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState


def topic(name, partitions=1, replication_factor=1, assignments=(), configs=()):
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=n, broker_ids=list(ids))
            for n, ids in enumerate(assignments)
        ],
        configs=[CreatableTopicConfig(name=k, value=v) for k, v in configs],
    )


async def create(node, *topics, timeout_ms=5_000, validate_only=False, session=None):
    request = CreateTopicsRequest(
        topics=list(topics), timeout_ms=timeout_ms, validate_only=validate_only
    )
    response = await create_topics(node.admin, session or node.session(), request)
    assert [result.name for result in response.topics] == [t.name for t in topics]
    return response.topics


async def delete(node, *names, version=5, timeout_ms=5_000, session=None):
    request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=timeout_ms)
    response = await delete_topics(node.admin, session or node.session(), request, version)
    return [(r.name, ErrorCode(r.error_code)) for r in response.responses]


async def grow(node, name, count, assignments=None, validate_only=False, session=None, times=1):
    asked = CreatePartitionsTopic(
        name=name,
        count=count,
        assignments=None
        if assignments is None
        else [CreatePartitionsAssignment(broker_ids=list(ids)) for ids in assignments],
    )
    request = CreatePartitionsRequest(
        topics=[asked] * times, timeout_ms=5_000, validate_only=validate_only
    )
    response = await create_partitions(node.admin, session or node.session(), request)
    (result,) = response.results
    return ErrorCode(result.error_code), result.error_message


def test_a_topic_is_usable_when_it_is_answered(play):
    async def story(cluster):
        node = await cluster.start(1)
        configs = [("retention.ms", "1000")]
        (result,) = await create(node, topic("t", 3, configs=configs))

        assert (result.error_code, result.error_message) == (ErrorCode.NONE, None)
        shown = node.metadata.topics["t"]
        assert [p.leader for p in shown.partitions.values()] == [1, 1, 1]
        assert result.topic_id == shown.topic_id != bytes(16)
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        answer = {config.name: (config.value, config.config_source) for config in result.configs}
        assert answer["retention.ms"] == ("1000", 1)
        assert answer["segment.bytes"] == ("1073741824", 5)
        data, _ = await cluster.store.get(topic_entity("t").path)
        assert data == b'{"version":1,"config":{"retention.ms":"1000"}}'

    play(story)


def test_minus_one_stands_for_the_brokers_defaults(play):
    async def story(cluster):
        cluster.properties = {"num.partitions": "4", "default.replication.factor": "2"}
        node = await cluster.start(1, 2)
        (result,) = await create(node, topic("t", -1, -1))

        assert (result.num_partitions, result.replication_factor) == (4, 2)

    play(story)


REFUSED = [
    (topic("e1", 1, 5), "INVALID_REPLICATION_FACTOR",
     "Replication factor: 5 larger than available brokers: 2."),
    (topic("e1", 1, 0), "INVALID_REPLICATION_FACTOR",
     "Replication factor must be larger than 0."),
    (topic("e1", 0), "INVALID_PARTITIONS", "Number of partitions must be larger than 0."),
    (topic("e1", 50_001), "INVALID_PARTITIONS", "50001 partitions; a topic has at most 50000"),
    (topic("e1", -1, -1, assignments=[(1,)] * 50_001), "INVALID_PARTITIONS",
     "50001 partitions; a topic has at most 50000"),
    (topic("bad name!"), "INVALID_TOPIC_EXCEPTION",
     ("Topic name is invalid: 'bad name!' contains one or more characters other than ASCII "
     "alphanumerics, '.', '_' and '-'")),
    (topic(".."), "INVALID_TOPIC_EXCEPTION", "Topic name is invalid: '..' is not allowed"),
    (topic("x" * 250), "INVALID_TOPIC_EXCEPTION",
     (f"Topic name is invalid: the length of '{'x' * 250}' is longer than the max allowed length "
     "249")),
    (topic("a.b"), "TOPIC_ALREADY_EXISTS", "Topic 'a.b' already exists."),
    (topic("a_b"), "INVALID_TOPIC_EXCEPTION", "Topic 'a_b' collides with existing topics: a.b"),
    (topic("e1", configs=[("retention.ms", None)]), "INVALID_CONFIG",
     "Null value not supported for topic configs: retention.ms"),
    (topic("e1", configs=[("foo", "bar")]), "INVALID_CONFIG", "Unknown topic config name: foo"),
    (topic("e1", configs=[("retention.ms", "abc")]), "INVALID_CONFIG",
     "Invalid value abc for configuration retention.ms: Not a number of type LONG"),
    (topic("e1", 1, 1, assignments=[(1, 2)]), "INVALID_REQUEST",
     ("Both numPartitions or replicationFactor and replicasAssignments were set. "
     "Both cannot be used at the same time.")),
    (topic("e1", -1, -1, assignments=[(1, 1)]), "INVALID_REPLICA_ASSIGNMENT",
     "Duplicate replica assignment found: 0: 1,1"),
    (topic("e1", -1, -1, assignments=[(1, 2), (1,)]), "INVALID_REPLICA_ASSIGNMENT",
     "All partitions should have the same number of replicas"),
    (topic("e1", -1, -1, assignments=[(9,)]), "INVALID_REPLICA_ASSIGNMENT",
     "Unknown broker(s) in replica assignment: 9."),
]  # fmt: skip


@pytest.mark.parametrize(("asked", "code", "message"), REFUSED, ids=lambda case: str(case)[:40])
def test_a_topic_is_refused_in_kafkas_words_and_nothing_of_it_is_stored(play, asked, code, message):
    async def story(cluster):
        node = await cluster.start(1, 2)
        await create(node, topic("a.b"))

        result, beside = await create(node, asked, topic("good"))

        assert (ErrorCode(result.error_code).name, result.error_message) == (code, message)
        assert (result.num_partitions, result.configs) == (-1, [])
        assert beside.error_code == ErrorCode.NONE
        assert await cluster.store.children(layout.TOPICS) == ["a.b", "good"]

    play(story)


def test_two_of_one_request_may_not_collide_either(play):
    async def story(cluster):
        node = await cluster.start(1)
        first, second = await create(node, topic("c.d"), topic("c_d"))

        assert first.error_code == ErrorCode.NONE
        assert second.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION

    play(story)


def test_a_name_twice_in_one_request_is_refused_for_both(play):
    async def story(cluster):
        node = await cluster.start(1)
        results = await create(node, topic("t"), topic("u"), topic("t"))

        codes = [ErrorCode(result.error_code).name for result in results]
        assert codes == ["INVALID_REQUEST", "NONE", "INVALID_REQUEST"]
        assert results[0].error_message == "Found multiple entries for this topic."

    play(story)


def test_validate_only_goes_all_the_way_but_the_writing(play):
    async def story(cluster):
        node = await cluster.start(1)
        good, bad = await create(node, topic("t", 2), topic("u", 1, 3), validate_only=True)

        assert (good.error_code, good.num_partitions, good.topic_id) == (0, 2, bytes(16))
        assert bad.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
        assert await cluster.store.children(layout.TOPICS) == []

    play(story)


def test_what_does_not_show_in_time_is_timed_out_and_comes_to_be_all_the_same(play):
    async def story(cluster):
        node = await cluster.start(1)
        cluster.brokers[1].deaf = True
        (result,) = await create(node, topic("t"), timeout_ms=50)
        assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert (await cluster.state("t", 0)).leader_and_isr.leader == 1

    play(story)


def test_a_topic_whose_name_is_doomed_cannot_be_made_yet(play):
    async def story(cluster):
        node = await cluster.start(1, 2)
        await create(node, topic("t", -1, -1, assignments=[(2,)]))
        await cluster.nodes[2].end()
        await cluster.until(lambda: 2 not in node.shell.machine.context.brokers)
        assert await delete(node, "t") == [("t", ErrorCode.NONE)]  # the deletion waits for broker 2

        (result,) = await create(node, topic("t"))

        assert result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        assert result.error_message == "Topic 't' is marked for deletion."

    play(story)


def test_options_left_by_an_earlier_topic_of_that_name_are_overwritten(play):
    async def story(cluster):
        node = await cluster.start(1)
        path = topic_entity("t").path
        await cluster.store.create(path, encode_config({"retention.ms": "1"}))
        (result,) = await create(node, topic("t"))

        assert result.error_code == ErrorCode.NONE
        assert (await cluster.store.get(path))[0] == encode_config({})

    play(story)


def test_only_the_controllers_broker_serves_the_admin(play):
    async def story(cluster):
        await cluster.start(1, 2)
        other = cluster.nodes[2]
        (result,) = await create(other, topic("t"))

        assert result.error_code == ErrorCode.NOT_CONTROLLER
        assert await delete(other, "t") == [("t", ErrorCode.NOT_CONTROLLER)]
        assert (await grow(other, "t", 2))[0] is ErrorCode.NOT_CONTROLLER

    play(story)


def test_without_create_a_topic_is_refused_and_without_describe_the_answer_has_less(play):
    async def story(cluster):
        node = await cluster.start(1)
        cluster_create = (AclOperation.CREATE, ResourceType.CLUSTER, "kafka-cluster")
        session = node.session(
            cluster_create,
            (AclOperation.CREATE, ResourceType.TOPIC, "t"),
            (AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, "u"),
        )
        refused, made = await create(node, topic("t"), topic("u"), session=session)

        assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert made.error_code == ErrorCode.NONE
        assert made.topic_config_error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert (made.num_partitions, made.configs, made.topic_id) == (-1, None, bytes(16))

    play(story)


def test_topics_are_deleted_by_name_and_by_id(play):
    async def story(cluster):
        node = await cluster.start(1)
        made = await create(node, topic("t"), topic("u"))
        assert await delete(node, "t", "t", "nope") == [
            ("t", ErrorCode.NONE),
            ("t", ErrorCode.NONE),
            ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        states = [
            DeleteTopicState(topic_id=made[1].topic_id),
            DeleteTopicState(topic_id=made[0].topic_id),
            DeleteTopicState(name="u", topic_id=made[1].topic_id),
            DeleteTopicState(),
        ]
        request = DeleteTopicsRequest(topics=states, timeout_ms=5_000)
        response = await delete_topics(node.admin, node.session(), request, 6)

        assert [(r.name, ErrorCode(r.error_code).name) for r in response.responses] == [
            ("u", "NONE"),
            (None, "UNKNOWN_TOPIC_ID"),
            ("u", "INVALID_REQUEST"),
            (None, "INVALID_REQUEST"),
        ]
        assert node.metadata.topics == {}
        assert await cluster.store.children(layout.TOPICS) == []

    play(story)


GARBAGE = [b"{{{", b"", b"[]", b'{"version":1}{', b'{"version":1,"partitions":{"0":["x"]}}']


@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize("loads", [False, True])
def test_a_topic_whose_znode_cannot_be_read_is_named_and_can_be_deleted(play, garbage, loads):
    async def story(cluster):
        await cluster.start(1, 2)
        await cluster.store.create(layout.topic_path("bad"), garbage)
        node = cluster.nodes[2 if loads else 1]
        if loads:  # another controller finds it when it begins
            await cluster.nodes[1].end()
        await cluster.until(lambda: "bad" in node.shell.unreadable_topics)
        (refused,) = await create(node, topic("bad"))
        assert refused.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        assert "cannot be read: znode /brokers/topics/bad: " in refused.error_message
        assert await delete(node, "bad") == [("bad", ErrorCode.NONE)]
        assert node.shell.unreadable_topics == {}
        assert await cluster.store.children(layout.TOPICS) == []
        assert await cluster.store.children(layout.DELETE_TOPICS) == []
        (made,) = await create(node, topic("bad"))
        assert made.error_code == ErrorCode.NONE

    play(story)


@pytest.mark.parametrize(("enabled", "left"), [(True, []), (False, ["bad"])])
def test_a_topic_that_cannot_be_read_is_deleted_by_a_znode_too(play, enabled, left):
    async def story(cluster):
        cluster.options.deletion_enabled = enabled
        node = await cluster.start(1)
        request = layout.delete_topic_path("bad")
        await cluster.store.create(layout.topic_path("bad"), b"{{{")
        await cluster.until(lambda: "bad" in node.shell.unreadable_topics)
        await cluster.store.create(request)
        await cluster.until(lambda: cluster.tree._nodes.get(request) is None)
        assert await cluster.store.children(layout.TOPICS) == left

    play(story)


def test_a_topic_whose_znode_is_repaired_is_served(play):
    async def story(cluster):
        node = await cluster.start(1)
        path = layout.topic_path("bad")
        await cluster.store.create(path, b"{{{")
        await cluster.until(lambda: "bad" in node.shell.unreadable_topics)
        await cluster.store.set_data(path, b'{"version":1,"partitions":{"0":[1]}}')
        await cluster.until(lambda: "bad" in node.metadata.topics)
        assert node.shell.unreadable_topics == {}

    play(story)


def test_a_name_can_be_used_again_as_soon_as_its_topic_is_deleted(play):
    async def story(cluster):
        node = await cluster.start(1)
        for _ in range(3):
            (made,) = await create(node, topic("t", 3))
            assert made.error_code == ErrorCode.NONE
            assert await delete(node, "t") == [("t", ErrorCode.NONE)]

    play(story)


def test_without_the_right_to_delete_or_describe_nothing_is_deleted_and_no_name_shown(play):
    async def story(cluster):
        node = await cluster.start(1)
        made = await create(node, topic("t"), topic("u"))
        session = node.session(
            (AclOperation.DELETE, ResourceType.TOPIC, "t"),
            (AclOperation.DESCRIBE, ResourceType.TOPIC, "u"),
        )
        assert await delete(node, "t", session=session) == [
            ("t", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        ]
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(topic_id=made[1].topic_id)], timeout_ms=5_000
        )
        (result,) = (await delete_topics(node.admin, session, request, 6)).responses
        assert (result.name, result.error_code) == (None, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        assert sorted(node.metadata.topics) == ["t", "u"]

    play(story)


@pytest.mark.parametrize(
    ("version", "error"),
    [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)],
)
def test_deletion_may_be_disabled(play, version, error):
    async def story(cluster):
        cluster.properties = {"delete.topic.enable": "false"}
        node = await cluster.start(1)
        await create(node, topic("t"))

        assert await delete(node, "t", version=version) == [("t", error)]

    play(story)


def test_partitions_grow_and_the_old_ones_stay(play):
    async def story(cluster):
        node = await cluster.start(1, 2, 3)
        await create(node, topic("t", -1, -1, assignments=[(2, 1), (3, 2)]))

        assert await grow(node, "t", 4, validate_only=True) == (ErrorCode.NONE, None)
        assert len(node.metadata.topics["t"].partitions) == 2
        assert await grow(node, "t", 4) == (ErrorCode.NONE, None)
        assert await grow(node, "t", 5, assignments=[(3, 1)]) == (ErrorCode.NONE, None)

        shown = [p.replicas for _, p in sorted(node.metadata.topics["t"].partitions.items())]
        assert shown == [(2, 1), (3, 2), (1, 3), (2, 3), (3, 1)]

    play(story)


@pytest.mark.parametrize(
    ("name", "count", "assignments", "code", "message"),
    [
        ("t", 1, None, "INVALID_PARTITIONS",
         "Topic currently has 2 partitions, which is higher than the requested 1."),
        ("t", 2, None, "INVALID_PARTITIONS", "Topic already has 2 partitions."),
        ("t", 50_001, None, "INVALID_PARTITIONS", "50001 partitions; a topic has at most 50000"),
        ("t", 3, [(9,)], "INVALID_REPLICA_ASSIGNMENT",
         "Unknown broker(s) in replica assignment: 9."),
        ("nope", 3, None, "UNKNOWN_TOPIC_OR_PARTITION", "The topic 'nope' does not exist."),
        ("..", 3, None, "UNKNOWN_TOPIC_OR_PARTITION", "The topic '..' does not exist."),
        ("t/partitions", 3, None, "UNKNOWN_TOPIC_OR_PARTITION",
         "The topic 't/partitions' does not exist."),
    ],
)  # fmt: skip
def test_partitions_are_refused_in_kafkas_words(play, name, count, assignments, code, message):
    async def story(cluster):
        node = await cluster.start(1)
        await create(node, topic("t", 2))

        assert await grow(node, name, count, assignments) == (ErrorCode[code], message)

    play(story)


@pytest.mark.parametrize(
    ("name", "keys", "option"),
    [
        ("__consumer_offsets", "groups", "offsets.topic.num.partitions"),
        ("__transaction_state", "transactional ids", "transaction.state.log.num.partitions"),
    ],
)
@pytest.mark.parametrize("validate_only", [False, True])
def test_what_keys_are_hashed_over_does_not_grow(play, name, keys, option, validate_only):
    async def story(cluster):
        node = await cluster.start(1)
        error, _ = await grow(node, name, 3, validate_only=validate_only)
        assert error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await create(node, topic(name, 2))

        error, message = await grow(node, name, 3, validate_only=validate_only)
        assert error is ErrorCode.INVALID_PARTITIONS
        assert f"{name} cannot be changed: {keys} are hashed over it" in message
        assert f"({option})" in message
        assert len(node.metadata.topics[name].partitions) == 2

    play(story)


def test_growing_asks_for_the_right_to_alter_and_for_each_topic_once(play):
    async def story(cluster):
        node = await cluster.start(1)
        await create(node, topic("t"))
        session = node.session((AclOperation.ALTER, ResourceType.TOPIC, "t"))

        assert (await grow(node, "t", 2, session=session))[0] is (
            ErrorCode.TOPIC_AUTHORIZATION_FAILED
        )
        assert await grow(node, "t", 2, times=2) == (
            ErrorCode.INVALID_REQUEST,
            "Duplicate topic in request.",
        )

    play(story)


def test_an_epoch_that_was_taken_refuses_the_admin_too(play):
    async def story(cluster):
        node = await cluster.start(1)
        await create(node, topic("old"))
        await cluster.store.set_data(layout.CONTROLLER_EPOCH, b"9")
        (result,) = await create(node, topic("t"))

        assert result.error_code == ErrorCode.NOT_CONTROLLER
        assert await delete(node, "old") == [("old", ErrorCode.NOT_CONTROLLER)]
        assert (await grow(node, "old", 2))[0] is ErrorCode.NOT_CONTROLLER

    play(story)


def test_a_lost_session_is_answered_as_a_time_out(play):
    async def story(cluster):
        node = await cluster.start(1)
        await create(node, topic("old"))
        # The session has expired, which the broker does not know yet; the store refuses the write.
        cluster.tree.expire(node.store.session_id)
        (result,) = await create(node, topic("t"))

        assert result.error_code == ErrorCode.REQUEST_TIMED_OUT

    play(story)


def test_a_thousand_topics_are_made_at_once(play):
    async def story(cluster):
        node = await cluster.start(1)
        results = await create(node, *(topic(f"t{n}") for n in range(1_000)))

        assert {result.error_code for result in results} == {ErrorCode.NONE}

    play(story)


def test_a_refusal_does_not_keep_its_request_in_memory(play):
    async def story(cluster):
        node = await cluster.start(1)
        asked = WantedTopic(name="bad name!", partitions=1, replication_factor=1)
        refused = await node.admin.create([asked], deadline_ms=0)
        unknown = WantedPartitions(name="not-there", count=3)
        not_grown = await node.admin.create_partitions([unknown], deadline_ms=0)

        # A traceback refers to the frame whose variable holds the error: a reference cycle.
        assert refused["bad name!"].__traceback__ is None
        assert not_grown["not-there"].__traceback__ is None

    play(story)
