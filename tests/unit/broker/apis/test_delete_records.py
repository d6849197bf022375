"""DeleteRecords: what is deleted, what stays, and that deleted records do not return."""

import asyncio

import pytest
from tests.unit.broker.live import fetch, fetched, play, produce, soon

from odradek.model.errors import ErrorCode
from odradek.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.wire.messages.fetch import FetchPartition, ReplicaState

T0 = ("t", 0)


async def delete(live, offset, name="t", index=0):
    """The low watermark, or the error."""
    part = DeleteRecordsPartition(partition_index=index, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=name, partitions=[part])])
    (topic,) = (await live.peer().ask(request)).topics
    return ErrorCode(topic.partitions[0].error_code) or topic.partitions[0].low_watermark


@pytest.mark.parametrize(("offset", "low_watermark"), [(2, 2), (0, 0), (5, 5), (-1, 5)])
def test_what_is_below_the_offset_goes(offset, low_watermark):
    async def story(live):
        await live.topic("t")
        for _ in range(5):
            live.append(b"a")

        assert await delete(live, offset) == low_watermark
        assert live.log().log_start_offset == low_watermark
        answer = await live.peer().ask(fetch({T0: low_watermark}, max_wait_ms=0), 12)
        assert fetched(answer) == {T0: [b"a"] * (5 - low_watermark)}
        answer = await live.peer().ask(fetch({T0: low_watermark - 1}), 12)
        assert fetched(answer) == {T0: ErrorCode.OFFSET_OUT_OF_RANGE}

    play(story)


def test_deleting_deleted_records_is_no_error():
    async def story(live):
        await live.topic("t")
        for _ in range(5):
            live.append(b"a")

        assert await delete(live, 3) == 3
        assert await delete(live, 1) == 3

    play(story)


def test_what_is_not_committed_stays():
    async def story(live):
        await live.order()
        for _ in range(5):
            live.append(b"a")
        live.log().set_high_watermark(2)

        for offset in (3, 6, -2):
            assert await delete(live, offset) == ErrorCode.OFFSET_OUT_OF_RANGE
        for follower in live.partition().leader.followers.values():
            follower.log_start_offset = 2
        assert await delete(live, -1) == 2

    play(story)


def test_refusals():
    async def story(live):
        await live.topic("compacted", cleanup_policy="compact")
        await live.topic("both", cleanup_policy="compact,delete")
        await live.topic("__consumer_offsets")
        await live.order("followed", leader=2)

        assert await delete(live, 0, "compacted") == ErrorCode.POLICY_VIOLATION
        assert await delete(live, 0, "both") == 0
        assert await delete(live, 0, "__consumer_offsets") == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert await delete(live, 0, "followed") == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await delete(live, 0, "absent") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await delete(live, 0, "both", 9) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    play(story)


def test_what_was_deleted_is_so_after_a_restart():
    async def story(live):
        await live.topic("t")
        for _ in range(5):
            live.append(b"a")
        await delete(live, 3)
        await live.restart()
        await live.until(lambda: live.partition() is not None)

        assert live.log().log_start_offset == 3
        await live.peer().ask(produce(live.batch(b"b")))
        assert live.log().leo == 6

    play(story)


def test_whole_segments_leave_the_disk():
    async def story(live):
        await live.topic("t", segment_bytes=1024, file_delete_delay_ms=1000)
        for _ in range(6):
            live.append(b"x" * 500)
        segments = len(live.log().segments)
        await delete(live, 5)
        for _ in live.broker.logs.applying_retention():
            pass

        assert len(live.log().segments) < segments
        assert live.log().segments[0].base_offset <= 5

    play(story)


# ------------------------------------------------------------------------------- followers

TOPIC_ID = b"t".ljust(16, b".")


async def follower_says(live, follower, offset, log_start_offset):
    """A follower's fetch, with its log end and log start offset."""
    wanted = FetchPartition(
        fetch_offset=offset, log_start_offset=log_start_offset, partition_max_bytes=1 << 20
    )
    state = ReplicaState(replica_id=follower, replica_epoch=1)
    request = fetch({(TOPIC_ID, 0): wanted}, replica_state=state, max_wait_ms=0)
    return await live.peer().ask(request, 17)


async def leader_of_five(live):
    await live.order()
    for _ in range(5):
        live.append(b"a")
    for follower in (2, 3):
        await follower_says(live, follower, 5, 0)
    assert live.log().high_watermark == 5


def ask_to_delete(live, offset, timeout_ms):
    part = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name="t", partitions=[part])], timeout_ms=timeout_ms
    )
    return asyncio.ensure_future(live.peer().ask(request))


def result(answer):
    part = answer.topics[0].partitions[0]
    return ErrorCode(part.error_code), part.low_watermark


def test_all_followers_are_waited_for():
    async def story(live):
        await leader_of_five(live)
        asked = ask_to_delete(live, 3, 30_000)
        await asyncio.sleep(1)
        assert live.log().log_start_offset == 3
        await follower_says(live, 2, 5, 3)
        await asyncio.sleep(1)
        assert not asked.done()
        await follower_says(live, 3, 5, 4)
        assert result(await asked) == (ErrorCode.NONE, 3)

    play(story)


def test_a_waiting_follower_gets_the_new_log_start_at_once():
    async def story(live):
        await leader_of_five(live)
        wanted = FetchPartition(fetch_offset=5, log_start_offset=0, partition_max_bytes=1 << 20)
        state = ReplicaState(replica_id=2, replica_epoch=1)
        waits = {"replica_state": state, "max_wait_ms": 10_000, "min_bytes": 1}
        peer = live.peer()
        first = await peer.ask(fetch({(TOPIC_ID, 0): wanted}, session_epoch=0, **waits), 17)
        fetching = peer.send(fetch({}, session_id=first.session_id, session_epoch=1, **waits), 17)
        ask_to_delete(live, 3, 1_000)
        answer = await soon(fetching)
        assert answer.responses[0].partitions[0].log_start_offset == 3

    play(story)


def test_a_replica_that_is_not_registered_is_not_waited_for():
    async def story(live):
        await leader_of_five(live)
        asked = ask_to_delete(live, 3, 30_000)
        await follower_says(live, 2, 5, 3)
        await asyncio.sleep(1)
        assert not asked.done()
        live.broker.replicas.brokers_changed(frozenset({0, 2}))
        assert result(await asked) == (ErrorCode.NONE, 3)

    play(story)


def test_a_deletion_that_times_out_answers_the_low_watermark():
    async def story(live):
        await leader_of_five(live)
        await follower_says(live, 2, 5, 2)
        await follower_says(live, 3, 5, 1)
        asked_at = live.loop.time()
        assert result(await ask_to_delete(live, 3, 2_000)) == (ErrorCode.REQUEST_TIMED_OUT, 1)
        assert live.loop.time() - asked_at >= 2

    play(story)


def test_another_leader_answers_for_what_this_one_has_begun():
    async def story(live):
        await leader_of_five(live)
        asked = ask_to_delete(live, 3, 30_000)
        await asyncio.sleep(1)
        await live.order(leader=2, leader_epoch=1, is_new=False)
        assert result(await asked) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)

    play(story)
