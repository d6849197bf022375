"""ListOffsets v0: the offsets at which segments begin, by the times of their files.

The expected lists were compared with those of Apache Kafka 3.9.2 for the same segments.
"""

import asyncio

import pytest
from tests.unit.broker.live import play

from odradek.broker.replication.segment_offsets import up_to
from odradek.model.errors import ErrorCode
from odradek.sim.world.disk import DiskFault
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

LATEST, EARLIEST = -1, -2
DEBUGGING = -2


async def ask(live, when, count=10, *, name="t", index=0, replica_id=-1):
    part = ListOffsetsPartition(partition_index=index, timestamp=when, max_num_offsets=count)
    topic = ListOffsetsTopic(name=name, partitions=[part])
    request = ListOffsetsRequest(replica_id=replica_id, topics=[topic])
    response = await live.peer().ask(request, 0)
    ((answer,),) = [topic.partitions for topic in response.topics]
    return ErrorCode(answer.error_code) or answer.old_style_offsets


async def four_segments(live):
    """One record in each, a second apart; the time of the first."""
    await live.topic("t", 2, segment_bytes=150)
    began_ms = live.clock.wall_ms()
    for _ in range(4):
        live.append(b"x" * 60)
        await asyncio.sleep(1)
    assert [segment.base_offset for segment in live.log().segments] == [0, 1, 2, 3]
    return began_ms


def test_offsets_of_segments_come_from_the_highest_to_the_lowest():
    async def story(live):
        began_ms = await four_segments(live)

        assert await ask(live, LATEST) == [4, 3, 2, 1, 0]
        assert await ask(live, LATEST, 2) == [4, 3]
        assert await ask(live, LATEST, 0) == []
        assert await ask(live, EARLIEST) == [0]
        assert await ask(live, 0) == []
        assert await ask(live, began_ms - 1) == []
        assert await ask(live, began_ms + 500) == [0]
        assert await ask(live, began_ms + 2500) == [2, 1, 0]
        assert await ask(live, began_ms + 2500, 1) == [2]
        assert await ask(live, began_ms + 3500) == [3, 2, 1, 0]
        assert await ask(live, began_ms + 100_000) == [4, 3, 2, 1, 0]

    play(story)


def test_no_offset_is_below_the_log_start_offset():
    async def story(live):
        await four_segments(live)
        live.log().advance_log_start(2)

        assert await ask(live, EARLIEST) == [2]
        assert await ask(live, LATEST) == [4, 3, 2, 2, 2]

    play(story)


def test_an_empty_log_has_its_start_only():
    async def story(live):
        await live.topic("t")

        for when in (LATEST, EARLIEST, live.clock.wall_ms() + 1):
            assert await ask(live, when) == [0]
        assert await ask(live, 0) == []

    play(story)


@pytest.mark.parametrize(
    ("offsets", "expected"),
    [
        ([5, 3, 0], [4, 3, 0]),
        ([6, 5], [4]),
        ([4, 3], [4, 3]),
        ([3, 0], [3, 0]),
        ([], []),
    ],
)
def test_a_consumer_gets_the_high_watermark_instead_of_what_is_above_it(offsets, expected):
    assert up_to(offsets, 4) == expected


def test_errors():
    async def story(live):
        await live.topic("t")

        assert await ask(live, LATEST, index=7) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await ask(live, LATEST, name="x") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await ask(live, LATEST, -1) is ErrorCode.UNKNOWN_SERVER_ERROR
        assert await ask(live, -3) is ErrorCode.UNSUPPORTED_VERSION
        assert await ask(live, LATEST, replica_id=DEBUGGING) == [0]
        live.partition("t").stop_serving(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert await ask(live, LATEST) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await ask(live, LATEST, replica_id=DEBUGGING) == [0]

    play(story)


def test_a_failed_disk_is_an_error_of_the_partition():
    async def story(live):
        await live.topic("t")
        live.append(b"x")
        live.disk.faults.append(DiskFault("size", live.log().directory))

        assert await ask(live, 5) is ErrorCode.KAFKA_STORAGE_ERROR

    play(story)
