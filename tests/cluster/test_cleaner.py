"""The cleaner process of a real broker: it cleans, it ends, and it does not outlive the broker."""

import pathlib
import time
from collections.abc import Callable

from brokers import BrokerProcess
from peers import Peer

from odradek.record.batch import iter_batches
from odradek.record.records import Record, build_batch, iter_records

OPTIONS = {"log.cleaner.backoff.ms": 50, "log.segment.delete.delay.ms": 100}
COMPACTED = {
    "cleanup_policy": "compact",
    "min_cleanable_dirty_ratio": 0.01,
    "segment_bytes": 20_000,
}
KEYS = 20


def wait_for(what: Callable[[], bool], timeout_s: float = 60.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < deadline_s, "it did not come true in time"
        time.sleep(0.02)


def workers_of(pid: int) -> list[int]:
    """The processes that clean for a broker."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            command = (path / "cmdline").read_bytes()
        except (OSError, ValueError):
            continue
        if parent == pid and b"cleaner_worker" in command:
            found.append(int(path.name))
    return found


def is_alive(pid: int) -> bool:
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def write(peer: Peer, first: int, count: int, size: int = 200) -> None:
    for n in range(first, first + count):
        records = [Record(b"key-%d" % (n % KEYS), b"%d." % n + b"x" * size, 1_000 + n)]
        answer = peer.produce("t", 0, bytes(build_batch(records)))
        assert answer.error_code == 0


def read(peer: Peer, end: int) -> dict[int, tuple[bytes | None, bytes | None]]:
    found = {}
    offset = 0
    # A broker that has just started does not have the topic's metadata yet.
    wait_for(lambda: not peer.fetch("t", 0, 0).error_code)
    while offset < end:
        answer = peer.fetch("t", 0, offset)
        assert answer.error_code == 0
        data = bytes(answer.records)
        for position, header in iter_batches(data):
            for record in iter_records(data[position : position + header.size_bytes]):
                found[record.offset] = (record.key, record.value)
            offset = header.next_offset
    return found


def checkpoint(broker: BrokerProcess) -> int:
    path = broker.data / "cleaner-offset-checkpoint"
    lines = path.read_text().split("\n") if path.exists() else []
    return max((int(line.split()[2]) for line in lines if line.startswith("t 0 ")), default=0)


def test_logs_are_cleaned_while_the_broker_serves(tmp_path):
    broker = BrokerProcess(tmp_path, OPTIONS).start()
    try:
        with Peer(broker.port) as peer:
            peer.create_topic("t", **COMPACTED)
            write(peer, 0, 1000)
            wait_for(lambda: checkpoint(broker) > 900)
            found = read(peer, 1000)
        last = {key: offset for offset, (key, _) in sorted(found.items())}
        assert sorted(last.values()) == list(range(980, 1000))
        assert len(found) < 300
        assert all(value.startswith(b"%d." % offset) for offset, (_, value) in found.items())
        wait_for(lambda: not workers_of(broker.pid))  # no process while there is nothing to clean
        files = [path.name for path in (broker.data / "t-0").iterdir()]
        assert not [name for name in files if name.endswith((".cleaned", ".swap"))]
        broker.stop()
        broker.start()
        with Peer(broker.port) as peer:
            peer.wait_until_led("t")
            again = read(peer, 1000)
        # Another cleaning may have removed more values that are not the last of their keys.
        assert again.items() <= found.items()
        assert {key: offset for offset, (key, _) in sorted(again.items())} == last
    finally:
        broker.kill()


def test_the_cleaner_ends_with_its_broker_and_the_next_one_finishes(tmp_path):
    # So slow that it is cleaning when the broker is killed.
    broker = BrokerProcess(tmp_path, {**OPTIONS, "log.cleaner.io.max.bytes.per.second": 20_000})
    broker.start()
    try:
        with Peer(broker.port) as peer:
            peer.create_topic("t", **COMPACTED)
            write(peer, 0, 400)
        cleaned = broker.data / "t-0" / f"{0:020d}.log.cleaned"
        wait_for(lambda: bool(workers_of(broker.pid)) and cleaned.exists(), 60)
        workers = workers_of(broker.pid)
        broker.kill()
        wait_for(lambda: not any(map(is_alive, workers)), 10)
        broker.options["log.cleaner.io.max.bytes.per.second"] = "1e12"
        broker.start()
        wait_for(lambda: checkpoint(broker) > 300)
        with Peer(broker.port) as peer:
            peer.wait_until_led("t")
            found = read(peer, 400)
        assert set(range(380, 400)) <= set(found)
        assert len(found) < 200
    finally:
        broker.kill()
