"""ListOffsets: first and last offsets of a partition, and the offset of a time."""

import pytest
from tests.unit.broker.live import play

from odradek.model.errors import ErrorCode
from odradek.record.control import ControlType
from odradek.record.records import Record, build_batch
from odradek.sim.world.disk import DiskFault
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
START_MS = 1_000_000


def asking(timestamp, name="t", index=0, *, epoch=-1, **more):
    part = ListOffsetsPartition(
        partition_index=index, timestamp=timestamp, current_leader_epoch=epoch
    )
    topic = ListOffsetsTopic(name=name, partitions=[part])
    return ListOffsetsRequest(**{"replica_id": -1, "topics": [topic], **more})


async def ask(live, timestamp, *more, version=9, **options):
    response = await live.peer().ask(asking(timestamp, *more, **options), version)
    (topic,) = response.topics
    (part,) = topic.partitions
    return ErrorCode(part.error_code) or (part.timestamp, part.offset, part.leader_epoch)


async def stamped(live, *timestamps):
    """A topic whose records have these timestamps, one batch for each."""
    await live.topic("t")
    for timestamp in timestamps:
        live.append_batch(build_batch([Record(None, b"x", timestamp)]))


def test_the_two_ends():
    async def story(live):
        await stamped(live, 1, 2, 3)
        live.log().advance_log_start(2)

        assert await ask(live, LATEST) == (-1, 3, 0)
        for timestamp in (EARLIEST, EARLIEST_LOCAL):
            assert await ask(live, timestamp) == (-1, 2, 0)

    play(story)


def test_an_empty_partition():
    async def story(live):
        await live.topic("t")

        assert await ask(live, LATEST) == (-1, 0, 0)
        assert await ask(live, EARLIEST) == (-1, 0, 0)
        for timestamp in (0, MAX_TIMESTAMP, LATEST_TIERED):
            assert await ask(live, timestamp) == (-1, -1, -1)

    play(story)


@pytest.mark.parametrize(
    ("when", "found"),
    [
        pytest.param(0, (100, 0, 0), id="before all"),
        pytest.param(100, (100, 0, 0), id="exactly the first"),
        pytest.param(101, (300, 2, 0), id="the first at or after it, not the nearest"),
        pytest.param(300, (300, 2, 0), id="exactly"),
        pytest.param(301, (-1, -1, -1), id="after all"),
    ],
)
def test_a_time_is_found_in_the_order_of_offsets(when, found):
    async def story(live):
        await stamped(live, 100, 50, 300, 200)

        assert await ask(live, when) == found

    play(story)


def test_the_largest_timestamp_is_not_always_the_last():
    async def story(live):
        await stamped(live, 100, 300, 200)

        assert await ask(live, MAX_TIMESTAMP) == (300, 1, 0)

    play(story)


@pytest.mark.parametrize(
    ("timestamp", "since"), [(MAX_TIMESTAMP, 7), (EARLIEST_LOCAL, 8), (LATEST_TIERED, 9), (-6, 99)]
)
def test_special_timestamps_need_the_version_that_defines_them(timestamp, since):
    async def story(live):
        await stamped(live, 1)
        for version in range(1, 10):
            answer = await ask(live, timestamp, version=version)
            assert (answer == ErrorCode.UNSUPPORTED_VERSION) is (version < since)

    play(story)


def test_leader_epochs_are_those_of_the_offset():
    async def story(live):
        await live.order(replicas=(0,), leader_epoch=2)
        live.append_batch(build_batch([Record(None, b"x", 100)]))
        await live.order(replicas=(0,), leader_epoch=5)
        live.append_batch(build_batch([Record(None, b"x", 200)]))

        assert await ask(live, EARLIEST) == (-1, 0, 2)
        assert await ask(live, 100) == (100, 0, 2)
        assert await ask(live, 200) == (200, 1, 5)
        assert await ask(live, LATEST) == (-1, 2, 5)
        assert await ask(live, LATEST, version=3) == (-1, 2, -1), "not in versions before 4"

    play(story)


def test_consumers_get_the_high_watermark_and_followers_the_log_end():
    async def story(live):
        await live.order()
        live.append_batch(build_batch([Record(None, b"x", 100)]))

        assert await ask(live, LATEST) == (-1, 0, 0)
        assert await ask(live, 100) == (-1, -1, -1)
        assert await ask(live, MAX_TIMESTAMP) == (-1, -1, -1)
        assert await ask(live, LATEST, replica_id=2) == (-1, 1, 0)
        assert await ask(live, 100, replica_id=2) == (100, 0, 0)

    play(story)


def test_read_committed_ends_at_the_last_stable_offset():
    async def story(live):
        await stamped(live, 100)
        live.append_batch(
            build_batch(
                [Record(None, b"x", 200)],
                producer_id=5,
                producer_epoch=0,
                base_sequence=0,
                transactional=True,
            )
        )
        live.append_batch(build_batch([Record(None, b"x", 300)]))

        assert await ask(live, LATEST) == (-1, 3, 0)
        assert await ask(live, LATEST, isolation_level=1) == (-1, 1, 0)
        assert await ask(live, 200) == (200, 1, 0)
        assert await ask(live, 200, isolation_level=1) == (-1, -1, -1)
        live.mark(ControlType.COMMIT, 5)
        assert await ask(live, LATEST, isolation_level=1) == (-1, 4, 0)

    play(story)


def test_right_after_an_election_the_end_is_not_known():
    async def story(live):
        await live.order(replicas=(0, 2))
        live.append_batch(build_batch([Record(None, b"x", 100)]))
        await live.order(replicas=(0, 2), leader_epoch=1)
        for timestamp in (LATEST, 100, MAX_TIMESTAMP):
            assert await ask(live, timestamp) == ErrorCode.OFFSET_NOT_AVAILABLE
            before = await ask(live, timestamp, version=4)
            assert before == (
                ErrorCode.UNSUPPORTED_VERSION
                if timestamp == MAX_TIMESTAMP
                else ErrorCode.LEADER_NOT_AVAILABLE
            )
        assert await ask(live, EARLIEST) == (-1, 0, 0)
        assert await ask(live, LATEST, replica_id=2) == (-1, 1, 1)
        await live.order(replicas=(0, 2), leader_epoch=2, isr=(0,))

        assert await ask(live, LATEST) == (-1, 1, 2)

    play(story)


def test_refusals():
    async def story(live):
        await live.order(replicas=(0,), leader_epoch=3)
        await live.order("followed", leader=2)

        assert await ask(live, LATEST, "absent") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await ask(live, LATEST, "t", 7) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await ask(live, LATEST, "followed") == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await ask(live, LATEST, epoch=2) == ErrorCode.FENCED_LEADER_EPOCH
        assert await ask(live, LATEST, epoch=4) == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert await ask(live, LATEST, epoch=3) == (-1, 0, 3)

    play(story)


def test_the_debugging_replica_id_gets_the_log_end_in_every_version():
    async def story(live):
        await stamped(live, 1, 2, 3)

        for version in range(1, 10):
            epoch = 0 if version >= 4 else -1
            assert await ask(live, LATEST, version=version, replica_id=-2) == (-1, 3, epoch)

    play(story)


def test_a_partition_named_twice_is_an_invalid_request():
    async def story(live):
        await live.topic("t", 2)
        request = asking(LATEST)
        more = [ListOffsetsPartition(partition_index=n, timestamp=EARLIEST) for n in (0, 1)]
        request.topics[0].partitions += more
        response = await live.peer().ask(request)
        errors = {part.partition_index: part.error_code for part in response.topics[0].partitions}

        assert errors == {0: ErrorCode.INVALID_REQUEST, 1: ErrorCode.NONE}

    play(story)


# ------------------------------------------------------------------------------- the disk


def test_a_search_that_has_to_ask_the_disk_waits_for_it():
    async def story(live):
        await stamped(live, 100, 200)
        live.disk.cold_share = 1.0
        answer = live.peer().send(asking(200))
        assert not answer.done()

        assert (await answer).topics[0].partitions[0].offset == 1
        assert await ask(live, MAX_TIMESTAMP) == (200, 1, 0)

    play(story)


@pytest.mark.parametrize("cold", [0.0, 1.0])
@pytest.mark.parametrize("when", [200, MAX_TIMESTAMP])
def test_a_disk_that_fails_the_search(when, cold):
    async def story(live):
        await stamped(live, 100, 200)
        live.disk.cold_share = cold
        live.disk.faults.append(DiskFault("read", "t-0/"))

        assert await ask(live, when) == ErrorCode.KAFKA_STORAGE_ERROR
        assert await ask(live, LATEST) == ErrorCode.KAFKA_STORAGE_ERROR

    play(story)
