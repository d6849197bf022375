"""OffsetCommit v0 and v1, OffsetFetch v0: offsets in the store, and the times of commits."""

import pytest
from tests.unit.broker.coordinators.test_group_shell import coordinated, fetched
from tests.unit.broker.live import play

from odradek.broker.serving.session import AllowAll
from odradek.coord.layout import consumer_offset_path
from odradek.model.acl import AclOperation, ResourceType
from odradek.model.errors import ErrorCode
from odradek.model.partition import TopicPartition
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic

NONE, UNKNOWN = ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
FAILED = ErrorCode.UNKNOWN_SERVER_ERROR
PATH = "/consumers/g/offsets/t/0"


async def commit(peer, offset, version=0, *, group="g", topic="t", index=0, **fields):
    part = OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, **fields)
    named = OffsetCommitRequestTopic(name=topic, partitions=[part])
    response = await peer.ask(OffsetCommitRequest(group_id=group, topics=[named]), version)
    return ErrorCode(response.topics[0].partitions[0].error_code)


async def fetch(peer, *indexes, group="g", topic="t"):
    named = OffsetFetchRequestTopic(name=topic, partition_indexes=list(indexes or (0,)))
    response = await peer.ask(OffsetFetchRequest(group_id=group, topics=[named]), 0)
    parts = response.topics[0].partitions
    assert {part.metadata for part in parts} == {""}
    return [ErrorCode(part.error_code) or part.committed_offset for part in parts]


def test_an_offset_of_version_0_is_a_node_of_the_store():
    async def story(live):
        await live.topic("t", 2)
        peer = live.peer()

        assert await fetch(peer) == [UNKNOWN]
        assert await commit(peer, 42, committed_metadata="m") is NONE
        assert live.tree.node(PATH).data == b"42"
        assert await commit(peer, 43) is NONE
        assert live.tree.node(PATH).data == b"43"
        assert await fetch(peer, 0, 1, 7) == [43, UNKNOWN, UNKNOWN]
        assert await commit(peer, -5) is NONE
        assert await fetch(peer) == [-5]

    play(story)


def test_what_is_refused():
    async def story(live):
        await live.topic("t")
        peer = live.peer()

        assert await commit(peer, 1, index=1) is UNKNOWN
        assert await commit(peer, 1, topic="nowhere") is UNKNOWN
        assert await fetch(peer, topic="nowhere") == [UNKNOWN]
        too_long = await commit(peer, 1, committed_metadata="x" * 4097)
        assert too_long is ErrorCode.OFFSET_METADATA_TOO_LARGE
        assert await fetch(peer) == [UNKNOWN]

    play(story)


@pytest.mark.parametrize("group", ["", "..", "a/../b"])
def test_a_group_that_is_not_valid_in_a_path_is_an_error(group):
    async def story(live):
        await live.topic("t")
        peer = live.peer()

        assert await commit(peer, 1, group=group) is FAILED
        assert await fetch(peer, 0, 7, group=group) == [FAILED, UNKNOWN]

    play(story)


class Allowed(AllowAll):
    """Allows one operation on one kind of resource."""

    def __init__(self, *allowed):
        self.allowed = allowed

    def authorize(self, session, operation, resource_type, name, *, is_logged=True):
        return (operation, resource_type) in self.allowed


READ_GROUP = (AclOperation.READ, ResourceType.GROUP)
READ_TOPIC = (AclOperation.READ, ResourceType.TOPIC)
DESCRIBE_GROUP = (AclOperation.DESCRIBE, ResourceType.GROUP)
DESCRIBE_TOPIC = (AclOperation.DESCRIBE, ResourceType.TOPIC)


def test_the_rights_are_those_of_later_versions():
    async def story(live):
        await live.topic("t")
        peer = live.peer()
        group, topic = ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED

        for allowed, error in (((READ_TOPIC,), group), ((READ_GROUP,), topic)):
            live.authorizer.chosen = Allowed(*allowed)
            assert await commit(peer, 1) is error
            assert live.tree.find("/consumers/g") is None
        live.authorizer.chosen = Allowed(READ_GROUP, READ_TOPIC)
        assert await commit(peer, 1) is NONE
        for allowed, answer in (
            ((DESCRIBE_TOPIC,), group),
            ((DESCRIBE_GROUP,), topic),
            ((DESCRIBE_GROUP, DESCRIBE_TOPIC), 1),
        ):
            live.authorizer.chosen = Allowed(*allowed)
            assert await fetch(peer) == [answer]

    play(story)


def test_a_group_with_a_slash_is_stored_as_by_kafka():
    async def story(live):
        await live.topic("t")
        peer = live.peer()

        assert await commit(peer, 1, group="a/b") is NONE
        assert live.tree.node("/consumers/a/b/offsets/t/0").data == b"1"
        assert await fetch(peer, group="a/b") == [1]

    play(story)


@pytest.mark.parametrize("data", [b"", b"x", b"99999999999999999999"])
def test_a_node_without_a_number_is_an_error(data):
    async def story(live):
        await live.topic("t")
        peer = live.peer()
        await commit(peer, 1)
        await live.store.set_data(consumer_offset_path("g", TopicPartition("t", 0)), data)

        assert await fetch(peer) == [FAILED]

    play(story)


def test_offsets_of_version_0_and_of_later_versions_do_not_see_each_other():
    async def story(live):
        peer = await coordinated(live)
        await commit(peer, 1)
        assert await fetched(peer) == {}
        assert await commit(peer, 2, version=1) is NONE
        assert await fetched(peer) == {("t", 0): 2}
        assert await fetch(peer) == [1]

    play(story)


def test_a_time_of_the_commit_decides_when_its_offset_expires():
    async def story(live):
        peer = await coordinated(live)
        wall_ms = live.clock.wall_ms()
        await commit(peer, 1, version=1, commit_timestamp=wall_ms - 59_000)
        await commit(peer, 2, version=1, commit_timestamp=wall_ms - 61_000, index=1)
        await live.broker.groups.expire_offsets()
        assert await fetched(peer) == {("t", 0): 1}

    play(story, offsets_retention_minutes=1)
