"""A client without rights changes and learns nothing; one with the needed right is served."""

import asyncio
import itertools

import pytest
from tests.unit.broker.every_api import EXAMPLES, error_codes
from tests.unit.broker.live import Live, play

import odradek.broker.reports  # noqa: F401 - loaded with the first report, with loggers of their own
from odradek.broker.admin.acls import ACL_AUTHORIZER
from odradek.broker.apis.metadata import authorized_operations
from odradek.broker.serving.session import ANONYMOUS
from odradek.model.acl import CLUSTER_NAME, OPERATIONS, AclOperation, ResourceType
from odradek.model.errors import ErrorCode
from odradek.security.acls import AclSettings
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.describe_cluster import DescribeClusterRequest
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

NOT_ASKED_FOR = -(2**31)
CHECKED = [example for example in EXAMPLES if example.acls]


class Only:
    """Allows one operation, and records what was asked."""

    versions = itertools.count(1)

    def __init__(self, *acls):
        self.version = next(self.versions)
        self.acls = set(acls)
        self.asked = []

    def authorize(self, session, operation, resource_type, name, *, is_logged=True):
        self.asked.append((operation, resource_type, name))
        return (operation, resource_type, name) in self.acls

    def authorize_any(self, session, operation, resource_type):
        self.asked.append((operation, resource_type, None))
        return any(acl[:2] == (operation, resource_type) for acl in self.acls)


async def prepared(live, *acls) -> Only:
    await live.topic("t", 2)
    for _ in range(3):
        live.append(b"a")
    await asyncio.sleep(1)
    authorizer = live.authorizer.chosen = Only(*acls)
    return authorizer


def state_of(live: Live):
    """All state that a request may change."""
    broker = live.broker
    return {
        "store": {path: (n.data, n.version) for path, n in live.tree._nodes.items()},
        "logs": {
            log.partition: (log.leo, log.log_start_offset, log.high_watermark, log.directory)
            for log in broker.logs
        },
        "futures": broker.logs.futures,
        "epochs": [(p.topic_partition, p.leader_epoch, p.error) for p in broker.replicas],
        "metadata": (broker.metadata.version, list(broker.metadata.topics)),
        "controller epoch": broker.controller_requests.controller_epoch,
        "config": dict(broker.config.values),
        "loggers": broker.config_admin.loggers.levels(),
        "sessions": len(broker.fetch.sessions),
        "producer ids": (broker.producer_ids._next, broker.producer_ids._end),
        "being made": set(broker.internal_topics._maker._being_made),
    }


async def check_refused(live, example):
    before = state_of(live)
    peer = live.peer()
    response = await peer.ask(example.request(live, version := example.last), version)
    await asyncio.sleep(1)

    assert error_codes(response) == {example.refusal}
    assert state_of(live) == before
    assert not peer.closed


@pytest.mark.parametrize("example", CHECKED, ids=str)
def test_without_any_right_nothing_is_changed(example):
    async def story(live):
        await prepared(live)
        await check_refused(live, example)

    play(story)


@pytest.mark.parametrize("example", CHECKED, ids=str)
def test_without_any_acl_nothing_is_changed(example):
    async def story(live):
        await prepared(live)
        live.broker.acl_changes.authorizer.configure(AclSettings())
        await check_refused(live, example)

    play(story, authorizer_class_name=ACL_AUTHORIZER, super_users=ANONYMOUS)


@pytest.mark.parametrize("example", CHECKED, ids=str)
def test_exactly_the_needed_rights_are_enough(example):
    async def story(live):
        await prepared(live, *example.acls)
        request = example.request(live, version := example.last)
        response = await live.peer().ask(request, version)

        assert error_codes(response) == {example.allowed}

    play(story)


@pytest.mark.parametrize(
    ("example", "missing"),
    [
        pytest.param(example, acl, id=f"{example} without {acl[0].name}")
        for example in CHECKED
        if len(example.acls) > 1
        for acl in example.acls
    ],
)
def test_where_two_rights_are_needed_one_is_not_enough(example, missing):
    async def story(live):
        await prepared(live, *(set(example.acls) - {missing}))
        before = state_of(live)
        request = example.request(live, version := example.last)
        (error,) = error_codes(await live.peer().ask(request, version))
        await asyncio.sleep(1)

        assert error.name.endswith("AUTHORIZATION_FAILED")
        assert state_of(live) == before

    play(story)


@pytest.mark.parametrize("example", [example for example in EXAMPLES if not example.acls], ids=str)
def test_what_needs_no_right_asks_for_none(example):
    async def story(live):
        authorizer = await prepared(live)
        request = example.request(live, version := example.last)
        response = await live.peer().ask(request, version)

        assert error_codes(response) == {example.allowed}
        assert authorizer.asked == []

    play(story)


# ------------------------------------------------------------------- what must not be seen


def test_without_the_right_to_describe_a_topics_name_is_not_shown():
    async def story(live):
        topic_id = (await live.topic("t")).topic_id
        live.authorizer.chosen = Only()
        peer = live.peer()
        states = [DeleteTopicState(name=None, topic_id=id_) for id_ in (topic_id, b"?" * 16)]
        request = DeleteTopicsRequest(topics=states, timeout_ms=100)
        answers = (await peer.ask(request)).responses
        # An id is no secret: only a client that has described the topic can have it.
        assert [(answer.name, answer.error_code) for answer in answers] == [
            (None, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
            (None, ErrorCode.UNKNOWN_TOPIC_ID),
        ]
        topics = [MetadataRequestTopic(name="t"), MetadataRequestTopic(name="absent")]
        one, other = (await peer.ask(MetadataRequest(topics=topics))).topics
        assert one.error_code == other.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert one.topic_id == other.topic_id == bytes(16)
        assert (await peer.ask(MetadataRequest(topics=None))).topics == []

    play(story)


def test_with_describe_and_without_delete_the_error_is_topic_authorization_failed():
    async def story(live):
        topic_id = (await live.topic("t")).topic_id
        live.authorizer.chosen = Only((AclOperation.DESCRIBE, ResourceType.TOPIC, "t"))
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=None, topic_id=topic_id)], timeout_ms=100
        )
        (answer,) = (await live.peer().ask(request)).responses

        assert answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert live.partition() is not None

    play(story)


def test_a_created_topics_options_need_describe_configs():
    async def story(live):
        create = (AclOperation.CREATE, ResourceType.TOPIC, "new")
        live.authorizer.chosen = Only(create)
        topic = CreatableTopic(name="new", num_partitions=1, replication_factor=1)
        (answer,) = (await live.peer().ask(CreateTopicsRequest(topics=[topic]))).topics

        assert answer.error_code == ErrorCode.NONE
        assert answer.topic_config_error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert (answer.num_partitions, answer.replication_factor, answer.configs) == (-1, -1, None)

    play(story)


# ------------------------------------------------------------------- authorized operations


@pytest.mark.parametrize("version", [8, 10])
def test_cluster_operations_are_answered_if_asked_for_and_with_describe(version):
    describe = (AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    alter = (AclOperation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)

    async def story(live):
        request = MetadataRequest(topics=[], include_cluster_authorized_operations=True)
        quiet = MetadataRequest(topics=[])
        for acls, bits in (
            ((describe, alter), 1 << AclOperation.DESCRIBE | 1 << AclOperation.ALTER),
            ((alter,), 0),
        ):
            live.authorizer.chosen = Only(*acls)
            peer = live.peer()
            answer = await peer.ask(request, version)
            assert answer.cluster_authorized_operations == bits
            answer = await peer.ask(quiet, version)
            assert answer.cluster_authorized_operations == NOT_ASKED_FOR
            answer = await peer.ask(
                DescribeClusterRequest(include_cluster_authorized_operations=True)
            )
            assert answer.cluster_authorized_operations == bits
            answer = await peer.ask(DescribeClusterRequest())
            assert answer.cluster_authorized_operations == NOT_ASKED_FOR

    play(story)


def test_with_all_rights_every_operation_is_listed():
    async def story(live):
        session = live.peer().connection.session
        for resource_type, operations in OPERATIONS.items():
            bits = authorized_operations(session, resource_type, "x")
            assert bits == sum(1 << operation for operation in operations)

    play(story)
