"""DescribeLogDirs: the replicas of each directory, their sizes and lags."""

import pytest
from tests.unit.broker.live import LOG_DIRS, play, produce

from odradek.model.errors import ErrorCode
from odradek.sim.world.disk import DiskFault
from odradek.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)


async def describe(live, asked=None, version=4):
    """For each directory its error, or its replicas."""
    topics = None
    if asked is not None:
        topics = [
            DescribableLogDirTopic(topic=name, partitions=list(indexes))
            for name, indexes in asked.items()
        ]
    response = await live.peer().ask(DescribeLogDirsRequest(topics=topics), version)
    return {
        result.log_dir: ErrorCode(result.error_code)
        or {
            (topic.name, part.partition_index): (
                part.partition_size,
                part.offset_lag,
                part.is_future_key,
            )
            for topic in result.topics
            for part in topic.partitions
        }
        for result in response.results
    }


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_all_that_is_held_with_its_size(version):
    async def story(live):
        await live.topic("t", 4)
        live.append(b"x" * 100)
        size = len(live.batch(b"x" * 100))
        held = await describe(live, version=version)

        assert list(held) == list(LOG_DIRS)
        merged = {name: answer for there in held.values() for name, answer in there.items()}
        assert merged == {("t", n): (size if n == 0 else 0, 0, False) for n in range(4)}

    play(story)


def test_only_what_was_asked_for():
    async def story(live):
        await live.topic("t", 4)
        await live.topic("u")
        held = await describe(live, {"t": [1, 9], "absent": [0]})

        assert sorted(name for there in held.values() for name in there) == [("t", 1)]
        assert await describe(live, {}) == {path: {} for path in LOG_DIRS}

    play(story)


def test_a_copy_that_is_being_made_and_how_far_it_is_behind():
    async def story(live):
        await live.topic("t")
        for _ in range(3):
            live.append(b"a")
        here = live.broker.logs.directory_of(live.log())
        (elsewhere,) = set(LOG_DIRS) - {here}
        live.broker.logs.create_future(live.log().partition, elsewhere)
        held = await describe(live)

        assert held[elsewhere] == {("t", 0): (0, 3, True)}
        assert held[here][("t", 0)][1:] == (0, False)

    play(story)


def test_a_failed_directory_has_an_error_and_the_other_is_described():
    async def story(live):
        await live.topic("t", 2)
        live.disk.faults.append(DiskFault("write", f"{LOG_DIRS[0]}/"))
        for index in (0, 1):
            await live.peer().ask(produce(live.batch(b"a"), index=index))
        held = await describe(live)

        assert held[LOG_DIRS[0]] == ErrorCode.KAFKA_STORAGE_ERROR
        assert len(held[LOG_DIRS[1]]) == 1

    play(story)


def test_the_room_on_the_volume():
    async def story(live):
        live.disk.capacity_bytes = 1 << 20
        response = await live.peer().ask(DescribeLogDirsRequest(topics=None))
        for result in response.results:
            assert result.total_bytes == 1 << 20
            assert 0 < result.usable_bytes < 1 << 20
        before = await live.peer().ask(DescribeLogDirsRequest(topics=None), 3)
        assert before.results[0].total_bytes == -1, "not in versions before 4"

    play(story)
