"""Group membership: each step, with prepared answers of the coordinator."""

import asyncio

import pytest
from tests.unit.client.fakes import FakeCluster

from odradek.client.consumer.coordinator import CommitFailedError, ConsumerCoordinator
from odradek.client.consumer.settings import COOPERATIVE, ConsumerSettings
from odradek.client.errors import ClientTimeoutError
from odradek.client.group.offsets import OffsetAndMetadata
from odradek.client.group.protocol import (
    MemberSubscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from odradek.client.settings import SettingsError
from odradek.model.errors import ApiError, ErrorCode
from odradek.model.partition import TopicPartition
from odradek.sim.world.loop import run
from odradek.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from odradek.wire.messages.leave_group import LeaveGroupRequest
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from odradek.wire.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from odradek.wire.messages.sync_group import SyncGroupResponse

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
AT_5 = {T0: OffsetAndMetadata(5)}


class Consumer:
    """The consumer as its coordinator code sees it: the assignment and the callbacks so far."""

    topics = ("t",)

    def __init__(self):
        self.has = []
        self.callbacks = []
        self.listener = self
        self.at = {}
        self.woken = 0

    def owned(self):
        return list(self.has)

    def take_over(self, partitions):
        self.has = list(partitions)

    def positions(self):
        return self.at

    def wake(self):
        self.woken += 1

    async def assigned(self, partitions):
        self.callbacks.append(("assigned", [p.partition for p in partitions]))

    async def revoked(self, partitions):
        self.callbacks.append(("revoked", [p.partition for p in partitions]))

    async def lost(self, partitions):
        self.callbacks.append(("lost", [p.partition for p in partitions]))


def as_member(then, **properties):
    """Run `then(coordinator, consumer, cluster)` in simulated time; returns the cluster."""

    async def play():
        text = {name.replace("_", "."): str(value) for name, value in properties.items()}
        settings = ConsumerSettings.from_properties({"group.id": "g", **text})
        cluster, consumer = FakeCluster(2, settings=settings.client), Consumer()
        coordinator = ConsumerCoordinator(cluster, settings, "g", consumer)
        try:
            await asyncio.wait_for(then(coordinator, consumer, cluster), 10_000)
        finally:
            await coordinator.close()
        return cluster

    return run(play())


def joined(generation=1, *, leader="other", protocol="range", members=()):
    return JoinGroupResponse(
        generation_id=generation,
        protocol_name=protocol,
        leader=leader,
        member_id="me",
        members=list(members),
    )


def given(*partitions):
    return SyncGroupResponse(assignment=encode_assignment(partitions))


def refused(code):
    return JoinGroupResponse(error_code=code, protocol_name=None, member_id="me")


def commit_answer(code):
    parts = [OffsetCommitResponsePartition(partition_index=0, error_code=code)]
    return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=parts)])


async def poll(coordinator, seconds=1.0):
    await coordinator.poll(asyncio.get_running_loop().time() + seconds)


def names(cluster):
    return [type(m).__name__.removesuffix("Request") for m in cluster.asked]


def of(cluster, kind):
    return [message for message in cluster.asked if isinstance(message, kind)]


def test_a_member_joins_again_with_its_member_id_and_gets_its_assignment():
    async def then(coordinator, consumer, cluster):
        cluster.answers = [refused(ErrorCode.MEMBER_ID_REQUIRED), joined(), given(T1)]
        await poll(coordinator)
        assert consumer.has == [T1]
        assert consumer.callbacks == [("assigned", [1])]
        assert coordinator.metadata() == ("g", 1, "me", None)
        assert names(cluster) == ["JoinGroup", "JoinGroup", "SyncGroup"]
        assert [m.member_id for m in cluster.asked] == ["", "me", "me"]

    as_member(then)


def test_the_leader_assigns_the_partitions_of_all_members():
    async def then(coordinator, consumer, cluster):
        members = [
            JoinGroupResponseMember(
                member_id=name, metadata=encode_subscription(MemberSubscription(("t",)))
            )
            for name in ("me", "other")
        ]
        cluster.answers = [joined(leader="me", members=members), given(T0)]
        await poll(coordinator)
        handed_in = {
            part.member_id: decode_assignment(part.assignment)
            for part in cluster.asked[-1].assignments
        }
        assert handed_in == {"me": [T0], "other": [T1]}
        cluster.partitions = 3
        await cluster.refresh(["t"])
        coordinator.counts_changed()
        assert not coordinator.is_joined

    as_member(then)


def test_a_heartbeat_reports_a_rebalance_and_an_eager_member_revokes_everything():
    async def then(coordinator, consumer, cluster):
        cluster.answers = [joined(), given(T0)]
        await poll(coordinator)
        consumer.at = AT_5
        cluster.answers = [HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)]
        await asyncio.sleep(3.1)
        assert consumer.woken == 1
        cluster.answers = [commit_answer(0), joined(2), given(T1)]
        await poll(coordinator)
        assert consumer.callbacks[1:] == [("revoked", [0]), ("assigned", [1])]
        assert names(cluster)[2:] == ["Heartbeat", "OffsetCommit", "JoinGroup", "SyncGroup"]

    as_member(then)


def test_a_cooperative_member_keeps_what_stays_and_joins_again_after_a_revocation():
    async def then(coordinator, consumer, cluster):
        cluster.answers = [joined(protocol="cooperative-sticky"), given(T0, T1)]
        await poll(coordinator)
        coordinator.rejoin("test")
        cluster.answers = [
            joined(2, protocol="cooperative-sticky"),
            given(T0),
            joined(3, protocol="cooperative-sticky"),
            given(T0),
        ]
        await poll(coordinator)
        assert consumer.callbacks[1:] == [("revoked", [1]), ("assigned", []), ("assigned", [])]
        joins = [m for m in cluster.asked if type(m).__name__ == "JoinGroupRequest"]
        owned = [decode_subscription(m.protocols[0].metadata).owned for m in joins]
        assert owned == [(), (T0, T1), (T0,)]

    as_member(then, partition_assignment_strategy=COOPERATIVE, enable_auto_commit="false")


def test_an_unknown_member_has_lost_its_assignment():
    async def then(coordinator, consumer, cluster):
        cluster.answers = [joined(), given(T0)]
        await poll(coordinator)
        cluster.answers = [HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)]
        await asyncio.sleep(3.1)
        cluster.answers = [joined(5), given(T1)]
        await poll(coordinator)
        assert consumer.callbacks[1:] == [("lost", [0]), ("assigned", [1])]
        assert cluster.asked[-2].member_id == ""

    as_member(then)


def test_a_member_that_does_not_poll_leaves_the_group():
    async def then(coordinator, consumer, cluster):
        cluster.answers = [joined(), given(T0)]
        await poll(coordinator)
        await asyncio.sleep(12.5)
        (leaving,) = of(cluster, LeaveGroupRequest)
        assert leaving.members[0].member_id == "me"
        assert leaving.members[0].reason == "consumer poll timeout has expired."
        cluster.answers = [joined(2), given(T0)]
        await poll(coordinator)
        assert consumer.callbacks[1:] == [("lost", [0]), ("assigned", [0])]

    as_member(then, max_poll_interval_ms=10_000)


def test_a_join_goes_on_over_several_polls():
    async def then(coordinator, consumer, cluster):
        slow = asyncio.get_running_loop().create_future()
        cluster.answers = [slow, given(T0)]
        await poll(coordinator)
        await poll(coordinator)
        assert not coordinator.is_joined
        assert names(cluster) == ["JoinGroup"]
        slow.set_result(joined())
        await poll(coordinator)
        assert consumer.has == [T0]

    as_member(then)


@pytest.mark.parametrize(
    "trouble",
    [
        ConnectionError("lost"),
        refused(ErrorCode.NOT_COORDINATOR),
        refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        refused(ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_temporary_errors_of_a_join_are_retried(trouble):
    async def then(coordinator, consumer, cluster):
        cluster.answers = [trouble, joined(), given(T0)]
        await poll(coordinator)
        assert consumer.has == [T0]

    as_member(then)


def test_the_group_refuses_a_member_with_a_reason():
    async def then(coordinator, consumer, cluster):
        cluster.answers = [refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)]
        with pytest.raises(ApiError, match="INCONSISTENT_GROUP_PROTOCOL: JoinGroup for g"):
            await poll(coordinator)

    as_member(then)


def test_a_fenced_static_member_raises_and_sends_no_leave_group():
    async def then(coordinator, consumer, cluster):
        cluster.answers = [joined(), given(T0)]
        await poll(coordinator)
        cluster.answers = [HeartbeatResponse(error_code=ErrorCode.FENCED_INSTANCE_ID)]
        await asyncio.sleep(3.1)
        with pytest.raises(ApiError, match="FENCED_INSTANCE_ID"):
            await poll(coordinator)

    cluster = as_member(then, group_instance_id="one")

    assert of(cluster, LeaveGroupRequest) == []
    assert {m.group_instance_id for m in of(cluster, HeartbeatRequest)} == {"one"}


# ----------------------------------------------------------------------------------- commits


def test_a_commit_is_retried_until_it_succeeds():
    async def then(coordinator, consumer, cluster):
        cluster.answers = [
            commit_answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
            ConnectionError("lost"),
            commit_answer(ErrorCode.NOT_COORDINATOR),
            commit_answer(0),
        ]
        await coordinator.commit(AT_5)
        assert len(of(cluster, OffsetCommitRequest)) == 4
        assert cluster.dropped == 2

    as_member(then)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ErrorCode.ILLEGAL_GENERATION, CommitFailedError),
        (ErrorCode.REBALANCE_IN_PROGRESS, CommitFailedError),
        (ErrorCode.OFFSET_METADATA_TOO_LARGE, ApiError),
    ],
)
def test_a_commit_is_not_retried_after_a_permanent_error(code, error):
    async def then(coordinator, consumer, cluster):
        cluster.answers = [commit_answer(code)]
        with pytest.raises(error):
            await coordinator.commit(AT_5)

    as_member(then)


def test_nothing_is_committed_in_a_generation_in_which_it_was_not_read():
    async def then(coordinator, consumer, cluster):
        cluster.answers = [joined(generation=1), given(T0)]
        await poll(coordinator)
        coordinator.rejoin("another member has joined")
        cluster.answers = [joined(generation=2), asyncio.get_running_loop().create_future()]
        await coordinator.poll(1000)  # the answer to SyncGroup is missing
        with pytest.raises(CommitFailedError, match="call poll"):
            await coordinator.commit(AT_5)

    assert of(as_member(then), OffsetCommitRequest) == []


def test_a_member_that_the_group_has_removed_commits_nothing():
    async def then(coordinator, consumer, cluster):
        cluster.answers = [joined(), given(T0)]
        await poll(coordinator)
        cluster.answers = [HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)]
        await asyncio.sleep(3.1)
        with pytest.raises(CommitFailedError, match="call poll"):
            await coordinator.commit(AT_5)

    assert of(as_member(then), OffsetCommitRequest) == []


def test_a_commit_is_retried_until_the_time_out():
    async def then(coordinator, consumer, cluster):
        cluster.answers = [commit_answer(ErrorCode.REQUEST_TIMED_OUT)] * 1000
        with pytest.raises(ClientTimeoutError, match="Timeout of 3000ms expired before"):
            await coordinator.commit(AT_5, timeout_ms=3000)

    as_member(then)


def test_an_asynchronous_commit_is_sent_once():
    async def then(coordinator, consumer, cluster):
        cluster.answers = [commit_answer(ErrorCode.NOT_COORDINATOR)]
        done = asyncio.get_running_loop().create_future()
        coordinator.commit_async(AT_5, lambda offsets, error: done.set_result((offsets, error)))
        offsets, error = await done
        assert offsets == AT_5
        assert error.code is ErrorCode.NOT_COORDINATOR
        assert len(of(cluster, OffsetCommitRequest)) == 1

    as_member(then)


def test_a_synchronous_commit_waits_for_earlier_asynchronous_ones():
    async def then(coordinator, consumer, cluster):
        slow = asyncio.get_running_loop().create_future()
        cluster.answers = [slow, commit_answer(0)]
        coordinator.commit_async(AT_5, None)
        patient = asyncio.create_task(coordinator.commit({T0: OffsetAndMetadata(6)}))
        await asyncio.sleep(1)
        assert len(of(cluster, OffsetCommitRequest)) == 1
        slow.set_result(commit_answer(0))
        await patient
        assert len(of(cluster, OffsetCommitRequest)) == 2

    as_member(then)


def test_auto_commit_every_five_seconds_and_at_close():
    async def then(coordinator, consumer, cluster):
        cluster.answers = [joined(), given(T0)]
        await poll(coordinator)
        consumer.at = AT_5
        await asyncio.sleep(4)
        await poll(coordinator)
        assert of(cluster, OffsetCommitRequest) == []
        await asyncio.sleep(1.1)
        await poll(coordinator)
        await asyncio.sleep(0.1)
        (commit,) = of(cluster, OffsetCommitRequest)
        assert (commit.member_id, commit.generation_id_or_member_epoch) == ("me", 1)

    cluster = as_member(then)

    assert names(cluster)[-2:] == ["OffsetCommit", "LeaveGroup"]


def test_committed_offsets_are_returned_and_missing_ones_left_out():
    async def then(coordinator, consumer, cluster):
        parts = [
            OffsetFetchResponsePartitions(partition_index=0, committed_offset=5, metadata="m"),
            OffsetFetchResponsePartitions(partition_index=1, committed_offset=-1),
        ]
        topics = [OffsetFetchResponseTopics(name="t", partitions=parts)]
        cluster.answers = [
            OffsetFetchResponse(
                groups=[OffsetFetchResponseGroup(error_code=ErrorCode.NOT_COORDINATOR)]
            ),
            OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=topics)]),
        ]
        assert await coordinator.committed([T0, T1]) == {T0: OffsetAndMetadata(5, -1, "m")}

    as_member(then)


def test_an_unknown_assignor_is_refused():
    with pytest.raises(SettingsError, match="partition.assignment.strategy=Lottery"):
        as_member(None, partition_assignment_strategy="Lottery")


def test_a_transaction_sends_the_generation_in_which_its_records_were_read():
    """Also after the membership was lost: without a generation the group fences no offsets."""

    async def then(coordinator, consumer, cluster):
        cluster.answers = [joined(7), given(T0)]
        await poll(coordinator)
        cluster.answers = [HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)]
        await asyncio.sleep(5)
        assert consumer.woken
        assert coordinator.metadata() == ("g", 7, "me", None)
        cluster.answers = [joined(9), given(T1)]
        await poll(coordinator)
        assert coordinator.metadata() == ("g", 9, "me", None)

    as_member(then)
