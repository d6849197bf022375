"""Data that the simulated disk loses, tears and refuses; the rest is in the contract test."""

import errno
import random

import pytest

from odradek.log.disk import StorageError
from odradek.sim.world.disk import Crash, DiskFault, SimulatedCrash, SimulatedDisk
from odradek.sim.world.stored import SECTOR_BYTES

OLD, NEW = b"o", b"n"


class Stage:
    def __init__(self, seed=0):
        self.calls = []
        self.disk = SimulatedDisk(
            random.Random(seed), lambda delay, call: self.calls.append((delay, call))
        )
        self.disk.mkdir("/d")
        self.disk.flush_now(["/"])

    def settle(self):
        for _, call in sorted(self.calls, key=lambda call: call[0]):
            call()
        self.calls.clear()

    def put(self, name, data):
        """A durable file."""
        file = self.disk.create(f"/d/{name}")
        file.write(0, (data,))
        self.disk.flush_now([file, "/d"])
        return file

    def read(self, name):
        return self.disk.read_file(f"/d/{name}")


def after_power_loss(prepare, seeds=60):
    """What many power losses leave of file `a`."""
    found = []
    for seed in range(seeds):
        stage = Stage(seed)
        prepare(stage)
        stage.disk.crash(Crash.POWER)
        found.append(stage.read("a"))
    return found


def test_a_killed_process_leaves_the_page_cache():
    stage = Stage()
    stage.disk.create("/d/a").write(0, (b"x" * 1000,))
    stage.disk.crash(Crash.PROCESS)

    assert stage.read("a") == b"x" * 1000


def test_what_was_flushed_survives_a_power_loss():
    assert set(after_power_loss(lambda stage: stage.put("a", b"x" * 1000))) == {b"x" * 1000}


def test_of_what_was_not_flushed_anything_may_be_left():
    sectors = 8

    def overwrite(stage):
        file = stage.put("a", OLD * SECTOR_BYTES * sectors)
        file.write(0, (NEW * SECTOR_BYTES * sectors,))

    found = after_power_loss(overwrite)
    kept = [[data[n * SECTOR_BYTES] == NEW[0] for n in range(sectors)] for data in found]
    assert all(set(data) <= {OLD[0], NEW[0]} for data in found)
    assert [False] * sectors in kept
    assert [True] * sectors in kept
    assert any(sorted(flags, reverse=True) != flags for flags in kept), "not only a beginning"
    for data in found:
        for n in range(sectors):
            assert len(set(data[n * SECTOR_BYTES : (n + 1) * SECTOR_BYTES])) == 1, "whole sectors"


def test_a_tail_that_was_not_flushed_may_be_missing_or_zeros():
    def grow(stage):
        stage.put("a", OLD * 100).write(100, (NEW * 3000,))

    found = after_power_loss(grow)
    assert all(data[:100] == OLD * 100 for data in found), "the flushed part of a sector stays"
    sizes = {len(data) for data in found}
    assert 100 in sizes
    assert 3100 in sizes
    assert any(data.endswith(bytes(500)) for data in found)
    assert any(data == OLD * 100 + NEW * 3000 for data in found)


def test_a_truncation_that_was_not_flushed_may_be_undone():
    found = after_power_loss(lambda stage: stage.put("a", OLD * 2000).truncate(10))

    assert {len(data) for data in found} == {10, 2000}


def test_what_is_written_behind_a_lost_cut_is_lost_with_it():
    def rewrite(stage):
        file = stage.put("a", OLD * 4096)
        file.truncate(1000)
        file.write(1000, (NEW * 2000,))

    found = set(after_power_loss(rewrite, 200))
    assert OLD * 4096 in found
    assert OLD * 1000 + NEW * 2000 in found
    assert all(data[:1000] == OLD * 1000 for data in found)
    assert not any(NEW in data and OLD in data[1000:] for data in found)


def test_a_flush_makes_a_cut_durable_and_what_was_written_behind_it():
    def rewrite(stage):
        file = stage.put("a", OLD * 4096)
        file.truncate(1000)
        file.write(1000, (NEW * 2000,))
        stage.disk.flush_now([file])
        file.write(3000, (NEW * 2000,))

    found = after_power_loss(rewrite)
    assert all(data.startswith(OLD * 1000 + NEW * 2000) for data in found)
    assert {len(data) for data in found} >= {3000, 5000}


def test_a_new_name_is_lost_without_a_flush_of_its_directory():
    def create(stage):
        file = stage.disk.create("/d/a")
        file.write(0, (b"x",))
        stage.disk.flush_now([file])

    assert set(after_power_loss(create)) == {None, b"x"}


def test_names_are_lost_from_the_last_on():
    for seed in range(40):
        stage = Stage(seed)
        stage.put("a", b"old")
        stage.put("b", b"new")
        stage.disk.rename("/d/b", "/d/a")
        stage.disk.create("/d/c")
        stage.disk.unlink("/d/c")
        stage.disk.crash(Crash.POWER)
        names = [entry.name for entry in stage.disk.list("/d")]
        assert (names, stage.read("a")) in (
            (["a", "b"], b"old"),
            (["a"], b"new"),
            (["a", "c"], b"new"),
        )


def test_a_flush_covers_what_was_written_before_it_began():
    def grow(stage):
        file = stage.put("a", b"")
        file.write(0, (OLD * 1024,))
        stage.disk.flush([file], lambda _: None)
        file.write(1024, (NEW * 1024,))
        stage.settle()

    found = after_power_loss(grow)
    assert all(data[:1024] == OLD * 1024 for data in found)
    assert {len(data) for data in found} >= {1024, 2048}


def test_a_flush_that_was_not_completed_promises_nothing():
    def begin(stage):
        file = stage.put("a", b"")
        file.write(0, (b"x",))
        stage.disk.flush([file], lambda _: pytest.fail("the process is dead"))
        stage.disk.crash(Crash.PROCESS)
        stage.settle()

    assert set(after_power_loss(begin)) >= {b"", b"x"}


def test_completions_come_late_and_in_any_order():
    stage = Stage()
    file = stage.put("a", b"")
    order = []
    for number in range(20):
        stage.disk.flush([file], lambda _, number=number: order.append(number))
    assert order == []
    stage.settle()

    assert sorted(order) == list(range(20))
    assert order != list(range(20))


def test_a_failed_flush_has_lost_its_pages():
    def fail(stage):
        file = stage.put("a", b"old")
        file.write(0, (b"new",))
        stage.disk.faults.append(DiskFault("flush", "/d/a"))
        with pytest.raises(StorageError):
            stage.disk.flush_now([file])
        assert stage.read("a") == b"new"
        stage.disk.flush_now([file])

    assert set(after_power_loss(fail)) == {b"old"}


def test_faults_strike_when_and_where_they_are_ordered_to():
    stage = Stage()
    file, other = stage.put("a", b"x"), stage.put("b", b"x")
    stage.disk.faults.append(DiskFault("read", "/d/a", after=1, times=2))
    outcomes = []
    for _ in range(5):
        other.read_now(0, 1)
        try:
            outcomes.append(bytes(file.read_now(0, 1)))
        except StorageError as error:
            outcomes.append(error.errno)

    assert outcomes == [b"x", errno.EIO, errno.EIO, b"x", b"x"]


def test_a_full_disk_takes_what_fits():
    stage = Stage()
    stage.disk.capacity_bytes = 1000
    file = stage.disk.create("/d/a")
    with pytest.raises(StorageError) as refused:
        file.write(0, (b"x" * 1500,))

    assert refused.value.errno == errno.ENOSPC
    assert file.size() == 1000
    file.write(0, (b"y" * 1000,))
    assert stage.disk.usable_bytes("/d") == 0


def test_a_lost_directory_refuses_everything():
    stage = Stage()
    file = stage.put("a", b"x")
    stage.disk.lose("/d/")
    for attempt in (
        lambda: file.read_now(0, 1),
        lambda: stage.disk.create("/d/b"),
        lambda: stage.disk.flush_now([file]),
    ):
        with pytest.raises(StorageError):
            attempt()


def test_a_crash_comes_at_the_operation_it_is_ordered_for():
    torn = set()
    for seed in range(40):
        stage = Stage(seed)
        file = stage.put("a", b"")
        stage.disk.crash_after(2)
        file.write(0, (b"1",))
        file.write(1, (b"2",))
        with pytest.raises(SimulatedCrash):
            file.write(2, (b"345",))
        stage.disk.crash(Crash.PROCESS)
        torn.add(stage.read("a"))

    assert torn == {b"12", b"123", b"1234", b"12345"}


def test_a_file_of_a_dead_process_cannot_be_used():
    stage = Stage()
    file = stage.put("a", b"x")
    stage.disk.crash(Crash.PROCESS)
    with pytest.raises(AssertionError, match="belongs to a dead process"):
        file.read_now(0, 1)


def test_a_lock_dies_with_its_process():
    stage = Stage()
    assert stage.disk.lock("/d/.lock")
    stage.disk.crash(Crash.PROCESS)
    assert stage.disk.lock("/d/.lock")


def test_equal_seeds_make_equal_disks():
    def tear(stage):
        stage.put("a", OLD * 5000).write(1000, (NEW * 9000,))

    assert after_power_loss(tear, 10) == after_power_loss(tear, 10)
    assert len(set(after_power_loss(tear, 10))) > 3


def test_a_directory_that_was_put_back_is_as_it_was_and_durable():
    stage = Stage()
    stage.put("a", b"old")
    stage.disk.mkdir("/e")
    backup = stage.disk.copy("/d")
    stage.put("a", b"new")
    stage.put("b", b"new")
    stage.disk.put_back(backup, "/d")
    assert (stage.read("a"), stage.read("b")) == (b"old", None)
    stage.disk.crash(Crash.POWER)
    assert (stage.read("a"), stage.read("b")) == (b"old", None)


def test_a_snapshot_of_the_device_lacks_what_was_not_flushed():
    found = set()
    for seed in range(20):
        stage = Stage(seed)
        stage.disk.create("/d/a").write(0, (b"x" * 1000,))
        stage.disk.put_back(stage.disk.copy("/d", is_torn=True), "/d")
        found.add(stage.read("a"))
    assert None in found
