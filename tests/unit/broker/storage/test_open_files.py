"""Everything that opens files has a share, and all shares together are below the limit."""

import errno
import os
import re

import pytest

from odradek.broker.storage.open_files import shares
from odradek.log.disk import StorageError
from odradek.log.system.disk import RealDisk
from odradek.model.errors import StartupError

# What else a broker opens at most: see the module.
INTERNAL = 40 + 16 + 2 + 4


@pytest.mark.parametrize(
    ("limit", "logs", "connections"),
    [(256, 70, 70), (1_024, 376, 376), (20_000, 9_531, 9_532), (1 << 20, 50_000, 965_496)],
)
def test_the_shares_of_a_limit(limit, logs, connections):
    found = shares(limit, backlog=50)

    assert (found.logs, found.connections) == (logs, connections)


@pytest.mark.parametrize("limit", [150, 192, 256, 300, 512, 1_024, 4_096, 20_000, 1 << 20])
@pytest.mark.parametrize("listeners", [1, 2, 3])
@pytest.mark.parametrize("backlog", [5, 50, 4_000])
def test_all_shares_together_are_below_the_limit(limit, listeners, backlog):
    found = shares(limit, backlog=backlog, listeners=listeners)

    assert taken_by(found, limit, listeners=listeners) <= limit
    assert found.http >= 2


def taken_by(found, limit, *, listeners=1, directories=1, cleaners=1):
    """All files of a broker that uses each share up."""
    refused = listeners * (1 + 4 * found.at_once) + 1 + 4 * found.http_at_once
    internal = INTERNAL + 2 * (directories - 1) + 4 * (cleaners - 1) + max(8, limit // 32)
    return found.logs + found.connections + found.http + refused + internal


@pytest.mark.parametrize("listeners", [1, 2, 3])
@pytest.mark.parametrize(("directories", "cleaners"), [(1, 1), (8, 4)])
def test_a_limit_that_is_too_low_is_an_error_with_the_limit_that_is_needed(
    listeners, directories, cleaners
):
    given = {"listeners": listeners, "directories": directories, "cleaners": cleaners}
    needed = set()
    for limit in range(250):
        try:
            found = shares(limit, backlog=50, **given)
        except StartupError as error:
            allowed, advised = map(int, re.findall(r"\d+", str(error)))
            assert allowed == limit < advised
            needed.add(advised)
        else:
            assert taken_by(found, limit, **given) <= limit
            assert min(found.logs, found.connections) >= 16
            needed.discard(limit)

    assert not needed, "the advised limits are not enough"


def test_a_long_queue_of_connections_takes_no_files():
    assert shares(20_000, backlog=4_000) == shares(20_000, backlog=50)


def test_each_directory_cleaner_and_listener_has_files_of_its_own():
    alone = sum(shares(20_000, backlog=50)[:2])

    for more in ({"directories": 9}, {"cleaners": 9}, {"listeners": 4}):
        assert sum(shares(20_000, backlog=50, **more)[:2]) < alone - 8


class WaitingDisk(RealDisk):
    """A disk whose threads work when the test says so."""

    def __init__(self):
        super().__init__(lambda call, *arguments: call(*arguments))
        self.jobs = []

    def run_later(self, job, path, done, failed=StorageError):
        def run():
            try:
                result = job()
            except OSError as error:
                result = failed(path, error.errno)
            done(result)

        self.jobs.append(run)

    def work(self):
        while self.jobs:
            self.jobs.pop(0)()


def test_a_flush_that_waits_for_a_thread_holds_no_directory_open(tmp_path):
    """Hundreds of logs may roll at once: each flushes its directory and that of all logs."""
    disk = WaitingDisk()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        disk.flush([str(tmp_path)], lambda _: None)

    assert len(os.listdir("/proc/self/fd")) == before
    disk.work()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("work", ["flush", "replace"])
def test_a_thread_that_has_no_descriptor_tries_again_when_idle_files_are_closed(
    tmp_path, monkeypatch, work
):
    failures = [OSError(errno.EMFILE, "Too many open files")]
    real = os.open

    def once(path, *arguments):
        if path == str(tmp_path) and failures:
            raise failures.pop()
        return real(path, *arguments)

    disk, results = WaitingDisk(), []
    file = disk.create(f"{tmp_path}/a")
    monkeypatch.setattr(os, "open", once)
    if work == "flush":
        disk.flush([str(tmp_path)], results.append)
    else:
        disk.replace_later(f"{tmp_path}/b", b"x", results.append)
    disk.work()

    assert results == [None]
    assert not file.is_open


def test_a_file_that_cannot_be_replaced_for_lack_of_descriptors_is_as_it_was(tmp_path, monkeypatch):
    disk, results = WaitingDisk(), []
    disk.replace_now(f"{tmp_path}/b", b"before")

    def fail(*_):
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as without:
        without.setattr(os, "open", fail)
        disk.replace_later(f"{tmp_path}/b", b"after", results.append)
        disk.work()
        with pytest.raises(StorageError) as failed:
            disk.replace_now(f"{tmp_path}/b", b"after")

    assert [result.left_nothing for result in results] == [True]
    assert failed.value.left_nothing
    assert disk.read_file(f"{tmp_path}/b") == b"before"
