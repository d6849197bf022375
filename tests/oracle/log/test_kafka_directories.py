"""Compares a partition's directory that Apache Kafka 3.9.2 wrote with ours, byte for byte.

`kafka_3_9.zip` has it twice: as kill -9 left it (the active segment's indexes preallocated), and
as Kafka left it after recovering that and stopping cleanly. Three transactional producers (of
them aborts, fences and one transaction that stays open), an idempotent one, three codecs,
timestamps that jump. The topic: segment.bytes=5000, index.interval.bytes=400,
segment.index.bytes=600; the rest default, so that segment.ms rolls too.
"""

import pathlib
import random
import zipfile

import pytest

from odradek.log.log import Log
from odradek.log.log_config import LogConfig, LogHost
from odradek.log.recovery import loading
from odradek.model.partition import TopicPartition
from odradek.record.batch import iter_batches, read_header
from odradek.sim.world.disk import SimulatedDisk

RECORDED = pathlib.Path(__file__).parent / "kafka_3_9.zip"
DIRECTORY = "/data/rec-0"
CONFIG = LogConfig(segment_bytes=5000, index_interval_bytes=400, segment_index_bytes=600)
NOW_MS = 1_795_256_030_000


class Stage:
    """A log on a disk with Kafka's files."""

    def __init__(self, recorded):
        self._calls = []
        self.disk = SimulatedDisk(random.Random(1), lambda _, call: self._calls.append(call))
        self.disk.mkdir(DIRECTORY)
        self.put(recorded)
        self.failures = []
        self.host = LogHost(
            disk=self.disk,
            clock=self,
            call_later=lambda _, call: self._calls.append(call),
            failed=self.failures.append,
        )

    def wall_ms(self):
        return NOW_MS

    monotonic_ms = wall_ms

    def put(self, files):
        for name, data in files.items():
            self.disk.create(f"{DIRECTORY}/{name}").write(0, (data,))

    def settle(self):
        while self._calls:
            self._calls.pop(0)()
        assert self.failures == []

    def load(self, *, clean):
        steps = loading(TopicPartition("rec", 0), DIRECTORY, CONFIG, self.host, clean=clean)
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                self.settle()
                return stop.value

    def close(self, log):
        log.close(lambda _: None)
        self.settle()

    def files(self):
        return {
            entry.name: self.disk.read_file(f"{DIRECTORY}/{entry.name}")
            for entry in self.disk.list(DIRECTORY)
        }


def recorded(state):
    with zipfile.ZipFile(RECORDED) as archive:
        return {
            name.removeprefix(f"{state}/"): archive.read(name)
            for name in archive.namelist()
            if name.startswith(f"{state}/")
        }


def comparable(files):
    """The files; producers of snapshots sorted, because Kafka writes them in hash order."""
    found = {}
    for name, data in files.items():
        found[name] = data
        if name.endswith(".snapshot"):
            producers = [data[at : at + 46] for at in range(10, len(data), 46)]
            found[name] = data[:2] + data[6:10] + b"".join(sorted(producers))
    return found


def differing(ours, theirs):
    ours, theirs = comparable(ours), comparable(theirs)
    return sorted(
        name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)
    )


def test_recovery_of_kafkas_files_gives_the_files_of_kafkas_recovery():
    stage = Stage(recorded("crashed"))
    stage.close(stage.load(clean=False))

    assert differing(stage.files(), recorded("recovered")) == []


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex"])
def test_missing_files_are_rebuilt_as_kafka_had_them(suffix):
    theirs = recorded("recovered")
    stage = Stage({name: data for name, data in theirs.items() if not name.endswith(suffix)})
    stage.close(stage.load(clean=False))

    assert differing(stage.files(), theirs) == []


def test_a_clean_start_changes_nothing():
    theirs = recorded("recovered")
    stage = Stage(theirs)

    assert stage.load(clean=True).is_as_loaded
    assert stage.files() == theirs


def test_appends_batch_by_batch_write_the_files_that_kafka_wrote():
    theirs = recorded("recovered")
    stage = Stage({})
    log = Log.create(TopicPartition("rec", 0), DIRECTORY, CONFIG, stage.host)
    stage.put({"partition.metadata": theirs["partition.metadata"]})
    for name in sorted(theirs):
        if name.endswith(".log"):
            data = memoryview(theirs[name])
            for position, header in iter_batches(data):
                batch = data[position : position + header.size_bytes]
                log.append_as_follower(batch)
    stage.close(log)

    assert differing(stage.files(), theirs) == []


def test_appends_as_leader_write_the_same_log():
    theirs = recorded("recovered")
    stage = Stage({})
    log = Log.create(TopicPartition("rec", 0), DIRECTORY, CONFIG, stage.host)
    stage.put({"partition.metadata": theirs["partition.metadata"]})
    for name in sorted(theirs):
        if name.endswith(".log"):
            data = memoryview(theirs[name])
            for position, header in iter_batches(data):
                batch = bytearray(data[position : position + header.size_bytes])
                batch[:8], batch[12:16] = bytes(8), bytes(4)
                appended = log.append_as_leader(
                    batch,
                    read_header(batch),
                    leader_epoch=header.leader_epoch,
                )
                assert appended.first_offset == header.base_offset
    stage.close(log)

    assert differing(stage.files(), theirs) == []


def test_everything_in_the_log_can_be_read():
    stage = Stage(recorded("recovered"))
    log = stage.load(clean=True)
    offset = 0
    while offset < log.leo:
        found = log.read(offset, 1, end_offset=log.leo)
        header = read_header(found.data)
        assert header.base_offset <= offset < header.next_offset
        reached = log.offset_for_timestamp(header.max_timestamp)
        assert reached.timestamp >= header.max_timestamp
        assert reached.offset < header.next_offset
        offset = header.next_offset
    aborted = log.aborted_transactions(0, log.leo)
    assert len(aborted) == 12
    assert log.last_stable_offset == 0
    log.set_high_watermark(log.leo)
    assert log.last_stable_offset == log.leo - 1, "one transaction is open"
