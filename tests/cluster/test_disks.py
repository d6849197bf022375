"""A log directory that fails under a real broker, one of two or the last one.

The user root, as which tests often run, may write everywhere. So a disk is made to fail by a limit
on the size of files that is set on the running broker (EFBIG), by removing the directory (ENOENT),
and, where it may be mounted, by a filesystem of a few megabytes (ENOSPC).
"""

import json
import resource
import shutil
import subprocess
import time

import pytest
from brokers import BrokerEndedError
from peers import Peer, as_stored, framed

from odradek.cli.kafka.tool import run_tool
from odradek.model.errors import ErrorCode
from odradek.record.records import Record, build_batch
from odradek.wire.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from odradek.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)

BY_NAME = 12
OFFLINE = "kafka_log_logmanager_offlinelogdirectorycount"
STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR


class TwoDirectories:
    """A broker on two directories, with two topics in each, and what it acknowledged."""

    def __init__(self, make_broker, tmp_path, **options):
        self.a, self.b = tmp_path / "a", tmp_path / "b"
        dirs = {"log.dirs": f"{self.a},{self.b}", "log.retention.ms": -1, **options}
        self.broker = make_broker(dirs).start()
        self.written = {}
        with Peer(self.broker.port) as peer:
            for number in range(4):
                peer.create_topic(f"t{number}")
                for n in range(20):
                    self.produce(peer, f"t{number}", b"%d before" % n)

    def produce(self, peer, topic, value, *, record_bytes=100):
        batch = build_batch([Record(None, value * record_bytes)])
        answer = peer.produce(topic, 0, batch)
        written = self.written.setdefault(topic, [])
        is_written = answer.error_code == ErrorCode.NONE
        assert answer.base_offset == (len(written) if is_written else -1)
        written += [as_stored(batch)] * is_written
        return answer.error_code

    def in_directory(self, directory):
        return sorted(topic for topic in self.written if (directory / f"{topic}-0").exists())

    def check(self, topics):
        """Acknowledged records are in the log, and unacknowledged ones only after them."""
        with Peer(self.broker.port) as peer:
            for topic in topics:
                peer.wait_until_led(topic)
                written = self.written[topic]
                there = peer.read(topic, 0, 0, peer.offset(topic, 0))
                assert [as_stored(batch) for _, batch in there][: len(written)] == written


def limit_files(broker, size_bytes):
    """From now on no file of the broker can be written beyond that size."""
    resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (size_bytes, size_bytes))


def fill(two, topic, *, batches=1_000):
    """Write until it is refused; what it is refused with."""
    with Peer(two.broker.port) as peer:
        for n in range(batches):
            error = two.produce(peer, topic, b"%d filling " % n, record_bytes=2_000)
            if error != ErrorCode.NONE:
                return error
    return ErrorCode.NONE


def wait_for(true, *, within_s=60.0):
    deadline_s = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def parked_fetch(peer, topic, offset):
    """Wait for more behind an offset, for a minute if need be."""
    asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=60_000, min_bytes=1, max_bytes=1 << 20, session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[asked])],
    )  # fmt: skip
    peer.send(framed(request, BY_NAME))


def test_one_directory_fails_and_the_other_is_served(make_broker, tmp_path):
    two = TwoDirectories(make_broker, tmp_path)
    broker = two.broker
    victim, beside = two.in_directory(two.a)
    healthy = two.in_directory(two.b)
    assert len(healthy) == 2
    with Peer(broker.port) as waiting:
        parked_fetch(waiting, beside, 20)
        limit_files(broker, 2 << 20)
        assert fill(two, victim) == STORAGE_ERROR
        # A fetch that waited for records from there is answered at once.
        answer = waiting.answer(FetchResponse, BY_NAME).responses[0].partitions[0]
        assert answer.error_code == STORAGE_ERROR

    with Peer(broker.port) as peer:
        for topic in (victim, beside):
            assert two.produce(peer, topic, b"more") == STORAGE_ERROR
            assert peer.fetch(topic, 0, 0).error_code == STORAGE_ERROR
        for topic in healthy:
            assert two.produce(peer, topic, b"more") == ErrorCode.NONE
        for number in range(4, 8):
            peer.create_topic(f"t{number}")
            assert two.produce(peer, f"t{number}", b"new") == ErrorCode.NONE
        answer = peer.request(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
        errors = {each.log_dir: each.error_code for each in answer.results}
        assert errors == {str(two.a): STORAGE_ERROR, str(two.b): ErrorCode.NONE}
    two.check([*healthy, "t4", "t5", "t6", "t7"])
    assert two.in_directory(two.b) == [*healthy, "t4", "t5", "t6", "t7"]
    assert broker.metric(OFFLINE) == 1
    assert f"log directory {two.a} is offline" in broker.output()
    assert "File too large" in broker.output()
    assert broker.traces() == []

    assert broker.stop() == 0
    broker.start()  # without the limit
    two.check(two.written)
    assert broker.metric(OFFLINE) == 0
    with Peer(broker.port) as peer:
        for topic in two.written:
            batch = build_batch([Record(None, b"again")])
            assert peer.produce(topic, 0, batch).base_offset >= len(two.written[topic])


def test_the_last_directory_fails_and_the_broker_logs_it_and_ends(make_broker, tmp_path):
    two = TwoDirectories(make_broker, tmp_path)
    broker = two.broker
    limit_files(broker, 2 << 20)
    assert fill(two, two.in_directory(two.a)[0]) == STORAGE_ERROR
    assert fill(two, two.in_directory(two.b)[0]) == STORAGE_ERROR

    assert broker.wait() == 1
    last = broker.output().splitlines()[-1]
    assert last.startswith("odradek: the last of log.dirs has failed")
    assert last.endswith("File too large (errno 27)")
    assert broker.traces() == []
    broker.start()
    two.check(two.written)


def test_a_removed_directory_goes_offline(make_broker, tmp_path):
    two = TwoDirectories(
        make_broker, tmp_path, **{"replica.high.watermark.checkpoint.interval.ms": 50}
    )  # fmt: skip
    healthy, lost = two.in_directory(two.b), two.in_directory(two.a)
    removed = two.a.rename(tmp_path / "removed")  # at once: the broker creates files meanwhile
    shutil.rmtree(removed)
    with Peer(two.broker.port) as peer:  # into files that are open: only the checkpoint fails
        for topic in lost:
            two.produce(peer, topic, b"more")
    wait_for(lambda: two.broker.metric(OFFLINE) == 1)
    two.check(healthy)
    with Peer(two.broker.port) as peer:
        for topic in healthy:
            assert two.produce(peer, topic, b"more") == ErrorCode.NONE
    assert two.broker.stop() == 0
    assert two.broker.traces() == []


def test_replicas_of_an_unusable_directory_are_not_created_elsewhere(make_broker, tmp_path):
    two = TwoDirectories(make_broker, tmp_path)
    broker = two.broker
    lost, healthy = two.in_directory(two.a), two.in_directory(two.b)
    assert broker.stop() == 0
    away = tmp_path / "away"
    two.a.rename(away)
    two.a.write_text("not a directory")
    broker.start()
    assert broker.metric(OFFLINE) == 1
    two.check(healthy)
    with Peer(broker.port) as peer:
        for topic in lost:
            wait_for(lambda topic=topic: peer.fetch(topic, 0, 0).error_code == STORAGE_ERROR)
            assert two.produce(peer, topic, b"more") == STORAGE_ERROR
    assert two.in_directory(two.b) == healthy

    assert broker.stop() == 0
    two.a.unlink()
    away.rename(two.a)
    broker.start()
    two.check(two.written)


def test_a_broker_without_a_usable_directory_does_not_start(make_broker, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_text("not a directory")
    broker = make_broker({
        "log.dirs": f"{tmp_path}/a,{tmp_path}/b",
        "odradek.store.path": tmp_path / "store.db",
    })  # fmt: skip
    with pytest.raises(BrokerEndedError) as died:
        broker.start()
    assert died.value.exit_code == 1
    assert "none of log.dirs can be used" in died.value.output.splitlines()[-1]
    assert broker.traces() == []


@pytest.fixture
def small_filesystem(tmp_path):
    """A filesystem of 4 MiB; skips where none may be mounted."""
    path = tmp_path / "small"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(path)]
    try:
        done = subprocess.run(mount, capture_output=True, check=False, timeout=10)
    except FileNotFoundError:
        pytest.skip("there is no mount")
    if done.returncode:
        pytest.skip("may not mount")
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True, timeout=10)


def test_a_full_disk_takes_its_directory_offline_until_there_is_room(
    make_broker, tmp_path, small_filesystem
):
    (tmp_path / "a").symlink_to(small_filesystem)
    two = TwoDirectories(make_broker, tmp_path)
    broker = two.broker
    victim, healthy = two.in_directory(two.a)[0], two.in_directory(two.b)
    assert fill(two, victim) == STORAGE_ERROR
    assert "No space left on device" in broker.output()
    two.check(healthy)
    assert broker.stop() == 0
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_filesystem)], check=True)
    broker.start()
    two.check(two.written)
    assert fill(two, victim, batches=100) == ErrorCode.NONE
    assert broker.stop() == 0


def test_a_move_between_directories_is_reported_as_by_kafkas_tool(
    make_broker, tmp_path, capsys, monkeypatch
):
    two = TwoDirectories(make_broker, tmp_path)
    target = two.b if (two.a / "t0-0").exists() else two.a
    plan = {"topic": "t0", "partition": 0, "replicas": [0], "log_dirs": [str(target)]}
    (tmp_path / "moves.json").write_text(json.dumps({"version": 1, "partitions": [plan]}))
    monkeypatch.chdir(tmp_path)
    where = ["--bootstrap-server", f"127.0.0.1:{two.broker.port}"]
    asked = ["--execute", "--reassignment-json-file", "moves.json"]
    assert run_tool("reassign-partitions", [*where, *asked]) == 0
    assert capsys.readouterr().out.endswith(
        f"Successfully started moving log directory to {target} for replica t0-0 with broker 0 \n"
    )
