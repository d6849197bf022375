"""Options described and changed: what is listed, refused, stored and applied."""

import importlib
import logging

import pytest

from odradek.broker.admin import logger_levels
from odradek.broker.admin.logger_levels import ProcessLoggers
from odradek.broker.apis.alter_configs import alter_configs
from odradek.broker.apis.describe_configs import describe_configs
from odradek.broker.apis.incremental_alter_configs import incremental_alter_configs
from odradek.coord.layout_config import (
    CONFIG_CHANGE_PREFIX,
    CONFIG_CHANGES,
    broker_entity,
    decode_config,
    encode_config,
    encode_config_change,
    topic_entity,
)
from odradek.coord.memory import RequestFate
from odradek.coord.store import SetData
from odradek.model.acl import AclOperation, ResourceType
from odradek.model.errors import ApiError, ErrorCode
from odradek.wire.messages import alter_configs as replacing
from odradek.wire.messages import incremental_alter_configs as incremental
from odradek.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

TOPIC, BROKER, LOGGER = 2, 4, 8
SET, DELETE, APPEND = 0, 1, 2


async def describe(node, kind, name, keys=None, session=None, **flags):
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        ],
        **flags,
    )
    response = await describe_configs(node.configs, session or node.session(), request, 4)
    (result,) = response.results
    return result


async def alter(node, kind, name, *changes, session=None, validate_only=False, times=1):
    resource = incremental.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            incremental.AlterableConfig(name=key, config_operation=operation, value=value)
            for operation, key, value in changes
        ],
    )
    request = incremental.IncrementalAlterConfigsRequest(
        resources=[resource] * times, validate_only=validate_only
    )
    response = await incremental_alter_configs(node.configs, session or node.session(), request)
    answer = response.responses[0]
    return ErrorCode(answer.error_code).name, answer.error_message


async def replace(node, kind, name, **configs):
    resource = replacing.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            replacing.AlterableConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )
    request = replacing.AlterConfigsRequest(resources=[resource])
    response = await alter_configs(node.configs, node.session(), request)
    (answer,) = response.responses
    return ErrorCode(answer.error_code).name, answer.error_message


async def stored(cluster, entity):
    (node,) = await cluster.store.get_many([entity.path])
    return None if node is None else decode_config(entity.path, node[0])


async def start(cluster, *ids):
    node = await cluster.start(*(ids or (1,)))
    await cluster.create_topic("t", {0: (1,)})
    await cluster.until(lambda: all("t" in n.metadata.topics for n in cluster.nodes.values()))
    return node


def test_a_changed_option_is_stored_and_every_broker_goes_by_it(play):
    async def story(cluster):
        node = await start(cluster, 1, 2)
        assert await alter(node, TOPIC, "t", (SET, "retention.ms", "1000")) == ("NONE", None)

        # The broker that got the request has applied it when it answers, the others soon after.
        assert node.topic_overrides["t"] == {"retention.ms": "1000"}
        await cluster.until(
            lambda: cluster.nodes[2].topic_overrides.get("t") == {"retention.ms": "1000"}
        )
        assert await stored(cluster, topic_entity("t")) == {"retention.ms": "1000"}
        (notice,) = await cluster.store.children(CONFIG_CHANGES)
        data, _ = await cluster.store.get(f"{CONFIG_CHANGES}/{notice}")
        assert data == b'{"version":2,"entity_path":"topics/t"}'

    play(story)


def test_options_are_set_deleted_and_lists_appended_to(play):
    async def story(cluster):
        node = await start(cluster)
        await alter(node, TOPIC, "t", (SET, "retention.ms", "5"), (SET, "segment.bytes", "100"))
        await alter(
            node, TOPIC, "t", (DELETE, "retention.ms", None), (APPEND, "cleanup.policy", "compact")
        )

        assert await stored(cluster, topic_entity("t")) == {
            "segment.bytes": "100",
            "cleanup.policy": "delete,compact",
        }

    play(story)


def test_alter_configs_replaces_all_there_is(play):
    async def story(cluster):
        node = await start(cluster)
        await alter(node, TOPIC, "t", (SET, "retention.ms", "5"))
        assert await replace(node, TOPIC, "t", segment_bytes="100") == ("NONE", None)

        assert await stored(cluster, topic_entity("t")) == {"segment.bytes": "100"}
        code, message = await replace(node, LOGGER, "1", odradek="DEBUG")
        assert code == "INVALID_REQUEST"
        assert "IncrementalAlterConfigs" in message

    play(story)


@pytest.mark.parametrize(
    ("kind", "name", "change", "code", "message"),
    [
        (TOPIC, "t", (SET, "foo", "bar"), "INVALID_CONFIG", "Unknown topic config name: foo"),
        (
            TOPIC,
            "t",
            (SET, "retention.ms", "abc"),
            "INVALID_CONFIG",
            (
                "Invalid config value for resource ConfigResource(type=TOPIC, name='t'): Invalid "
                "value abc for configuration retention.ms: Not a number of type LONG"
            ),
        ),
        (
            TOPIC,
            "nope",
            (SET, "retention.ms", "1"),
            "UNKNOWN_TOPIC_OR_PARTITION",
            "The topic 'nope' does not exist.",
        ),
        (
            TOPIC,
            "",
            (SET, "retention.ms", "1"),
            "INVALID_REQUEST",
            "Default topic resources are not allowed.",
        ),
        (
            BROKER,
            "1",
            (SET, "broker.rack", "x"),
            "INVALID_REQUEST",
            "Cannot update these configs dynamically: Set(broker.rack)",
        ),
        (
            BROKER,
            "",
            (SET, "listeners", "PLAINTEXT://:1"),
            "INVALID_REQUEST",
            (
                "Cannot update these configs at default cluster level, broker id must be "
                "specified: Set(listeners)"
            ),
        ),
        (
            BROKER,
            "2",
            (SET, "log.cleaner.threads", "2"),
            "INVALID_REQUEST",
            "Unexpected broker id, expected 1 or empty string, but received 2",
        ),
        (LOGGER, "", (SET, "odradek", "DEBUG"), "INVALID_REQUEST", "Broker id must not be empty"),
        (
            LOGGER,
            "1",
            (APPEND, "odradek", "DEBUG"),
            "INVALID_REQUEST",
            "APPEND operation is not allowed for the BROKER_LOGGER resource",
        ),
        (99, "x", (SET, "a", "b"), "INVALID_REQUEST", "Unsupported resource type: 99"),
    ],
)
def test_a_change_is_refused_in_kafkas_words(play, kind, name, change, code, message):
    async def story(cluster):
        node = await start(cluster)
        assert await alter(node, kind, name, change) == (code, message)
        assert await cluster.store.children(CONFIG_CHANGES) == []

    play(story)


def test_a_resource_may_appear_once_and_validation_stores_nothing(play):
    async def story(cluster):
        node = await start(cluster)
        change = (SET, "retention.ms", "1")
        assert (await alter(node, TOPIC, "t", change, times=2))[0] == "INVALID_REQUEST"
        assert (await alter(node, TOPIC, "t", change, validate_only=True))[0] == "NONE"
        assert await stored(cluster, topic_entity("t")) == {}

    play(story)


def test_a_brokers_options_are_changed_for_it_and_for_all(play):
    async def story(cluster):
        node = await start(cluster, 1, 2)
        assert (await alter(node, BROKER, "1", (SET, "log.cleaner.threads", "2")))[0] == "NONE"
        assert (await alter(node, BROKER, "", (SET, "log.retention.ms", "77")))[0] == "NONE"

        assert node.config.values["log.cleaner.threads"] == 2
        assert node.config.topic_defaults.retention_ms == 77
        await cluster.until(lambda: cluster.nodes[2].config.topic_defaults.retention_ms == 77)
        assert cluster.nodes[2].config.values["log.cleaner.threads"] == 1
        assert await stored(cluster, broker_entity(None)) == {"log.retention.ms": "77"}
        assert (await alter(node, BROKER, "1", (DELETE, "log.cleaner.threads", None)))[0] == "NONE"
        assert await stored(cluster, broker_entity(1)) == {}

    play(story)


def test_an_option_that_one_broker_cannot_take_is_not_set_for_all(play):
    """Kafka refuses it, too, if the request happens to go to that broker."""

    async def story(cluster):
        node = await start(cluster, 1, 2)
        two = encode_config({"log.cleaner.threads": "2"})
        await cluster.store.create(broker_entity(2).path, two)
        size = (SET, "log.cleaner.dedupe.buffer.size", "1572864")
        assert await alter(node, BROKER, "", size) == (
            "INVALID_REQUEST",
            "broker 2: log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
        )
        assert (await alter(node, BROKER, "", (SET, "log.retention.ms", "77")))[0] == "NONE"
        assert await stored(cluster, broker_entity(None)) == {"log.retention.ms": "77"}

    play(story)


def test_a_change_for_all_is_judged_by_the_brokers_that_have_nothing_of_their_own_too(play):
    async def story(cluster):
        node = await start(cluster, 1, 2)
        assert (await alter(node, BROKER, "1", (SET, "log.cleaner.threads", "2")))[0] == "NONE"
        code, message = await alter(node, BROKER, "", (SET, "log.cleaner.threads", "3"))
        assert code == "INVALID_REQUEST"
        assert "more than double the current value 1 for configuration" in message

    play(story)


def test_a_change_is_checked_again_if_the_node_was_written_meanwhile(play):
    async def story(cluster):
        node = await start(cluster)
        path = topic_entity("t").path
        other = encode_config({"segment.bytes": "100"})
        writes = []

        def fate(operation):
            if operation.startswith("multi"):
                writes.append(operation)
                if len(writes) == 1:
                    cluster.tree.write(lambda draft: draft.single(SetData(path, other), session=0))
            return RequestFate()

        node.store.fate = fate
        assert (await alter(node, TOPIC, "t", (SET, "retention.ms", "5")))[0] == "NONE"
        assert await stored(cluster, topic_entity("t")) == {
            "segment.bytes": "100",
            "retention.ms": "5",
        }

    play(story)


def test_a_topic_is_described_with_synonyms_types_and_documentation(play):
    async def story(cluster):
        cluster.properties = {"log.retention.ms": "5000"}
        node = await start(cluster)
        await alter(node, TOPIC, "t", (SET, "retention.ms", "1000"))
        result = await describe(
            node,
            TOPIC,
            "t",
            ["retention.ms", "nothing"],
            include_synonyms=True,
            include_documentation=True,
        )

        assert (result.error_code, result.error_message) == (0, None)
        (entry,) = result.configs
        assert (entry.name, entry.value, entry.config_source) == ("retention.ms", "1000", 1)
        assert (entry.config_type, entry.read_only, entry.is_sensitive) == (5, False, False)
        assert [(s.name, s.value, s.source) for s in entry.synonyms] == [
            ("retention.ms", "1000", 1),
            ("log.retention.ms", "5000", 4),
            ("log.retention.hours", "168", 5),
        ]
        assert entry.documentation
        plain = await describe(node, TOPIC, "t", ["retention.ms"])
        assert (plain.configs[0].synonyms, plain.configs[0].documentation) == ([], None)

    play(story)


def test_brokers_and_loggers_are_described(play):
    async def story(cluster):
        node = await start(cluster)
        await alter(node, BROKER, "", (SET, "log.retention.ms", "77"))
        own = await describe(node, BROKER, "1", ["broker.id", "log.retention.ms"])
        assert [(c.name, c.value, c.config_source) for c in own.configs] == [
            ("broker.id", "1", 4),
            ("log.retention.ms", "77", 3),
        ]
        for_all = await describe(node, BROKER, "")
        assert [c.name for c in for_all.configs] == ["log.retention.ms"]

        assert (await alter(node, LOGGER, "1", (SET, "odradek", "DEBUG")))[0] == "NONE"
        levels = await describe(node, LOGGER, "1", ["odradek"])
        assert [(c.name, c.value, c.config_source) for c in levels.configs] == [
            ("odradek", "DEBUG", 6)
        ]
        await alter(node, LOGGER, "1", (DELETE, "odradek", None))
        assert node.configs.loggers.levels()["odradek"] == "INFO"

    play(story)


@pytest.mark.parametrize(("kind", "name"), [(TOPIC, "t"), (BROKER, "1"), (LOGGER, "1")])
def test_an_empty_list_of_names_asks_for_all_options_as_none_does(play, kind, name):
    async def story(cluster):
        node = await start(cluster)
        every = await describe(node, kind, name)
        empty = await describe(node, kind, name, [])

        assert empty == every
        assert len(empty.configs) > 10 or kind == LOGGER

    play(story)


def test_a_resource_that_is_named_twice_is_described_twice(play):
    async def story(cluster):
        node = await start(cluster)
        named = DescribeConfigsResource(
            resource_type=TOPIC, resource_name="t", configuration_keys=["retention.ms"]
        )
        request = DescribeConfigsRequest(resources=[named, named])
        first, second = (await describe_configs(node.configs, node.session(), request, 4)).results

        assert first == second
        assert [each.name for each in second.configs] == ["retention.ms"]

    play(story)


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "nope", "UNKNOWN_TOPIC_OR_PARTITION"),
        (TOPIC, "bad name", "INVALID_TOPIC_EXCEPTION"),
        (BROKER, "9", "INVALID_REQUEST"),
        (BROKER, "abc", "INVALID_REQUEST"),
        (LOGGER, "9", "INVALID_REQUEST"),
        (16, "x", "INVALID_REQUEST"),
    ],
)
def test_what_cannot_be_described_is_refused(play, kind, name, code):
    async def story(cluster):
        node = await start(cluster)
        result = await describe(node, kind, name)
        assert (ErrorCode(result.error_code).name, result.configs) == (code, [])

    play(story)


def test_describing_and_altering_ask_for_the_right_to(play):
    async def story(cluster):
        node = await start(cluster)
        for kind, name, resource, error in (
            (TOPIC, "t", (ResourceType.TOPIC, "t"), "TOPIC_AUTHORIZATION_FAILED"),
            (BROKER, "1", (ResourceType.CLUSTER, "kafka-cluster"), "CLUSTER_AUTHORIZATION_FAILED"),
            (LOGGER, "1", (ResourceType.CLUSTER, "kafka-cluster"), "CLUSTER_AUTHORIZATION_FAILED"),
        ):
            session = node.session(
                (AclOperation.DESCRIBE_CONFIGS, *resource), (AclOperation.ALTER_CONFIGS, *resource)
            )
            described = await describe(node, kind, name, session=session)
            assert ErrorCode(described.error_code).name == error
            altered = await alter(node, kind, name, (SET, "retention.ms", "1"), session=session)
            assert altered[0] == error

    play(story)


def test_what_changed_while_there_was_no_session_is_learnt_with_the_next_one(play):
    async def story(cluster):
        node = await start(cluster, 1, 2)
        cluster.tree.expire(node.store.session_id)
        await cluster.until(lambda: node.store.session_id == 0)
        other = cluster.nodes[2]
        assert (await alter(other, TOPIC, "t", (SET, "retention.ms", "7")))[0] == "NONE"
        await node.register()
        node.shell.session_opened()
        node.dynamic.session_opened()
        await cluster.until(lambda: node.topic_overrides.get("t") == {"retention.ms": "7"})

        await alter(other, TOPIC, "t", (SET, "retention.ms", "8"))
        await cluster.until(lambda: node.topic_overrides["t"] == {"retention.ms": "8"})

    play(story)


def test_notices_are_purged_when_they_are_old(play):
    async def story(cluster):
        node = await start(cluster)
        await alter(node, TOPIC, "t", (SET, "retention.ms", "1"))
        node.clock.wall_offset_ms += 16 * 60 * 1000
        await alter(node, TOPIC, "t", (SET, "retention.ms", "2"))
        node.clock.wall_offset_ms -= 16 * 60 * 1000

        assert node.topic_overrides["t"] == {"retention.ms": "2"}
        await cluster.until(lambda: cluster.tree.names(CONFIG_CHANGES) == [])

    play(story)


def test_a_corrupt_entity_or_notification_changes_nothing_and_is_logged(play):
    async def story(cluster):
        node = await start(cluster)
        await alter(node, TOPIC, "t", (SET, "retention.ms", "1"))
        await cluster.store.set_data(topic_entity("t").path, b"{")
        path = f"{CONFIG_CHANGES}/{CONFIG_CHANGE_PREFIX}"
        await cluster.store.create(path, b"{", sequential=True)
        await cluster.store.create(path, encode_config_change(topic_entity("t")), sequential=True)
        await cluster.until(lambda: len(node.journal.notes) >= 3)

        assert node.topic_overrides["t"] == {"retention.ms": "1"}
        assert any("config_change" in note for note in node.journal.notes)
        assert any("/config/topics/t" in note for note in node.journal.notes)

    play(story)


@pytest.mark.parametrize(
    ("name", "text"),
    [("retention.ms", "abc"), ("segment.bytes", "10"), ("cleanup.policy", "purge")],
)
def test_an_invalid_option_that_somebody_stored_is_shown_and_can_be_deleted(play, name, text):
    async def story(cluster):
        node = await start(cluster)
        stored_options = {name: text, "max.message.bytes": "5000"}
        await cluster.store.set_data(topic_entity("t").path, encode_config(stored_options))
        every = {entry.name: entry for entry in (await describe(node, TOPIC, "t")).configs}
        (only,) = (await describe(node, TOPIC, "t", [name])).configs

        assert (every[name].value, every[name].config_source) == (text, 1)
        assert every["max.message.bytes"].value == "5000"
        assert len(every) == 36
        assert (only.value, only.config_source) == (text, 1)

        code, message = await alter(node, TOPIC, "t", (SET, "max.message.bytes", "6000"))
        assert (code, name in message) == ("INVALID_CONFIG", True)
        assert await alter(node, TOPIC, "t", (DELETE, name, None)) == ("NONE", None)
        assert await stored(cluster, topic_entity("t")) == {"max.message.bytes": "5000"}

    play(story)


def test_what_was_set_before_a_broker_started_is_loaded(play):
    async def story(cluster):
        node = await start(cluster)
        await alter(node, TOPIC, "t", (SET, "retention.ms", "1"))
        await alter(node, BROKER, "", (SET, "log.retention.ms", "77"))
        await cluster.add(2)

        assert cluster.nodes[2].topic_overrides["t"] == {"retention.ms": "1"}
        assert cluster.nodes[2].config.topic_defaults.retention_ms == 77

    play(story)


def test_the_levels_of_the_processs_loggers_are_kafkas_words():
    loggers = ProcessLoggers()
    name = "odradek.tests.levels"

    logging.getLogger(name)
    loggers.set(name, "TRACE")
    assert loggers.levels()[name] == "TRACE"
    loggers.set(name, None)
    assert loggers.levels()[name] == loggers.levels()["root"]
    for levels, code in (
        ({"nobody": "INFO"}, ErrorCode.INVALID_CONFIG),
        ({name: "LOUD"}, ErrorCode.INVALID_CONFIG),
        ({"root": None}, ErrorCode.INVALID_REQUEST),
    ):
        with pytest.raises(ApiError) as refused:
            loggers.check(levels)
        assert refused.value.code is code


@pytest.mark.parametrize(
    ("kafkas", "ours"),
    [
        ("kafka.authorizer.logger", "kafka.authorizer.logger"),
        ("state.change.logger", "odradek.state_change"),
        ("kafka.controller", "odradek.broker.controller"),
        ("kafka.request.logger", "odradek.broker.serving.request_loop"),
    ],
)
def test_kafkas_names_of_loggers_can_be_set(kafkas, ours):
    loggers = ProcessLoggers()
    before = logging.getLogger(ours).level
    try:
        loggers.check({kafkas: "DEBUG"})
        loggers.set(kafkas, "DEBUG")

        assert loggers.levels()[kafkas] == "DEBUG"
        assert logging.getLogger(ours).level == logging.DEBUG
    finally:
        logging.getLogger(ours).setLevel(before)


def test_each_alias_names_a_logger_that_exists():
    importlib.import_module("odradek.broker.main")
    importlib.import_module("odradek.coord.zookeeper")

    for target in logger_levels.ALIASES.values():
        assert target in logging.root.manager.loggerDict, target
