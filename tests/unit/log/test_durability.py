"""Power failures after which records were once lost, or removed records were back."""

import itertools
import random

from odradek.record.batch import read_header
from odradek.record.control import ControlType
from odradek.sim.world.disk import Crash, SimulatedCrash

BATCH = b"x" * 100  # a batch of 170 bytes
COMPACTED = frozenset({"compact"})


def every_power_loss(world, scenario, check, *, clean, seeds=30, **checkpointed):
    """Run a scenario, let the power fail in many ways, load the log, and check what is left.

    The checkpoints at that time come from the call or the scenario.
    """
    for seed in range(seeds):
        stage = type(world)()
        stage.disk.flush_now(["/"])
        stage.disk.rng = random.Random(seed)
        checkpointed |= scenario(stage) or {}
        stage.disk.crash(Crash.POWER)
        stage._calls.clear()
        check(stage, stage.load(clean=clean, **checkpointed))


def create(world, **options):
    world.create(**{"segment_bytes": 400, **options})
    world.disk.flush_now(["/data"])


def close(world):
    world.log.close(lambda _: None)
    world.pass_time()


def flush(world):
    world.log.flush()
    world.pass_time()


def fill(world, count=10):
    for _ in range(count):
        world.append(BATCH)


def offsets(log, start=0):
    """The base offsets of all batches that can be read."""
    found = (log.read(offset, 1, end_offset=log.leo) for offset in range(start, log.leo))
    return [read_header(each.data).base_offset for each in found]


def only_the_first_batch_is_there(_, log):
    assert log.leo == 1
    assert log.segments[0].size == 170


def there_is_no_hole(_, log):
    start = log.segments[0].base_offset
    assert offsets(log, start) == list(range(start, log.leo))


def test_removed_segments_are_not_back_after_a_hole(world):
    def scenario(stage):
        create(stage, cleanup_policy=COMPACTED)
        fill(stage)
        flush(stage)
        stage.log.truncate_to(3)

    def check(_, log):
        assert offsets(log) == list(range(log.leo))
        assert log.leo in (3, 4)

    every_power_loss(world, scenario, check, clean=False)


def test_removed_segments_are_not_back_after_a_crash_during_the_truncation(world):
    for operations in itertools.count():
        stage = type(world)()
        create(stage, cleanup_policy=COMPACTED)
        fill(stage)
        flush(stage)
        stage.disk.crash_after(operations)
        try:
            stage.log.truncate_to(3)
            break
        except SimulatedCrash:
            stage.disk.crash(Crash.PROCESS)
        stage._calls.clear()
        assert offsets(stage.load(clean=False)) == list(range(stage.log.leo))
    assert operations > 10


def test_segments_deleted_by_retention_before_their_flush_are_not_back_before_a_hole(world):
    def scenario(stage):
        create(stage)
        fill(stage)
        stage.log.set_high_watermark(10)
        stage.log.advance_log_start(10)
        stage.log.delete_old_segments(stage.now_ms)
        return {"recovery_point": stage.log.recovery_point}

    every_power_loss(world, scenario, there_is_no_hole, clean=False)


def test_after_a_full_truncation_the_log_is_the_old_one_or_the_new_one(world):
    def scenario(stage):
        create(stage)
        fill(stage)
        stage.log.truncate_fully_and_start_at(100)
        stage.append(BATCH)
        return {"recovery_point": stage.log.recovery_point}

    every_power_loss(world, scenario, there_is_no_hole, clean=False)


def test_batches_truncated_before_a_roll_are_not_back_after_a_clean_shutdown(world):
    def scenario(stage):
        create(stage)
        stage.append(BATCH)
        stage.append(BATCH)
        close(stage)
        stage.load()
        stage.log.truncate_to(1)
        stage.log.roll()
        close(stage)

    every_power_loss(world, scenario, only_the_first_batch_is_there, clean=True)


def test_batches_truncated_by_a_process_that_crashed_before_the_flush_are_not_back(world):
    def scenario(stage):
        create(stage)
        stage.append(BATCH)
        stage.append(BATCH)
        flush(stage)
        stage.log.truncate_to(1)
        stage.disk.crash(Crash.PROCESS)
        stage._calls.clear()
        stage.load(clean=False, recovery_point=1)
        stage.log.roll()
        close(stage)

    every_power_loss(world, scenario, only_the_first_batch_is_there, clean=True)


def test_the_indexes_of_a_segment_that_was_flushed_before_it_was_rolled_are_durable(world):
    def scenario(stage):
        create(stage)
        stage.append(BATCH, timestamp=5000)
        flush(stage)
        stage.log.roll()
        close(stage)

    def check(stage, log):
        assert log.offset_for_timestamp(0) == (5000, 0)
        assert log.segments[0].max_timestamp == 5000
        assert stage.names(".timeindex")[0].startswith("0" * 20)

    every_power_loss(world, scenario, check, clean=True)


def test_a_new_transaction_index_is_durable_after_a_clean_shutdown(world):
    def scenario(stage):
        create(stage)
        stage.append(producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
        close(stage)
        stage.load()
        stage.mark(ControlType.ABORT, 9)
        close(stage)

    def check(_, log):
        assert [t.last_offset for t in log.aborted_transactions(0, 2)] == [1]

    every_power_loss(world, scenario, check, clean=True)


def test_what_a_crashed_process_had_not_flushed_is_flushed_by_the_next(world):
    def scenario(stage):
        create(stage, segment_bytes=200)
        stage.append(BATCH, timestamp=5000)
        flush(stage)
        for number in range(1, 4):
            stage.append(BATCH, timestamp=5000 + number)
        stage.append(producer_id=9, producer_epoch=0, base_sequence=7)
        stage.append(BATCH)
        stage.disk.crash(Crash.PROCESS)
        stage._calls.clear()
        stage.load(clean=False, recovery_point=1)
        flush(stage)
        assert stage.log.recovery_point == 6

    def check(_, log):
        assert log.leo == 6
        assert log.topic_id == bytes(15) + b"\1"
        assert log.offset_for_timestamp(5002) == (5002, 2)
        assert [p.last_sequence for p in log.active_producers()] == [7]

    every_power_loss(world, scenario, check, clean=False, recovery_point=6)


def test_leader_epochs_are_durable_before_the_recovery_point_is_above_them(world):
    def scenario(stage):
        create(stage)
        for epoch in range(6):
            stage.append(BATCH, epoch=epoch)
        stage.log.flush()
        while stage.log.recovery_point < 6:
            stage.pass_time(1)

    def check(_, log):
        assert log.epochs.starts() == [(epoch, epoch) for epoch in range(6)]

    every_power_loss(world, scenario, check, clean=False, recovery_point=6)


def write(world, *sequences):
    for sequence in sequences:
        world.append(producer_id=9, producer_epoch=0, base_sequence=sequence)


def last_sequences(log):
    return [producer.last_sequence for producer in log.active_producers()]


def test_a_snapshot_above_the_recovered_end_is_not_used(world):
    create(world)
    write(world, 0, 1)
    close(world)
    world.disk.file(world.path("00000000000000000000.log")).truncate(
        world.log.active_segment.size // 2
    )
    assert last_sequences(world.load(clean=False)) == [0]
    world.append(b"other")
    write(world, 1)
    world.log.truncate_to(2)

    assert last_sequences(world.log) == [0]


def test_a_snapshot_above_a_truncation_is_not_used(world):
    create(world)
    write(world, 0, 1, 2, 3)
    close(world)
    world.load()
    world.log.truncate_to(3)
    world.append(b"other")
    write(world, 3)
    world.log.truncate_to(4)

    assert last_sequences(world.log) == [2]
