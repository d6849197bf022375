"""All logs of a broker over several directories."""

import errno
import gc
from functools import partial

import pytest
from tests.unit.log.conftest import World

from odradek.log.checkpoints import decode_offsets
from odradek.log.disk import StorageError
from odradek.log.log import Log
from odradek.log.log_config import LogConfig
from odradek.log.logs import Logs
from odradek.log.moving import MovingLogs
from odradek.log.repair.cuts import CutKind
from odradek.model.errors import ApiError, ErrorCode, StartupError
from odradek.model.partition import TopicPartition
from odradek.record.batch import read_header
from odradek.sim.world.disk import Crash, DiskFault, SimulatedCrash

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
TOPIC_ID = bytes(range(16))


class Broker:
    """The logs of a broker, without the rest of it."""

    def __init__(self, world, *directories, config=None):
        self.world = world
        self.config = config or LogConfig(index_interval_bytes=200)
        self.lost = []
        self.host = world.new_host()
        self.logs = Logs(
            directories or ("/a", "/b"),
            self.host,
            config_of=lambda _: self.config,
            lost=lambda path, partitions, _: self.lost.append((path, partitions)),
        )
        self.host.failed = self.logs.failed

    def start(self, broker_id=1, cluster_id="c"):
        for _ in self.logs.opening(broker_id=broker_id, cluster_id=cluster_id):
            pass
        return self

    def stop(self):
        done = []
        self.logs.close(lambda: done.append(True))
        self.world.pass_time()
        assert done == [True]

    def create(self, partition=T0, **where):
        return self.logs.create(partition, TOPIC_ID, self.config, **where)

    def append(self, partition=T0, *values):
        log = self.logs.get(partition)
        batch = self.world.batch(*(values or (b"x" * 100,)))
        return log.append_as_leader(batch, read_header(batch), leader_epoch=0)

    def directory_of(self, partition):
        return self.logs.directory_of(self.logs.get(partition))


@pytest.fixture
def broker(world):
    return Broker(world).start()


def test_no_recovery_point_is_above_a_truncation_that_is_written_again(world, broker):
    log = broker.create(directory="/a")
    broker.append()
    broker.append()
    log.flush()
    world.pass_time()
    broker.logs.checkpoint_recovery_points()
    world.pass_time()
    file = "/a/recovery-point-offset-checkpoint"
    assert decode_offsets(world.disk.read_file(file)) == {T0: 2}

    log.truncate_to(1)
    broker.append()  # before anything else happens

    assert decode_offsets(world.disk.read_file(file)) == {T0: 1}


def test_logs_closed_at_the_same_time_end_the_shutdown_once(world, broker, monkeypatch):
    for partition in (T0, T1):
        broker.create(partition)
        broker.append(partition)
    closed, ended = [], []
    monkeypatch.setattr(Log, "close", lambda self, done: closed.append(done))
    broker.logs.close(lambda: ended.append(True))
    assert len(closed) == 2
    for done in closed:
        done(None)
    world.pass_time()

    assert ended == [True]


def test_a_clean_shutdown_writes_all_that_a_clean_start_needs(world, broker):
    log = broker.create()
    for _ in range(20):
        broker.append()
    log.set_high_watermark(15)
    log.advance_log_start(3)
    broker.stop()
    again = Broker(world).start()
    loaded = again.logs.get(T0)

    assert again.logs.directories["/a"].was_clean
    assert (loaded.log_start_offset, loaded.high_watermark, loaded.leo) == (3, 15, 20)
    assert loaded.recovery_point == 20
    assert loaded.topic_id == TOPIC_ID
    assert world.disk.read_file("/a/meta.properties") == (b"version=0\nbroker.id=1\ncluster.id=c\n")
    assert world.disk.read_file("/a/t-0/partition.metadata").startswith(b"version: 0\ntopic_id: ")


def test_the_files_of_a_clean_shutdown_survive_a_power_failure(world, broker):
    broker.create()
    for _ in range(20):
        broker.append()
    broker.stop()
    world.disk.crash(Crash.POWER)
    loaded = Broker(world).start().logs.get(T0)

    assert loaded.leo == 20


def test_a_removed_clean_shutdown_file_is_not_back_after_a_power_failure(world, broker):
    for _ in range(20):
        broker.stop()
        Broker(world).start()
        world.disk.crash(Crash.POWER)
        broker = Broker(world).start()
        assert not broker.logs.directories["/a"].was_clean


def test_an_idle_log_is_not_written_at_shutdown(world, broker):
    broker.create()
    broker.append()
    broker.stop()
    again = Broker(world).start()
    operations = world.disk.operations
    again.logs.close(lambda: None)
    world.pass_time()

    written = world.disk.operations - operations
    assert written <= 2 * 5 * 6, "five small files in each of two directories"


def test_a_broker_stopped_during_its_start_changes_nothing(world, broker):
    log = broker.create()
    broker.create(T1)
    broker.append()
    log.set_high_watermark(1)
    broker.stop()
    hasty = Broker(world)
    steps = hasty.logs.opening(broker_id=1, cluster_id="c")
    next(steps)
    hasty.stop()
    loaded = Broker(world).start().logs

    assert loaded.directories["/a"].was_clean
    assert loaded.get(T0).high_watermark == 1


def test_a_new_log_is_created_in_the_directory_with_the_fewest(broker):
    for number in range(6):
        broker.create(TopicPartition("t", number))

    assert [len(broker.logs.held_in(path)) for path in ("/a", "/b")] == [3, 3]
    broker.create(TopicPartition("u", 0), directory="/b")
    assert broker.directory_of(TopicPartition("u", 0)) == "/b"


def test_a_directory_in_use_is_refused(world, broker):
    with pytest.raises(StartupError, match="/a is locked"):
        Broker(world).start()


def test_another_brokers_directory_is_refused_and_stays_clean(world, broker):
    broker.create()
    broker.stop()
    with pytest.raises(StartupError, match=r"belongs to broker 1; broker.id=2"):
        Broker(world).start(broker_id=2)
    with pytest.raises(StartupError, match=r"belongs to cluster c; .* cluster d"):
        Broker(world).start(cluster_id="d")

    assert Broker(world).start().logs.directories["/a"].was_clean


def test_a_kraft_directory_is_refused(world):
    world.disk.mkdir("/a")
    world.disk.replace_now("/a/meta.properties", b"version=1\nnode.id=1\ncluster.id=c\n")
    with pytest.raises(StartupError, match="KRaft"):
        Broker(world).start()


def test_two_directories_of_one_partition_are_refused(world):
    for path, topic_id in (("/a", TOPIC_ID), ("/b", TOPIC_ID[::-1])):
        broker = Broker(world, path).start()
        broker.logs.create(T0, topic_id, broker.config)
        broker.append()
        broker.stop()
    with pytest.raises(StartupError, match=r"t-0 exists twice, in /a/t-0 and in /b/t-0"):
        Broker(world).start()
    world.disk.rename("/b/t-0", "/b/elsewhere")

    assert Broker(world).start().logs.directories["/a"].was_clean


def leave_two_logs(world, *, longer, shorter):
    for path in (longer, shorter, longer):
        broker = Broker(world, path).start()
        if broker.logs.get(T0) is None:
            broker.create()
        broker.append()
        broker.stop()


def test_a_directory_that_fails_while_its_log_is_set_aside_takes_no_other_offline(world):
    broker = Broker(world, "/b").start()
    broker.create(T1)
    broker.stop()
    leave_two_logs(world, longer="/b", shorter="/a")
    world.disk.faults.append(DiskFault("rename", "/a/t-0"))
    again = Broker(world).start()

    assert again.logs.is_offline("/a")
    assert again.directory_of(T0) == again.directory_of(T1) == "/b"
    assert again.logs.get(T0).leo == 2


@pytest.mark.parametrize("longer", ["/a", "/b"])
def test_the_longer_one_of_two_logs_after_an_interrupted_move_stays(world, longer):
    (shorter,) = {"/a", "/b"} - {longer}
    leave_two_logs(world, longer=longer, shorter=shorter)
    again = Broker(world).start()

    assert again.directory_of(T0) == longer
    assert again.logs.get(T0).leo == 2
    aside = [entry.name for entry in world.disk.list(shorter) if entry.name.endswith("-stray")]
    assert len(aside) == 1
    assert not world.disk.exists(f"{shorter}/t-0")


@pytest.mark.parametrize("former", ["/a", "/b"])
def test_an_older_log_of_a_directory_that_was_offline_is_set_aside_for_an_empty_newer_one(
    world, former
):
    (present,) = {"/a", "/b"} - {former}
    broker = Broker(world, former).start()
    broker.create()
    broker.append()
    broker.stop()
    broker = Broker(world, present).start()
    broker.create()
    broker.logs.get(T0).truncate_fully_and_start_at(5)
    broker.stop()
    again = Broker(world).start()

    assert again.directory_of(T0) == present
    assert again.logs.get(T0).leo == 5


@pytest.mark.parametrize("half_made", ["/a", "/b"])
def test_a_log_whose_directory_failed_at_its_creation_is_replaced_by_the_one_created_elsewhere(
    world, half_made
):
    (made,) = {"/a", "/b"} - {half_made}
    broker = Broker(world, made).start()
    broker.create()
    broker.append()
    broker.stop()
    world.disk.mkdir(f"{half_made}/t-0")
    again = Broker(world).start()

    assert again.directory_of(T0) == made
    assert again.logs.get(T0).leo == 1
    assert not world.disk.exists(f"{half_made}/t-0")


def test_a_log_whose_directory_failed_at_its_creation_is_removed_at_the_next_start(world):
    broker = Broker(world).start()
    world.disk.faults.append(DiskFault("create", "/a/t-0/"))
    broker.create()
    assert (broker.directory_of(T0), broker.lost) == ("/b", [("/a", [])])
    assert world.disk.exists("/a/t-0")
    broker.logs.delete(T0)
    world.disk.faults.clear()
    broker.stop()
    again = Broker(world).start()
    world.pass_time(61_000)

    assert again.logs.get(T0) is None
    assert [e for path in ("/a", "/b") for e in world.disk.list(path) if e.is_dir] == []


def test_other_directories_are_ignored(world, broker):
    for name in ("lost+found", "t-0.00000000000000000000000000000001-stray", "t-007"):
        world.disk.mkdir(f"/a/{name}")
    broker.stop()

    assert len(Broker(world).start().logs) == 0
    assert world.disk.exists("/a/lost+found")


def test_a_deleted_log_is_renamed_at_once_and_removed_later(world, broker):
    broker.create(directory="/a")
    broker.append()
    assert broker.logs.delete(T0)
    assert not broker.logs.delete(T0)
    assert broker.logs.get(T0) is None
    (name,) = [e.name for e in world.disk.list("/a") if e.is_dir]
    assert name.startswith("t-0.")
    assert name.endswith("-delete")
    broker.create(directory="/a")
    world.pass_time(61_000)

    assert [e.name for e in world.disk.list("/a") if e.is_dir] == ["t-0"]
    assert broker.lost == []


def test_a_log_that_is_deleted_while_its_epochs_are_written_is_flushed_to_the_end(world, broker):
    broker.create()
    broker.append()
    flushed = []
    broker.logs.get(T0).assign_epoch(7, 1)
    broker.logs.get(T0).flush(flushed.append)
    broker.logs.delete(T0)
    world.pass_time()

    assert len(flushed) == 1


def test_a_deleted_log_is_freed_without_a_garbage_collection(world, broker):
    broker.create()
    broker.append()
    gc.collect()
    gc.disable()
    try:
        broker.logs.delete(T0)
        world.pass_time(61_000)
        assert not [each for each in gc.get_objects() if isinstance(each, Log)]
    finally:
        gc.enable()


def test_a_deletion_continues_after_a_restart(world, broker):
    broker.create(directory="/a")
    broker.logs.delete(T0)
    broker.stop()
    again = Broker(world).start()
    assert again.logs.get(T0) is None
    world.pass_time(61_000)

    assert [e for e in world.disk.list("/a") if e.is_dir] == []


def test_a_deletion_while_files_are_being_written_is_no_error(world, broker):
    log = broker.create()
    broker.append()
    log.flush()
    broker.logs.delete(T0)
    world.pass_time()

    assert broker.lost == []


def test_a_topic_of_the_longest_name_can_be_deleted(world, broker):
    partition = TopicPartition("x" * 249, 12)
    broker.create(partition, directory="/a")
    broker.logs.delete(partition)
    (name,) = [e.name for e in world.disk.list("/a") if e.is_dir]

    assert len(name) == 255
    broker.stop()
    Broker(world).start()
    world.pass_time(61_000)
    assert [e for e in world.disk.list("/a") if e.is_dir] == []


# ---------------------------------------------------------- another topic of the same name

OTHER_ID = TOPIC_ID[::-1]


def names_in(world, path, ending=""):
    entries = (e.name for e in world.disk.list(path) if e.is_dir)
    return [name for name in entries if name.endswith(ending)]


def with_history(world, directory="/a"):
    """A broker with one log, after appends, a DeleteRecords, a shutdown and a start."""
    config = LogConfig(index_interval_bytes=200, segment_bytes=400)
    broker = Broker(world, directory, config=config).start()
    log = broker.create()
    for _ in range(20):
        broker.append()
    log.set_high_watermark(15)
    log.advance_log_start(10)
    broker.stop()
    return Broker(world, directory, config=config).start()


def test_a_log_that_is_set_aside_keeps_its_records_and_is_not_loaded_any_more(world, broker):
    broker.create(directory="/a")
    broker.append()
    broker.logs.set_aside(T0, "it is of another topic")
    world.pass_time(3_600_000)
    (cut,) = world.cuts
    path = cut.directory

    assert path == f"/a/{names_in(world, '/a')[0]}"
    assert path.startswith("/a/t-0.")
    assert path.endswith("-stray")
    assert (cut.kind, cut.span) == (CutKind.SET_ASIDE, "the records from offset 0 to 0")
    assert (cut.size_bytes, cut.reason) == (170, "it is of another topic")
    assert f"{0:020d}.log" in [entry.name for entry in world.disk.list(path) if entry.size]
    assert broker.logs.get(T0) is None
    assert broker.logs.held_in("/a") == []
    assert broker.logs.directories["/a"].strays == 1
    broker.stop()
    again = Broker(world).start()
    assert again.logs.get(T0) is None
    assert again.logs.directories["/a"].strays == 1
    assert world.disk.exists(path)


def test_an_empty_log_is_deleted_and_not_set_aside(world, broker):
    broker.create(directory="/a")
    broker.logs.set_aside(T0, "it is of another topic")
    world.pass_time(61_000)
    assert world.cuts == []

    assert names_in(world, "/a") == []


def test_one_name_may_be_set_aside_many_times(world, broker):
    for _ in range(3):
        broker.create(directory="/a")
        broker.append()
        broker.logs.set_aside(T0, "")

    assert len(names_in(world, "/a", "-stray")) == 3


def test_a_copy_is_removed_when_its_log_is_set_aside(world, broker):
    broker.create(directory="/a")
    broker.append()
    broker.logs.create_future(T0, "/b")
    broker.logs.set_aside(T0, "")
    world.pass_time(61_000)

    assert broker.logs.futures == []
    assert names_in(world, "/b") == []
    assert len(names_in(world, "/a", "-stray")) == 1


def test_a_copy_of_another_topic_is_set_aside_at_start(world, broker):
    broker.create(directory="/a")
    for _ in range(3):
        broker.append()
    copy = broker.logs.create_future(T0, "/b")
    copy.append_as_follower(memoryview(world.batch(b"x")))
    broker.stop()
    world.disk.rename("/a/t-0", "/a/elsewhere")
    other = Broker(world, "/a").start()
    other.logs.create(T0, OTHER_ID, other.config)
    other.stop()
    again = Broker(world).start()

    assert again.logs.get(T0).topic_id == OTHER_ID
    assert len(names_in(world, "/b", "-stray")) == 1


@pytest.mark.parametrize("how", Crash, ids=lambda how: how.name)
def test_a_new_log_has_no_checkpoint_of_the_former_one_whenever_the_broker_crashes(how):
    died = new = 0
    for after in range(500):
        world = World()
        broker = with_history(world)
        former = broker.logs.get(T0)
        assert (former.log_start_offset, former.high_watermark, former.leo) == (10, 15, 20)
        world.disk.crash_after(after)
        has_died = True
        try:
            broker.logs.set_aside(T0, "")
            dropped = []
            broker.logs.remove_from_checkpoints([T0], partial(dropped.append, True))
            world.pass_time(30)
            assert dropped == [True]
            broker.logs.create(T0, OTHER_ID, broker.config)
            broker.append()
            world.pass_time()
            has_died = False
        except SimulatedCrash:
            died += 1
        world.disk.crash(how)
        world._calls.clear()
        again = Broker(world, "/a", config=broker.config).start()
        found = again.logs.get(T0)
        strays = len(names_in(world, "/a", "-stray"))
        offsets = found and (found.log_start_offset, found.high_watermark, found.leo)
        expected = {
            None: [(None, 1)],
            TOPIC_ID: [((10, 15, 20), strays)],
            OTHER_ID: [((0, 0, 0), 1), ((0, 0, 1), 1)],
        }
        assert (offsets, strays) in expected[found and found.topic_id]
        new += found is not None and found.topic_id == OTHER_ID
        if not has_died:
            break
    assert died > 5
    assert new > 2


def test_a_new_log_waits_until_no_checkpoint_has_the_deleted_one(world):
    broker = with_history(world)
    broker.logs.delete(T0)
    dropped = []
    broker.logs.remove_from_checkpoints([T0], lambda: dropped.append(True))
    assert not dropped
    world.pass_time(30)
    assert dropped
    broker.logs.remove_from_checkpoints([T0], lambda: dropped.append(True))
    assert len(dropped) == 2  # at once

    for name in ("recovery-point-offset", "replication-offset", "log-start-offset"):
        assert decode_offsets(world.disk.read_file(f"/a/{name}-checkpoint")) == {}


def test_checkpoints_have_recovery_points_and_high_watermarks(world, broker):
    log = broker.create(directory="/a")
    for _ in range(5):
        broker.append()
    log.set_high_watermark(4)
    log.flush()
    world.pass_time()
    broker.logs.checkpoint_recovery_points()
    broker.logs.checkpoint_high_watermarks()
    broker.logs.checkpoint_log_start_offsets()
    world.pass_time()

    assert world.disk.read_file("/a/recovery-point-offset-checkpoint") == b"0\n1\nt 0 5\n"
    assert world.disk.read_file("/a/replication-offset-checkpoint") == b"0\n1\nt 0 4\n"
    assert world.disk.read_file("/a/log-start-offset-checkpoint") == b"0\n0\n"
    assert world.disk.read_file("/a/record-format-checkpoint") == b"0\n1\nt 0 4\n"


def test_a_truncation_below_the_recovery_point_reaches_its_checkpoint(world, broker):
    log = broker.create(directory="/a")
    for _ in range(5):
        broker.append()
    log.flush()
    world.pass_time()
    broker.logs.checkpoint_recovery_points()
    log.truncate_to(2)
    world.pass_time()

    assert world.disk.read_file("/a/recovery-point-offset-checkpoint") == b"0\n1\nt 0 2\n"


def test_an_unchanged_checkpoint_is_not_written(world, broker):
    broker.create()
    world.pass_time()
    broker.logs.checkpoint_high_watermarks()
    world.pass_time()
    operations = world.disk.operations
    broker.logs.checkpoint_high_watermarks()
    world.pass_time()

    assert world.disk.operations == operations


def test_damaged_checkpoints_are_ignored(world, broker):
    broker.create(directory="/a")
    broker.append()
    broker.stop()
    for name in ("recovery-point-offset", "replication-offset", "log-start-offset"):
        world.disk.replace_now(f"/a/{name}-checkpoint", b"garbage")
    loaded = Broker(world).start().logs.get(T0)

    assert (loaded.log_start_offset, loaded.high_watermark, loaded.leo) == (0, 0, 1)


# ------------------------------------------------------------------------- when disks fail


def test_a_directory_that_fails_goes_offline_with_all_its_logs(world, broker):
    broker.create(T0, directory="/a")
    broker.create(T1, directory="/b")
    world.disk.lose("/a/")
    with pytest.raises(StorageError) as refused:
        broker.append(T0)
    broker.logs.failed(refused.value)
    broker.logs.failed(refused.value)

    assert broker.lost == [("/a", [T0])]
    assert broker.logs.get(T0) is None
    assert broker.logs.online_directories == ["/b"]
    assert broker.logs.has_offline_dir
    broker.append(T1)
    broker.create(TopicPartition("u", 0))
    broker.stop()


def test_a_directory_stays_online_when_file_descriptors_run_out(broker, caplog):
    path = "/a"
    broker.logs.failed(StorageError.of_open(f"{path}/t-0/0.log", errno.EMFILE))

    assert not broker.logs.has_offline_dir
    assert "nothing was changed; the log directory stays online" in caplog.text


def test_a_directory_that_cannot_be_loaded_for_lack_of_descriptors_is_offline(world, broker):
    """Otherwise its logs would be created again, empty, and one of them might become leader."""
    broker.create(T0, directory="/a")
    broker.append(T0)
    broker.stop()
    world.disk.faults.append(DiskFault("read", "/a/t-0/", errno=errno.EMFILE))
    broker.start()

    assert broker.logs.online_directories == ["/b"]
    assert broker.logs.has_offline_dir


def test_a_directory_that_fails_in_the_background_goes_offline(world, broker):
    log = broker.create(directory="/a")
    broker.append()
    world.pass_time()
    world.disk.faults.append(DiskFault("flush", "/a/t-0/"))
    log.flush()
    world.pass_time()

    assert broker.lost == [("/a", [T0])]


def test_a_removed_directory_goes_offline_even_if_nothing_is_written(world, broker):
    broker.create(T0, directory="/a")
    world.pass_time()
    broker.logs.checkpoint_high_watermarks()
    world.pass_time()
    assert broker.lost == []
    world.disk.rename("/a", "/elsewhere")
    broker.logs.checkpoint_high_watermarks()

    assert broker.lost == [("/a", [T0])]
    assert broker.logs.online_directories == ["/b"]


def test_only_the_inner_one_of_nested_directories_goes_offline(world):
    broker = Broker(world, "/a", "/a/b").start()
    broker.logs.failed(StorageError("/a/b/t-0/x.log", 5))

    assert broker.logs.online_directories == ["/a"]


def test_a_log_is_created_in_another_directory_if_the_first_fails(world, broker):
    world.disk.lose("/a/")
    log = broker.create()

    assert broker.logs.directory_of(log) == "/b"
    assert broker.lost == [("/a", [])]


def test_a_directory_that_fails_at_start_does_not_affect_the_others(world, broker):
    broker.create(T0, directory="/a")
    broker.create(T1, directory="/b")
    broker.stop()
    world.disk.lose("/a/t-0")
    again = Broker(world).start()

    assert again.logs.is_offline("/a")
    assert again.logs.get(T1) is not None


def test_without_an_online_directory_the_broker_does_not_start(world):
    world.disk.lose("/a")
    world.disk.lose("/b")
    with pytest.raises(StartupError, match=r"none of log.dirs can be used: /a, /b"):
        Broker(world).start()


def test_a_full_disk_takes_its_directory_offline_and_loses_nothing_acknowledged(world):
    world.disk.capacity_bytes = 2000
    broker = Broker(world, "/a").start()
    broker.create()
    acknowledged = 0
    try:
        while True:
            broker.append()
            acknowledged += 1
    except StorageError as error:
        broker.logs.failed(error)
    world.disk.capacity_bytes = 1 << 40
    world.disk.crash(Crash.PROCESS)

    assert acknowledged > 3
    assert Broker(world, "/a").start().logs.get(T0).leo == acknowledged


# ------------------------------------------------------------------------------- retention


def test_retention_applies_to_all_logs(world):
    broker = Broker(world, config=LogConfig(segment_bytes=400, retention_bytes=800)).start()
    for partition in (T0, T1):
        log = broker.create(partition)
        for _ in range(20):
            broker.append(partition)
        log.set_high_watermark(20)
    for _ in broker.logs.applying_retention():
        pass

    assert [log.size_bytes for log in broker.logs] == [1020, 1020]


def test_flush_ms_is_applied(world):
    broker = Broker(world, config=LogConfig(flush_ms=5000)).start()
    log = broker.create()
    broker.append()
    broker.logs.flush_overdue()
    world.pass_time(4000)
    assert log.recovery_point == 0
    world.pass_time(1000)
    broker.logs.flush_overdue()
    world.pass_time()
    assert log.recovery_point == 1


# ----------------------------------------------------------------------- moves between directories


def move(world, broker, target="/b", between=lambda: None):
    moved = []
    moving = MovingLogs(broker.logs, lambda partition, log: moved.append((partition, log)))
    moving.start(T0, target)
    for _ in range(50):
        moving.step()
        between()
        world.pass_time(30)
        if moved:
            break
    return moved


def test_a_log_moves_to_another_directory_while_it_is_written(world, broker):
    log = broker.create(directory="/a")
    for _ in range(50):
        broker.append()
    log.set_high_watermark(40)
    log.advance_log_start(3)
    more = iter(range(10))
    ((partition, now),) = move(
        world, broker, between=lambda: next(more, None) is not None and broker.append()
    )

    assert partition == T0
    assert broker.logs.get(T0) is now
    assert broker.directory_of(T0) == "/b"
    assert now.leo == log.leo > 50
    assert (now.log_start_offset, now.high_watermark) == (3, 40)
    assert now.topic_id == TOPIC_ID
    broker.append()
    broker.stop()
    again = Broker(world).start()
    assert again.directory_of(T0) == "/b"
    assert again.logs.get(T0).leo == now.leo
    world.pass_time(61_000)
    assert [e for e in world.disk.list("/a") if e.is_dir] == []


def test_a_log_that_is_truncated_while_it_moves_is_copied_again(world, broker):
    log = broker.create(directory="/a")
    for _ in range(20):
        broker.append()

    def cut():
        if log.cuts == 0:
            log.truncate_to(5)
            broker.append(T0, b"other")

    ((_, now),) = move(world, broker, between=cut)

    assert now.leo == 6
    assert b"other" in bytes(now.read(5, 1000, end_offset=6).data)


def test_a_log_that_starts_within_a_batch_moves_too(world, broker):
    log = broker.create(directory="/a")
    broker.append(T0, b"a", b"b", b"c")
    broker.append()
    log.set_high_watermark(4)
    log.advance_log_start(2)
    ((_, now),) = move(world, broker)

    assert (now.log_start_offset, now.leo) == (2, 4)


def test_a_cold_log_moves_too(world, broker):
    broker.create(directory="/a")
    for _ in range(20):
        broker.append()
    world.disk.cold_share = 1.0

    assert len(move(world, broker)) == 1


def test_a_move_to_the_present_directory_cancels_a_move(world, broker):
    broker.create(directory="/a")
    broker.append()
    moving = MovingLogs(broker.logs, lambda *_: None)
    moving.start(T0, "/b")
    assert [held.is_future for held in broker.logs.held_in("/b")] == [True]
    moving.start(T0, "/a")

    assert broker.logs.held_in("/b") == []


def test_a_move_to_an_unknown_directory_is_refused(broker):
    broker.create(directory="/a")
    with pytest.raises(ApiError) as refused:
        broker.logs.create_future(T0, "/c")

    assert refused.value.code is ErrorCode.LOG_DIR_NOT_FOUND


def test_a_copy_whose_directory_was_offline_during_a_truncation_is_made_again(world, broker):
    log = broker.create(directory="/a")
    for _ in range(5):
        broker.append()
    future = broker.logs.create_future(T0, "/b")
    future.append_as_follower(memoryview(log.read(0, 10_000, end_offset=5).data))
    broker.stop()
    alone = Broker(world, "/a").start()
    alone.logs.get(T0).truncate_to(3)
    for value in (b"d", b"e", b"f"):
        batch = world.batch(value)
        alone.logs.get(T0).append_as_leader(batch, read_header(batch), leader_epoch=1)
    alone.stop()
    again = Broker(world).start()
    assert again.logs.future(T0).leo == 5

    ((_, now),) = move(world, again)
    assert now.epochs.starts() == [(0, 0), (1, 3)]
    assert now.leo == 6


def test_a_copy_under_way_continues_after_a_crash(world, broker):
    broker.create(directory="/a")
    for _ in range(20):
        broker.append()
    future = broker.logs.create_future(T0, "/b")
    future.append_as_follower(memoryview(broker.logs.get(T0).read(0, 1000, end_offset=20).data))
    world.pass_time()
    world.disk.crash(Crash.PROCESS)
    again = Broker(world).start()

    assert 0 < again.logs.future(T0).leo < 20
    assert move(world, again)[0][1].leo == 20


def test_a_copy_without_its_topic_id_has_it_when_it_replaces_the_log(world, broker):
    broker.create(directory="/a")
    broker.append()
    future = broker.logs.create_future(T0, "/b")
    world.pass_time()
    world.disk.unlink(f"{future.directory}/partition.metadata")
    world.disk.crash(Crash.PROCESS)
    again = Broker(world).start()
    assert again.logs.future(T0).topic_id is None
    ((_, now),) = move(world, again)

    assert now.topic_id == TOPIC_ID
    assert world.disk.exists("/b/t-0/partition.metadata")


@pytest.fixture
def copied(world, broker):
    """A log of ten records in /a with a complete copy in /b; then the broker crashes."""
    log = broker.create(directory="/a")
    for _ in range(10):
        broker.append()
    future = broker.logs.create_future(T0, "/b")
    future.append_as_follower(memoryview(log.read(0, 10_000, end_offset=10).data))
    world.pass_time()
    world.disk.crash(Crash.PROCESS)
    return Broker(world)


def test_a_copy_with_more_records_than_its_log_after_a_power_failure_replaces_it(world, copied):
    world.disk.file("/a/t-0/00000000000000000000.log").truncate(0)
    copied.start()

    assert copied.directory_of(T0) == "/b"
    assert copied.logs.get(T0).leo == 10
    assert copied.logs.futures == []
    assert not world.disk.exists("/a/t-0")


def test_a_copy_without_its_log_replaces_it(world, copied):
    world.disk.rename("/a/t-0", "/a/elsewhere")
    copied.start()

    assert copied.directory_of(T0) == "/b"
    assert copied.logs.get(T0).leo == 10


def test_a_copy_whose_log_may_be_in_a_failed_directory_stays_a_copy(world, copied):
    world.disk.lose("/a")
    copied.start()

    assert copied.logs.get(T0) is None
    assert copied.logs.futures == [T0]


def test_a_moved_log_is_deleted_when_the_new_name_is_durable(world, broker):
    broker.create(directory="/a")
    broker.append()
    broker.logs.create_future(T0, "/b").append_as_follower(
        memoryview(broker.logs.get(T0).read(0, 1000, end_offset=1).data)
    )
    broker.logs.swap_in(T0)
    assert world.disk.exists("/a/t-0")
    assert world.disk.exists("/b/t-0")
    world.pass_time()

    assert not world.disk.exists("/a/t-0")


def swap_in_copy(broker, directory):
    broker.logs.create_future(T0, directory).append_as_follower(
        memoryview(broker.logs.get(T0).read(0, 1000, end_offset=1).data)
    )
    broker.logs.swap_in(T0)


def test_a_moved_log_is_deleted_before_its_name_is_used_by_a_new_log(world, broker):
    broker.create(directory="/a")
    broker.append()
    swap_in_copy(broker, "/b")
    broker.logs.delete(T0)

    assert not world.disk.exists("/a/t-0")
    broker.create(directory="/a")
    assert broker.logs.get(T0).leo == 0


def test_a_moved_log_is_deleted_before_the_broker_stops(world, broker):
    broker.create(directory="/a")
    broker.append()
    swap_in_copy(broker, "/b")
    broker.stop()

    assert Broker(world).start().directory_of(T0) == "/b"


def test_a_moved_log_is_deleted_before_it_is_moved_back(broker):
    broker.create(directory="/a")
    broker.append()
    swap_in_copy(broker, "/b")
    swap_in_copy(broker, "/a")

    assert broker.directory_of(T0) == "/a"
    assert broker.logs.get(T0).leo == 1


def test_total_and_free_space_are_reported(world, broker):
    total, usable = broker.logs.space("/a")

    assert 0 < usable <= total


def test_a_move_cancelled_during_the_flush_of_its_copy_takes_nothing_offline(world, broker):
    broker.create(directory="/a")
    broker.append()
    moving = MovingLogs(broker.logs, lambda *_: None)
    moving.start(T0, "/b")
    assert moving.step() > 0
    world.disk.faults.append(DiskFault("flush", "-future"))
    assert moving.step() == 0  # the copy is complete, and is being flushed
    moving.cancel(T0)
    moving.start(T0, "/b")
    world.pass_time()
    assert broker.lost == []
    # Another copy was flushed: this one is flushed before it replaces the log.
    assert moving.step() > 0
    assert broker.logs.futures == [T0]
    assert moving.step() == 0
    assert broker.logs.futures == [T0]
    world.pass_time()
    assert moving.step() == 0
    assert broker.directory_of(T0) == "/b"


def test_logs_are_read_ahead_once_and_not_far(world):
    broker = Broker(world, "/a").start()
    for number in range(200):
        broker.create(TopicPartition("t", number))
    broker.stop()
    again = Broker(world, "/a")
    seen, ahead = [], []

    def read_ahead(directories):
        seen.extend(directories)
        ahead.append(len(seen) - len(again.logs))

    world.disk.read_ahead = read_ahead
    again.start()

    paths = sorted(f"/a/t-{number}" for number in range(200))
    assert seen == paths[16:]  # the first are loaded at once
    assert max(ahead) <= 64
