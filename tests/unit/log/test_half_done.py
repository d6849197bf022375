"""A change of the disk either leaves nothing or takes the directory offline."""

import errno

import pytest

from odradek.log.checkpoints import decode_offsets
from odradek.log.disk import StorageError, changing
from odradek.log.logs import Logs
from odradek.model.partition import TopicPartition
from odradek.record.batch import iter_batches, read_header
from odradek.record.control import ControlType, Marker, build_marker
from odradek.sim.world.disk import Crash, DiskFault

T0 = TopicPartition("t", 0)


def offsets_in_file(world, base_offset=0):
    data = world.disk.read_file(world.path(f"{base_offset:020d}.log"))
    return [header.base_offset for _, header in iter_batches(memoryview(data))]


def append_open_transaction(world):
    return world.append(
        b"a", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    ).first_offset


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE])
def test_an_abort_marker_is_not_written_if_its_transaction_index_cannot_be_made(world, error):
    log = world.create()
    first = append_open_transaction(world)
    world.disk.faults.append(DiskFault("create", ".txnindex", error))
    with pytest.raises(StorageError) as failed:
        world.mark(ControlType.ABORT, 7)

    assert failed.value.left_nothing
    assert offsets_in_file(world) == [0]
    again = world.mark(ControlType.ABORT, 7)
    log.set_high_watermark(log.leo)
    assert again.first_offset == 1
    assert offsets_in_file(world) == [0, 1]
    aborted = log.aborted_transactions(0, log.leo)
    assert [(each.first_offset, each.last_offset) for each in aborted] == [(first, 1)]
    assert log.last_stable_offset == 2


def test_a_follower_writes_no_abort_marker_without_its_transaction_index(world):
    log = world.create()
    data = world.batch(
        b"a", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    ) + build_marker(
        Marker(ControlType.ABORT, 0),
        producer_id=7,
        producer_epoch=0,
        timestamp=world.now_ms,
        base_offset=1,
        leader_epoch=0,
    )
    world.disk.faults.append(DiskFault("create", ".txnindex", errno.EMFILE))
    with pytest.raises(StorageError) as failed:
        log.append_as_follower(memoryview(data))

    assert failed.value.left_nothing
    assert (log.leo, offsets_in_file(world)) == (0, [])
    log.append_as_follower(memoryview(data))
    assert (log.leo, offsets_in_file(world)) == (2, [0, 1])
    assert len(log.aborted_transactions(0, 2)) == 1


def test_an_abort_marker_whose_transaction_is_not_noted_takes_the_directory_offline(world):
    world.create()
    append_open_transaction(world)
    world.disk.faults.append(DiskFault("write", ".txnindex", errno.EMFILE))
    with pytest.raises(StorageError) as failed:
        world.mark(ControlType.ABORT, 7)

    assert failed.value.half_done
    assert not failed.value.left_nothing


def test_a_roll_without_a_descriptor_for_its_segment_is_repeated(world):
    log = world.create()
    world.append(b"a")
    world.disk.faults.append(DiskFault("create", f"{1:020d}.log", errno.EMFILE))
    with pytest.raises(StorageError) as failed:
        log.roll()

    assert failed.value.left_nothing
    log.validate()
    world.append(b"b")
    log.roll()
    assert [segment.base_offset for segment in log.segments] == [0, 2]


@pytest.mark.parametrize("operation", ["create", "write"])
def test_a_roll_without_its_producer_snapshot_takes_the_directory_offline(world, operation):
    log = world.create()
    world.append(b"a")
    world.disk.faults.append(DiskFault(operation, ".snapshot", errno.EMFILE))
    with pytest.raises(StorageError) as failed:
        log.roll()

    assert failed.value.half_done


@pytest.mark.parametrize("cut", ["truncate_to", "truncate_fully_and_start_at"])
def test_a_truncation_that_cannot_be_finished_takes_the_directory_offline(world, cut):
    log = world.create()
    for _ in range(3):
        world.append(b"a")
        log.roll()
    world.append(b"a")
    world.disk.faults.append(DiskFault("create", log.directory, errno.EMFILE))
    world.disk.faults.append(DiskFault("flush", log.directory, errno.EINTR))
    with pytest.raises(StorageError) as failed:
        getattr(log, cut)(1)

    assert failed.value.half_done


def test_a_truncation_that_cannot_read_where_to_cut_leaves_the_log_as_it_was(world):
    log = world.create()
    for _ in range(3):
        world.append(b"a")
    log.roll()
    log.rest()
    log.segments[0].offset_index = log.segments[0].time_index = None
    world.disk.faults.append(DiskFault("read", log.directory, errno.EMFILE))
    with pytest.raises(StorageError) as failed:
        log.truncate_to(1)

    assert failed.value.left_nothing
    assert log.leo == 3
    log.validate()
    assert log.truncate_to(1)
    assert log.leo == 1


def test_what_a_failed_flush_had_to_flush_is_flushed_by_the_next_one(world):
    """Without the name of its segment on the disk, a flushed record is lost with the power."""
    world.disk.flush_now(["/"])
    log = world.create()
    log.flush()
    world.pass_time()
    world.append(b"a")
    world.pass_time()
    world.disk.faults.append(DiskFault("open", f"{0:020d}.log", errno.EMFILE))
    log.roll()
    world.append(b"b")
    world.pass_time()
    assert [error.left_nothing for error in world.failures] == [True]
    log.flush()
    world.pass_time()
    assert log.recovery_point == 2
    before = world.disk.copy()
    for seed in range(20):
        world.disk.put_back(before)
        world.disk.rng.seed(seed)
        world.disk.crash(Crash.POWER)
        assert world.load(clean=False, recovery_point=2).leo == 2


def test_a_flush_that_cannot_begin_fails_after_the_append_that_asked_for_it(world):
    world.create(flush_messages=1)
    world.append(b"a")
    world.pass_time()
    log = world.load(clean=False)
    world.pass_time()
    world.disk.faults.append(DiskFault("list", "t-0", errno.EMFILE, times=2))
    world.append(b"b")
    world.pass_time()
    batch, results = world.batch(b"c"), []
    log.append_as_leader(batch, read_header(batch), 0, results.append)

    assert results == []
    world.pass_time()
    assert [error.left_nothing for error in results] == [True]


def test_indexes_that_a_failed_settling_had_to_flush_are_flushed_by_the_next_flush(world):
    """Recovery trusts them up to the snapshot that the settling wrote."""
    world.disk.flush_now(["/"])
    log = world.create(index_interval_bytes=1)
    log.flush()
    world.pass_time()
    for _ in range(5):
        world.append(b"a")
    world.disk.faults.append(DiskFault("open", f"{0:020d}.log", errno.EMFILE))
    log.rest()
    log.settle(lambda _: None)
    world.pass_time()
    assert [error.left_nothing for error in world.failures] == [True]
    assert log.recovery_point == 0
    log.flush()
    world.pass_time()
    world.disk.crash(Crash.POWER)

    assert world.disk.file(world.path(f"{0:020d}.index")).size() > 0
    assert world.load(clean=False, recovery_point=5).leo == 5


def test_an_index_that_is_rebuilt_in_part_is_not_used(world):
    """Its largest timestamp is too low, and retention would delete the segment early."""
    log = world.create(index_interval_bytes=1)
    for number in range(400):
        world.append(b"x" * 100, timestamp=world.now_ms + number)
    log.roll()
    first = log.segments[0]
    expected = first.max_timestamp
    log = world.load()
    first = log.segments[0]
    world.disk.unlink(world.path(f"{0:020d}.index"))
    world.disk.faults.append(DiskFault("read", f"{0:020d}.log", errno.EMFILE, after=1))
    with pytest.raises(StorageError) as failed:
        first.indexes()

    assert failed.value.left_nothing
    assert first.max_timestamp == expected
    assert first.find(399, wait=True) > first.find(398, wait=True)


def test_a_checkpoint_that_could_not_be_written_before_a_cut_log_is_appended_to_is_repeated(world):
    lowered = []
    log = world.create()
    world.append(b"a")
    world.append(b"b")
    log.flush()
    world.pass_time()
    log.truncate_to(1)

    def fail_once(directory):
        lowered.append(directory)
        if len(lowered) == 1:
            raise StorageError.of_open(directory, errno.EMFILE)

    log.host.write_lowered = fail_once
    with pytest.raises(StorageError):
        world.append(b"c")
    assert log.leo == 1
    world.append(b"c")

    assert len(lowered) == 2


def test_an_error_within_a_change_is_half_done_whatever_it_says_of_itself():
    error = StorageError.of_read("/a/t-0", errno.EMFILE)
    assert error.left_nothing
    with pytest.raises(StorageError), changing():
        raise error

    assert error.half_done
    assert not error.left_nothing


@pytest.mark.parametrize(
    ("error", "left_nothing"),
    [
        (StorageError("/a", errno.EMFILE), False),
        (StorageError.of_open("/a", errno.EMFILE), True),
        (StorageError.of_open("/a", errno.ENFILE), True),
        (StorageError.of_open("/a", errno.ENOMEM), False),
        (StorageError.of_open("/a", errno.ENOSPC), False),
        (StorageError.of_read("/a", errno.ENOMEM), True),
        (StorageError.of_read("/a", errno.EINTR), False),
        (StorageError.of_read("/a", errno.EIO), False),
    ],
)
def test_only_a_shortage_before_the_first_step_leaves_nothing(error, left_nothing):
    assert error.left_nothing is left_nothing


class Broker:
    """The logs of a broker with two directories."""

    def __init__(self, world):
        self.world = world
        self.host = world.new_host()
        self.lost = []
        self.logs = Logs(
            ("/a", "/b"),
            self.host,
            config_of=lambda _: world.config,
            lost=lambda path, partitions, _: self.lost.append((path, partitions)),
        )
        self.host.failed = self.logs.failed
        for _ in self.logs.opening(broker_id=1, cluster_id="c"):
            pass

    def create(self):
        log = self.logs.create(T0, bytes(15) + b"\1", self.world.config, directory="/a")
        batch = self.world.batch(b"a")
        log.append_as_leader(batch, read_header(batch), leader_epoch=0)
        return log


@pytest.mark.parametrize(("failures", "is_flushed"), [(3, True), (1_000, False)])
def test_a_deletion_is_flushed_again_until_its_directory_is_offline(world, failures, is_flushed):
    """The controller drops the topic when the deletion is on the disk, and asks only once."""
    broker = Broker(world)
    broker.create()
    world.pass_time()
    broker.logs.delete(T0)
    world.disk.faults.append(DiskFault("open", "/a", errno.EMFILE, times=failures))
    answers = []
    broker.logs.flush_deletions(answers.append)
    world.pass_time(5_000)

    assert answers == [is_flushed]
    assert broker.logs.has_offline_dir is not is_flushed


def test_a_checkpoint_that_could_not_be_written_is_written_again(world):
    broker = Broker(world)
    broker.create().set_high_watermark(1)
    world.pass_time()
    world.disk.faults.append(DiskFault("create", "replication-offset-checkpoint", errno.EMFILE))
    broker.logs.checkpoint_high_watermarks()
    world.pass_time()
    broker.logs.checkpoint_high_watermarks()
    world.pass_time()

    written = world.disk.read_file("/a/replication-offset-checkpoint")
    assert decode_offsets(written) == {T0: 1}
    assert broker.lost == []


def test_offsets_of_an_earlier_log_that_cannot_be_removed_take_the_directory_offline(world):
    broker = Broker(world)
    broker.create().set_high_watermark(1)
    world.pass_time()
    broker.logs.checkpoint_high_watermarks()
    world.pass_time()
    broker.logs.delete(T0)
    world.disk.faults.append(DiskFault("create", "replication-offset-checkpoint", errno.EMFILE))
    broker.logs.remove_from_checkpoints([T0], lambda: None)
    world.pass_time()

    assert broker.logs.online_directories == ["/b"]


def test_a_directory_whose_log_could_not_be_flushed_at_shutdown_is_not_marked_as_clean(world):
    broker = Broker(world)
    log = broker.create()
    world.pass_time()
    log.rest()
    world.disk.faults.append(DiskFault("open", f"{0:020d}.log", errno.EMFILE))
    done = []
    broker.logs.close(lambda: done.append(True))
    world.pass_time()

    assert done == [True]
    assert not world.disk.exists("/a/.kafka_cleanshutdown")
    assert world.disk.exists("/b/.kafka_cleanshutdown")


def test_a_log_whose_copy_cannot_replace_it_stays_in_use(world):
    broker = Broker(world)
    log = broker.create()
    copy = broker.logs.create_future(T0, "/b")
    copy.append_as_follower(memoryview(log.read(0, 1000, end_offset=1, wait=True).data))
    world.disk.faults.append(DiskFault("rename", copy.directory))
    with pytest.raises(StorageError) as failed:
        broker.logs.swap_in(T0)
    broker.logs.failed(failed.value)

    assert broker.logs.online_directories == ["/a"]
    assert broker.logs.get(T0) is log
    assert [found.partition for found in broker.logs.held_in("/a")] == [T0]


def test_a_copy_that_could_not_be_created_does_not_prevent_the_next_start(world):
    broker = Broker(world)
    broker.create()
    world.pass_time()
    world.disk.faults.append(DiskFault("create", "/b/t-0", errno.EMFILE))
    with pytest.raises(StorageError):
        broker.logs.create_future(T0, "/b")
    world.pass_time()
    broker.logs.create_future(T0, "/b")
    world.pass_time()
    world.disk.crash(Crash.PROCESS)

    started = Broker(world)
    assert started.logs.futures == [T0]
