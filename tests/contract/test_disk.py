"""The contract of a disk for the log: one suite for the real one and the simulated one."""

import errno
import os
import queue
import random

import pytest

from odradek.log.disk import StorageError
from odradek.log.system.disk import RealDisk
from odradek.sim.world.disk import SimulatedDisk


class Stage:
    """A disk, a directory on it, and a way to wait for completions."""

    def __init__(self, kind, tmp_path):
        self._calls = queue.Queue()
        if kind == "real":
            self.disk = RealDisk(lambda *call: self._calls.put(call), descriptors_max=8)
            self.root = str(tmp_path)
        else:
            later = lambda _delay, call: self._calls.put((call,))  # noqa: E731
            self.disk = SimulatedDisk(random.Random(1), later)
            self.root = "/data"
            self.disk.mkdir(self.root)

    def wait_for(self, start):
        """Start an operation that ends in a callback; returns the callback's argument."""
        results = []
        start(results.append)
        while not results:
            callback, *arguments = self._calls.get(timeout=10)
            callback(*arguments)
        return results[0]

    def path(self, name):
        return f"{self.root}/{name}"


@pytest.fixture(params=["real", "simulated"])
def stage(request, tmp_path):
    stage = Stage(request.param, tmp_path)
    yield stage
    if request.param == "real":
        stage.disk.close()


def test_written_bytes_can_be_read(stage):
    file = stage.disk.create(stage.path("a"))
    file.write(0, (b"head", memoryview(b"tail")))
    file.write(8, (b"more",))

    assert file.size() == 12
    assert bytes(file.read_now(2, 8)) == b"adtailmo"
    assert bytes(file.read(0, 12)) == b"headtailmore"


def test_a_read_into_memory_fills_all_of_it_or_reports_that_it_did_not(stage):
    file = stage.disk.create(stage.path("a"))
    file.write(0, (b"abcdef",))
    memory = memoryview(bytearray(8))

    assert file.read_into(1, memory[2:6])
    assert bytes(memory) == b"\0\0bcde\0\0"
    assert not file.read_into(3, memory[:4]), "the file ends before"
    with pytest.raises(StorageError, match="missing"):
        stage.disk.file(stage.path("missing")).read_into(0, memory)


def test_a_read_of_what_is_not_in_the_page_cache_is_left_to_a_thread(tmp_path, monkeypatch):
    stage = Stage("real", tmp_path)
    file = stage.disk.create(stage.path("a"))
    file.write(0, (b"abcdef",))
    preadv, refused = os.preadv, []

    def cold(fd, buffers, position, flags=0):
        if flags:
            refused.append(OSError(errno.EAGAIN, "not in memory"))
            raise refused[-1]
        return preadv(fd, buffers, position)

    monkeypatch.setattr(os, "preadv", cold)
    assert file.read(0, 3) is None
    assert not file.read_into(0, memoryview(bytearray(3)))
    assert len(refused) == 2
    stage.disk.close()


def test_a_filesystem_that_does_not_know_what_is_cached_is_asked_once(tmp_path, monkeypatch):
    stage = Stage("real", tmp_path)
    file = stage.disk.create(stage.path("a"))
    file.write(0, (b"abcdef",))
    preadv, flagged, memory = os.preadv, [], bytearray(3)

    def without_flags(fd, buffers, position, flags=0):
        if flags:
            flagged.append(flags)
            raise OSError(errno.EOPNOTSUPP, "not on this filesystem")
        return preadv(fd, buffers, position)

    monkeypatch.setattr(os, "preadv", without_flags)
    assert bytes(file.read(0, 3)) == b"abc"
    assert file.read_into(3, memoryview(memory))
    assert (bytes(memory), len(flagged)) == (b"def", 1)

    def damaged(*_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "preadv", damaged)
    with pytest.raises(StorageError, match="Input/output"):
        file.read_into(0, memoryview(memory))
    stage.disk.close()


def test_a_started_read_completes_though_the_file_is_removed(stage):
    file = stage.disk.create(stage.path("a"))
    file.write(0, (b"abc",))

    def start(done):
        file.read_later(0, 3, done)
        file.rest()
        stage.disk.unlink(stage.path("a"))

    assert bytes(stage.wait_for(start)) == b"abc"


def test_removing_a_file_of_a_removed_directory_is_no_error(stage):
    stage.disk.unlink(stage.path("nowhere/a"))
    assert stage.wait_for(lambda done: stage.disk.remove([stage.path("nowhere/a")], done)) is None


def test_a_read_beyond_the_end_is_short(stage):
    file = stage.disk.create(stage.path("a"))
    file.write(0, (b"abc",))

    assert bytes(file.read(1, 10)) == b"bc"
    assert bytes(file.read_now(3, 10)) == b""


def test_a_read_in_a_thread_ends_in_a_callback(stage):
    file = stage.disk.create(stage.path("a"))
    file.write(0, (b"abc",))

    assert bytes(stage.wait_for(lambda done: file.read_later(1, 2, done))) == b"bc"


def test_a_file_is_found_again_by_its_name(stage):
    stage.disk.create(stage.path("a")).write(0, (b"abc",))

    assert bytes(stage.disk.file(stage.path("a")).read_now(0, 3)) == b"abc"


def test_a_created_file_is_empty_even_if_it_existed(stage):
    stage.disk.create(stage.path("a")).write(0, (b"abc",))
    stage.disk.create(stage.path("a"))

    assert stage.disk.read_file(stage.path("a")) == b""


def test_a_missing_file_is_a_storage_error_that_names_it(stage):
    with pytest.raises(StorageError, match=r"/none.*errno 2"):
        stage.disk.file(stage.path("none")).read_now(0, 1)


def test_reading_a_small_missing_file_is_no_error(stage):
    assert stage.disk.read_file(stage.path("none")) is None


def test_a_truncated_file_is_shorter_and_a_write_beyond_the_end_leaves_zeros(stage):
    file = stage.disk.create(stage.path("a"))
    file.write(0, (b"abcdef",))
    file.truncate(2)
    file.write(4, (b"x",))

    assert bytes(file.read_now(0, 9)) == b"ab\0\0x"


def test_a_directory_is_listed_in_order_with_sizes(stage):
    stage.disk.mkdir(stage.path("sub/deep"))
    stage.disk.create(stage.path("b")).write(0, (b"xyz",))
    stage.disk.create(stage.path("a"))

    found = stage.disk.list(stage.root)

    assert [(e.name, e.is_dir) for e in found] == [("a", False), ("b", False), ("sub", True)]
    assert [e.size for e in found if not e.is_dir] == [0, 3]


def test_listing_a_missing_directory_is_a_storage_error(stage):
    with pytest.raises(StorageError):
        stage.disk.list(stage.path("none"))


def test_renaming_replaces_and_moves_a_directory_with_its_files(stage):
    stage.disk.mkdir(stage.path("t-0"))
    stage.disk.create(stage.path("t-0/a")).write(0, (b"new",))
    stage.disk.create(stage.path("t-0/b")).write(0, (b"old",))
    stage.disk.rename(stage.path("t-0/a"), stage.path("t-0/b"))
    stage.disk.rename(stage.path("t-0"), stage.path("t-0.x-delete"))

    assert not stage.disk.exists(stage.path("t-0"))
    assert stage.disk.read_file(stage.path("t-0.x-delete/b")) == b"new"


def test_an_open_file_is_usable_after_its_path_was_changed(stage):
    stage.disk.mkdir(stage.path("t-0"))
    file = stage.disk.create(stage.path("t-0/a"))
    stage.disk.rename(stage.path("t-0"), stage.path("t-1"))
    file.path = stage.path("t-1/a")
    file.rest()
    file.write(0, (b"x",))

    assert stage.disk.read_file(stage.path("t-1/a")) == b"x"


def test_renaming_a_missing_file_is_a_storage_error(stage):
    with pytest.raises(StorageError):
        stage.disk.rename(stage.path("a"), stage.path("b"))


def test_unlinking_twice_is_no_error(stage):
    stage.disk.create(stage.path("a"))
    stage.disk.unlink(stage.path("a"))
    stage.disk.unlink(stage.path("a"))

    assert not stage.disk.exists(stage.path("a"))


def test_files_and_whole_directories_are_removed_in_the_background(stage):
    stage.disk.mkdir(stage.path("d/e"))
    stage.disk.create(stage.path("d/e/f"))
    stage.disk.create(stage.path("a"))
    paths = [stage.path("a"), stage.path("none"), stage.path("d")]

    assert stage.wait_for(lambda done: stage.disk.remove(paths, done)) is None
    assert stage.disk.list(stage.root) == []


def test_a_flush_of_files_and_directories_reports_success(stage):
    file = stage.disk.create(stage.path("a"))
    file.write(0, (b"x",))

    assert stage.wait_for(lambda done: stage.disk.flush([file, stage.root], done)) is None
    stage.disk.flush_now([file, stage.root])


def test_a_flush_of_a_missing_file_reports_the_path(stage):
    missing = stage.disk.file(stage.path("none"))

    error = stage.wait_for(lambda done: stage.disk.flush([missing], done))
    assert isinstance(error, StorageError)
    assert error.path == stage.path("none")
    error = stage.wait_for(lambda done: stage.disk.flush([stage.path("gone")], done))
    assert isinstance(error, StorageError)


def test_a_replaced_file_has_the_last_content(stage):
    path = stage.path("checkpoint")
    done = []
    for number in range(5):
        stage.disk.replace_later(path, b"%d" % number, done.append)
    stage.wait_for(lambda last: stage.disk.replace_later(path, b"last", last))

    assert stage.disk.read_file(path) == b"last"
    assert done == [None] * 5
    assert [e.name for e in stage.disk.list(stage.root)] == ["checkpoint"]


def test_a_replacement_that_waits_for_the_disk_is_not_undone_by_an_earlier_one(stage):
    path = stage.path("checkpoint")
    stage.disk.replace_later(path, b"early", lambda _: None)
    stage.disk.replace_later(path, b"later", lambda _: None)
    stage.disk.replace_now(path, b"now")
    stage.wait_for(lambda done: stage.disk.flush([stage.root], done))
    stage.wait_for(lambda done: stage.disk.replace_later(stage.path("other"), b"", done))

    assert stage.disk.read_file(path) == b"now"


def test_a_replacement_in_a_missing_directory_reports_an_error(stage):
    error = stage.wait_for(lambda done: stage.disk.replace_later(stage.path("none/a"), b"", done))

    assert isinstance(error, StorageError)


def test_a_lock_keeps_others_out_until_it_is_released(stage):
    lock = stage.disk.lock(stage.path(".lock"))

    assert lock is not None
    assert stage.disk.lock(stage.path(".lock")) is None
    lock.release()
    again = stage.disk.lock(stage.path(".lock"))
    assert again is not None
    again.release()


def test_free_space_is_reported(stage):
    assert 0 < stage.disk.usable_bytes(stage.root) <= stage.disk.total_bytes(stage.root)


def test_many_files_hold_few_descriptors(tmp_path):
    disk = RealDisk(lambda *_: None, descriptors_max=8)
    files = [disk.create(f"{tmp_path}/{number}") for number in range(50)]
    for file in files:
        file.write(0, (b"x",))
    busy = files[0]
    for file in files:
        busy.write(0, (b"y",))
        assert bytes(file.read_now(0, 1)) in (b"x", b"y")

    assert disk.descriptors <= 8
    assert busy.is_open


def test_a_pinned_file_keeps_its_descriptor(tmp_path):
    disk = RealDisk(lambda *_: None, descriptors_max=2)
    pinned = disk.create(f"{tmp_path}/pinned")
    descriptor = pinned.pin()
    for number in range(10):
        disk.create(f"{tmp_path}/{number}")
    pinned.rest()

    assert pinned.pin() == descriptor
    assert disk.descriptors <= 2
    pinned.unpin()
    assert pinned.is_open
    pinned.unpin()
    assert not pinned.is_open


def test_when_descriptors_run_out_idle_files_close_theirs(tmp_path, monkeypatch):
    disk = RealDisk(lambda *_: None, descriptors_max=1_000)
    files = [disk.create(f"{tmp_path}/{number}") for number in range(40)]
    real = os.open

    def limited(*arguments):
        if disk.descriptors >= 40:
            raise OSError(errno.EMFILE, "Too many open files")
        return real(*arguments)

    monkeypatch.setattr(os, "open", limited)
    late = disk.create(f"{tmp_path}/late")
    late.write(0, (b"x",))

    assert disk.descriptors < 40
    assert sum(file.is_open for file in files) == disk.descriptors - 1
    files[0].write(0, (b"y",))
    assert bytes(files[0].read_now(0, 1)) == b"y"


def test_an_idle_file_holds_no_descriptor(tmp_path):
    disk = RealDisk(lambda *_: None)
    file = disk.create(f"{tmp_path}/a")
    file.write(0, (b"x",))
    file.rest()

    assert disk.descriptors == 0
    assert bytes(file.read_now(0, 1)) == b"x"
    assert disk.descriptors == 1


def test_reading_ahead_changes_nothing_and_leaves_errors_to_the_reader(stage):
    file = stage.disk.create(stage.path("00000000000000000000.log"))
    file.write(0, (b"x" * 50_000,))
    stage.disk.mkdir(stage.path("b"))
    before = stage.disk.list(stage.root)

    stage.disk.read_ahead([stage.path("missing"), stage.root])

    assert stage.wait_for(lambda done: stage.disk.flush([file], done)) is None
    assert stage.disk.list(stage.root) == before
