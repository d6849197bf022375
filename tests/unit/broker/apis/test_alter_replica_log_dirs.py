"""AlterReplicaLogDirs: a replica moves to another directory while clients use it."""

import asyncio
import errno

import pytest
from tests.unit.broker.live import LOG_DIRS, fetch, fetched, play, produce, produced

from odradek.log.disk import StorageError
from odradek.model.errors import ErrorCode
from odradek.sim.world.disk import DiskFault
from odradek.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

T0 = ("t", 0)


async def move(live, path, name="t", index=0):
    topic = AlterReplicaLogDirTopic(name=name, partitions=[index])
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[topic])])
    (result,) = (await live.peer().ask(request)).results
    return ErrorCode(result.partitions[0].error_code)


def place(live, name="t", index=0):
    return live.broker.logs.directory_of(live.log(name, index))


def elsewhere(live, name="t"):
    (path,) = set(LOG_DIRS) - {place(live, name)}
    return path


async def filled(live, count=5, size=100):
    await live.topic("t", file_delete_delay_ms=1000)
    for n in range(count):
        live.append(bytes([n % 256]) * size)
    return place(live), elsewhere(live)


async def read_all(live):
    answer = await live.peer().ask(fetch({T0: live.log().log_start_offset}), 12)
    return fetched(answer)[T0]


def partitions_in(live, path):
    return [entry.name for entry in live.disk.list(path) if entry.is_dir]


def test_a_replica_moves_with_all_it_has():
    async def story(live):
        old, new = await filled(live)
        live.log().advance_log_start(2)
        assert await move(live, new) == ErrorCode.NONE
        await live.until(lambda: place(live) == new)

        log = live.log()
        assert (log.log_start_offset, log.leo, log.high_watermark) == (2, 5, 5)
        assert log.topic_id == live.partition().topic_id
        assert await read_all(live) == [bytes([n]) * 100 for n in (2, 3, 4)]
        await asyncio.sleep(2)
        assert partitions_in(live, old) == []
        assert partitions_in(live, new) == ["t-0"]

    play(story)


def test_a_replica_moves_under_writes():
    async def story(live):
        _, new = await filled(live, count=300, size=40_000)
        assert await move(live, new) == ErrorCode.NONE
        peer, written = live.peer(), 300
        waiting = live.peer().send(fetch({T0: 300}, max_wait_ms=60_000, min_bytes=20 * 40_000), 12)
        while place(live) != new:
            assert produced(await peer.ask(produce(live.batch(b"x" * 40_000), acks=-1))) == {
                T0: written
            }
            written += 1
            await asyncio.sleep(0.001)
            assert written < 10_000
        assert written > 305
        for _ in range(20):
            await peer.ask(produce(live.batch(b"y" * 40_000)))
            written += 1

        assert live.log().leo == live.log().high_watermark == written
        assert len(fetched(await waiting)[T0]) >= 20
        answer = await peer.ask(fetch({T0: written - 20}, max_bytes=1 << 30), 12)
        assert fetched(answer)[T0] == [b"y" * 40_000] * 20

    play(story)


def test_a_move_goes_on_after_a_restart():
    async def story(live):
        old, new = await filled(live, count=200, size=40_000)
        await move(live, new)
        await asyncio.sleep(0)
        assert place(live) == old
        await live.restart()
        await live.until(lambda: live.partition() is not None and place(live) == new)

        assert live.log().leo == 200
        await asyncio.sleep(61)
        assert partitions_in(live, old) == []

    play(story)


def test_a_copy_whose_log_was_deleted_is_not_waited_for():
    async def story(live):
        old, new = await filled(live)
        live.disk.slowest_ms = 10_000
        await move(live, new)
        await asyncio.sleep(0.1)
        live.disk.faults.append(DiskFault("write", f"{old}/t-0/"))
        await live.peer().ask(produce(live.batch(b"a")))
        assert live.broker.logs.is_offline(old)
        await asyncio.sleep(30)

        assert live.broker.log_dir_moves._task.done()

    play(story)


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("operation", ["write", "flush"])
def test_a_move_whose_target_fails_ends_and_old_records_go_again(operation, error):
    async def story(live):
        old, new = await filled(live, count=200, size=40_000)
        live.disk.slowest_ms = 50
        live.disk.faults.append(DiskFault(operation, f"{new}/t-0", error))
        assert await move(live, new) == ErrorCode.NONE
        await live.until(lambda: live.broker.logs.is_offline(new))
        log = live.log()
        assert (place(live), live.broker.logs.future(log.partition)) == (old, None)
        assert produced(await live.peer().ask(produce(live.batch(b"a"), acks=-1))) == {T0: 200}

        live.broker.settings.set_topic("t", {"retention.bytes": "0"})
        await asyncio.sleep(301)  # log.retention.check.interval.ms
        assert log.log_start_offset == 201
        assert live.broker.log_dir_moves._task.done()

    play(story)


def test_a_topic_deleted_on_its_way_leaves_nothing():
    async def story(live):
        old, new = await filled(live)
        live.disk.slowest_ms = 5_000
        await move(live, new)
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=5000)
        await live.peer().ask(request)
        await asyncio.sleep(70)

        assert partitions_in(live, old) == partitions_in(live, new) == []
        assert live.broker.log_dir_moves._task.done()

    play(story)


def test_a_replica_already_in_the_directory_stays_and_a_started_copy_is_dropped():
    async def story(live):
        old, new = await filled(live)
        assert await move(live, old) == ErrorCode.NONE
        assert live.broker.logs.futures == []
        live.disk.slowest_ms = 5_000
        await move(live, new)
        assert len(live.broker.logs.futures) == 1
        assert await move(live, old) == ErrorCode.NONE
        assert live.broker.logs.futures == []
        await asyncio.sleep(30)

        assert place(live) == old
        assert partitions_in(live, new) == []

    play(story)


def test_asked_twice_the_copy_goes_on():
    async def story(live):
        _, new = await filled(live)
        live.disk.slowest_ms = 5_000
        await move(live, new)
        (partition,) = live.broker.logs.futures
        begun = live.broker.logs.future(partition)
        assert await move(live, new) == ErrorCode.NONE

        assert live.broker.logs.future(partition) is begun

    play(story)


def test_a_target_that_fails_leaves_the_replica_where_it_is():
    async def story(live):
        old, new = await filled(live)
        live.disk.faults.append(DiskFault("write", f"{new}/t-0.", after=1))
        assert await move(live, new) == ErrorCode.NONE
        await live.until(lambda: live.broker.logs.is_offline(new))
        peer = live.peer()

        assert produced(await peer.ask(produce(live.batch(b"a")))) == {T0: 5}
        assert place(live) == old
        assert not live.fatal
        assert await move(live, new) == ErrorCode.KAFKA_STORAGE_ERROR

    play(story)


def test_a_target_that_cannot_take_the_first_file():
    async def story(live):
        old, new = await filled(live)
        live.disk.faults.append(DiskFault("", f"{new}/t-0."))

        assert await move(live, new) == ErrorCode.KAFKA_STORAGE_ERROR
        assert live.broker.logs.is_offline(new)
        assert place(live) == old

    play(story)


def test_a_log_that_is_damaged_is_not_moved():
    async def story(live):
        old, new = await filled(live)
        path = f"{live.log().directory}/00000000000000000000.log"
        live.disk.file(path).write(200, (b"\xff",))
        assert await move(live, new) == ErrorCode.NONE
        await asyncio.sleep(1)

        assert place(live) == old
        assert live.broker.logs.futures == []
        assert not live.broker.logs.is_offline(old)

    play(story)


def test_a_disk_that_has_to_be_asked():
    async def story(live):
        _, new = await filled(live)
        live.disk.cold_share = 1.0
        await move(live, new)
        await live.until(lambda: place(live) == new)
        live.disk.cold_share = 0.0

        assert len(await read_all(live)) == 5

    play(story)


def test_options_that_change_on_the_way_are_those_of_the_moved_log():
    async def story(live):
        _, new = await filled(live)
        live.disk.slowest_ms = 500
        await move(live, new)
        live.broker.settings.set_topic("t", {"retention.ms": "1234"})
        await live.until(lambda: place(live) == new)

        assert live.log().config.retention_ms == 1234

    play(story)


def test_refusals():
    async def story(live):
        _, new = await filled(live)

        assert await move(live, "/nowhere") == ErrorCode.LOG_DIR_NOT_FOUND
        assert await move(live, "/nowhere", "absent") == ErrorCode.LOG_DIR_NOT_FOUND
        assert await move(live, new, "absent") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await move(live, new, "t", 9) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        live.broker.logs.failed(StorageError(place(live), errno.EIO))
        assert await move(live, new) == ErrorCode.KAFKA_STORAGE_ERROR

    play(story)
