"""DeleteRecords: what goes, what stays, and that it stays gone."""

import pytest
from tests.unit.broker.live import fetch, play, produce, told

from odradek.model.errors import ErrorCode
from odradek.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)

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
        assert told(answer) == {T0: [b"a"] * (5 - low_watermark)}
        if low_watermark:
            answer = await live.peer().ask(fetch({T0: low_watermark - 1}), 12)
            assert told(answer) == {T0: ErrorCode.OFFSET_OUT_OF_RANGE}

    play(story)


def test_what_is_gone_already_is_no_error():
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
