"""The group coordinator in a whole broker: what waits, what times out, what a coordinator loads."""

import asyncio
import errno
from functools import partial

from tests.unit.broker.live import play, soon

from odradek.group.effects import PartitionsAnswer
from odradek.group.events import CommitOffsets, Committer
from odradek.group.records import CommittedOffset
from odradek.model.errors import ErrorCode
from odradek.model.partition import TopicPartition
from odradek.sim.world.disk import DiskFault
from odradek.wire.messages.describe_groups import DescribeGroupsRequest
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.heartbeat import HeartbeatRequest
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.wire.messages.list_groups import ListGroupsRequest
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from odradek.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

NAMES = {"protocol_type": "consumer", "protocol_name": "range"}


async def coordinated(live):
    """A topic `t` of two partitions, and a coordinator that answers."""
    await live.topic("t", 2)
    peer = live.peer()
    for _ in range(1_000):
        find = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
        found = await peer.ask(find)
        listed = await peer.ask(ListGroupsRequest())
        if not found.coordinators[0].error_code and not listed.error_code:
            return peer
        await asyncio.sleep(0.01)
    raise AssertionError(found)


def join(**fields):
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
    return JoinGroupRequest(
        **{
            "group_id": "g",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000,
            "protocol_type": "consumer",
            "protocols": protocols,
            **fields,
        }
    )


def commit(offset, **fields):
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequestTopic(name="t", partitions=[part])
    return OffsetCommitRequest(
        **{"group_id": "g", "generation_id_or_member_epoch": -1, "topics": [topic], **fields}
    )


def error_of(answer):
    return ErrorCode(answer.topics[0].partitions[0].error_code)


async def fetched(peer):
    group = OffsetFetchRequestGroup(group_id="g", topics=None)
    (answer,) = (await peer.ask(OffsetFetchRequest(groups=[group]))).groups
    offsets = {
        (topic.name, part.partition_index): part.committed_offset
        for topic in answer.topics
        for part in topic.partitions
    }
    return ErrorCode(answer.error_code) or offsets


def led(live):
    found = live.broker.groups.topic.find("g")
    assert not isinstance(found, ErrorCode), found
    return found


def test_the_first_rebalance_waits_and_the_session_ends_by_the_clock():
    async def story(live):
        peer = await coordinated(live)
        answer = peer.send(join(group_instance_id="i"))
        await asyncio.sleep(2.9)
        assert not answer.done()
        await asyncio.sleep(0.2)
        joined = answer.result()
        part = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")
        who = {"group_id": "g", "generation_id": 1, "member_id": joined.member_id}
        synced = await peer.ask(SyncGroupRequest(assignments=[part], **who, **NAMES))
        assert bytes(synced.assignment) == b"all"
        await asyncio.sleep(9)
        assert not (await peer.ask(HeartbeatRequest(**who))).error_code
        await asyncio.sleep(9)
        assert not (await peer.ask(HeartbeatRequest(**who))).error_code
        await asyncio.sleep(10.1)
        answered = await peer.ask(HeartbeatRequest(**who))

        assert answered.error_code == ErrorCode.UNKNOWN_MEMBER_ID

    play(story)


def test_a_session_ends_within_two_milliseconds_of_its_time():
    async def story(live):
        peer = await coordinated(live)
        joined = await peer.ask(join(group_instance_id="i"))
        part = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")
        who = {"group_id": "g", "generation_id": 1, "member_id": joined.member_id}
        await peer.ask(SyncGroupRequest(assignments=[part], **who, **NAMES))
        assert not (await peer.ask(HeartbeatRequest(**who))).error_code
        await asyncio.sleep(9.995)
        described = await peer.ask(DescribeGroupsRequest(groups=["g"]))
        assert described.groups[0].group_state == "Stable"
        await asyncio.sleep(0.007)
        described = await peer.ask(DescribeGroupsRequest(groups=["g"]))

        assert described.groups[0].group_state == "Empty"

    play(story)


def test_offsets_and_members_are_there_after_a_restart():
    async def story(live):
        peer = await coordinated(live)
        joined = await peer.ask(join(group_instance_id="i"))
        who = {"group_id": "g", "generation_id": 1, "member_id": joined.member_id}
        await peer.ask(SyncGroupRequest(**who, **NAMES))
        member = {"member_id": joined.member_id, "generation_id_or_member_epoch": 1}
        assert error_of(await peer.ask(commit(5, **member))) is ErrorCode.NONE
        await live.restart()
        await live.until(lambda: not isinstance(live.broker.groups.topic.find("g"), ErrorCode))
        peer = live.peer()

        assert await fetched(peer) == {("t", 0): 5}
        assert not (await peer.ask(HeartbeatRequest(**who))).error_code
        (described,) = (await peer.ask(DescribeGroupsRequest(groups=["g"]))).groups
        assert described.group_state == "Stable"

    play(story, group_initial_rebalance_delay_ms=0)


def test_while_it_loads_heartbeats_are_accepted_and_other_requests_get_load_in_progress():
    async def story(live):
        peer = await coordinated(live)
        assert error_of(await peer.ask(commit(5))) is ErrorCode.NONE
        topic = live.broker.groups.topic
        partition = led(live).partition
        leader, partition.leader = partition.leader, None
        topic.role_changed(partition)
        partition.leader = leader
        async with topic._turn:  # nothing is loaded meanwhile
            topic.role_changed(partition)
            loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            who = {"group_id": "g", "generation_id": 1, "member_id": "m"}
            assert (await soon(peer.ask(HeartbeatRequest(**who)))).error_code == 0
            sync = await soon(peer.ask(SyncGroupRequest(**who, **NAMES)))
            assert sync.error_code == ErrorCode.REBALANCE_IN_PROGRESS
            assert (await soon(peer.ask(join()))).error_code == loading
            assert error_of(await soon(peer.ask(commit(6)))) is loading
            assert await soon(fetched(peer)) is loading
            assert (await soon(peer.ask(ListGroupsRequest()))).error_code == loading
        await live.until(lambda: not topic.is_loading)

        assert await fetched(peer) == {("t", 0): 5}

    play(story)


def test_waiting_requests_get_not_coordinator_when_leadership_is_lost():
    async def story(live):
        peer = await coordinated(live)
        answer = peer.send(join(group_instance_id="i"))
        await asyncio.sleep(0.1)
        assert not answer.done()
        partition = led(live).partition
        partition.stop_serving(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        live.broker.replicas.role_changed(partition)

        assert (await soon(answer)).error_code == ErrorCode.NOT_COORDINATOR
        assert error_of(await peer.ask(commit(1))) is ErrorCode.NOT_COORDINATOR

    play(story)


def test_offsets_of_a_deleted_topic_are_removed():
    async def story(live):
        peer = await coordinated(live)
        await peer.ask(commit(5))
        await live.broker.groups.topics_deleted(["t"])

        assert await fetched(peer) == {}
        assert list(led(live).machine.groups) == []

    play(story)


def test_offsets_of_a_topic_that_is_deleted_while_they_are_loaded_are_removed():
    async def story(live):
        peer = await coordinated(live)
        await peer.ask(commit(5))
        partition = led(live).partition
        live.disk.faults.append(DiskFault("read", str(partition.topic_partition), errno.EMFILE))
        leader, partition.leader = partition.leader, None
        live.broker.replicas.role_changed(partition)
        partition.leader = leader
        live.broker.replicas.role_changed(partition)
        await live.broker.groups.topics_deleted(["t"])
        assert live.broker.groups.topic.is_loading
        await live.until(lambda: not live.broker.groups.topic.is_loading)

        assert await fetched(peer) == {}

    play(story)


def test_offsets_expire():
    async def story(live):
        peer = await coordinated(live)
        await peer.ask(commit(5))
        await asyncio.sleep(59)
        assert await fetched(peer) == {("t", 0): 5}
        await asyncio.sleep(3)

        assert await fetched(peer) == {}

    play(
        story,
        offsets_retention_minutes=1,
        offsets_retention_check_interval_ms=1_000,
        connections_max_idle_ms=600_000,
    )


def test_a_retention_without_end_keeps_an_offset():
    async def story(live):
        peer = await coordinated(live)
        request = commit(5, retention_time_ms=(1 << 63) - 1)
        assert error_of(await peer.ask(request, 4)) is ErrorCode.NONE

        assert await fetched(peer) == {("t", 0): 5}

    play(story)


def test_a_commit_that_is_too_large_for_the_topic_gets_an_error():
    async def story(live):
        peer = await coordinated(live)
        partition = led(live).partition
        partition.rules.message_bytes_max = 100

        assert error_of(await peer.ask(commit(5))) is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        assert await fetched(peer) == {}

    play(story)


def test_a_marker_ends_what_is_pending_in_its_partition():
    async def story(live):
        peer = await coordinated(live)
        groups, mine = live.broker.groups, led(live)
        for producer, offset in ((7, 5), (8, 6)):
            event = partial(
                CommitOffsets,
                group_id="g",
                committer=Committer(producer_id=producer, producer_epoch=0),
                offsets={TopicPartition("t", 0): CommittedOffset(offset, -1, "", 0)},
            )
            answer = groups.ask(mine, lambda number, event=event: event(request=number))
            assert answer == PartitionsAnswer(ErrorCode.NONE)
        assert await fetched(peer) == {}
        groups.transaction_ended(mine.index, 7, committed=True)
        assert await fetched(peer) == {("t", 0): 5}
        groups.transaction_ended(mine.index, 8, committed=False)

        assert await fetched(peer) == {("t", 0): 5}

    play(story)
