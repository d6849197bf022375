"""A log on a simulated disk, with a clock that the test moves."""

import heapq
import random

import pytest

from odradek.log.log import Log
from odradek.log.log_config import LogConfig, LogHost
from odradek.log.recovery import Checkpointed, loading
from odradek.model.partition import TopicPartition
from odradek.record.batch import read_header
from odradek.record.control import ControlType, Marker, build_marker
from odradek.record.records import Record, build_batch
from odradek.sim.world.disk import SimulatedDisk

T0 = TopicPartition("t", 0)
DIRECTORY = "/data/t-0"
START_MS = 1_700_000_000_000


class World:
    """One log with its disk, clock and timers."""

    def __init__(self) -> None:
        self.now_ms = START_MS
        self._calls = []
        self._count = 0
        self.disk = SimulatedDisk(random.Random(5), self.call_later, wall_ms=lambda: self.now_ms)
        self.disk.mkdir("/data")
        self.failures = []
        self.cuts = []
        self.config = LogConfig(index_interval_bytes=200)
        self.host = self.new_host()
        self.log: Log

    def new_host(self):
        return LogHost(
            disk=self.disk,
            clock=self,
            call_later=self.call_later,
            failed=self.failures.append,
            cut=self.cuts.append,
        )

    def wall_ms(self):
        return self.now_ms

    def monotonic_ms(self):
        return self.now_ms

    def call_later(self, delay_s, callback):
        self._count += 1
        heapq.heappush(self._calls, (self.now_ms + delay_s * 1000, self._count, callback))

    def pass_time(self, ms=1000):
        """Advance the clocks, and run the timers that are due."""
        until = self.now_ms + ms
        while self._calls and self._calls[0][0] <= until:
            at, _, callback = heapq.heappop(self._calls)
            self.now_ms = max(self.now_ms, int(at))
            callback()
        self.now_ms = until

    def create(self, **options):
        self.config = LogConfig(**{"index_interval_bytes": 200, **options})
        self.log = Log.create(T0, DIRECTORY, self.config, self.host, topic_id=bytes(15) + b"\1")
        return self.log

    def load(self, *, clean=True, **checkpointed):
        """Load the log again from the disk."""
        self.host = self.new_host()
        steps = loading(
            T0,
            DIRECTORY,
            self.config,
            self.host,
            clean=clean,
            checkpointed=Checkpointed(**checkpointed),
        )
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                self.log = stop.value
                return self.log

    def batch(self, *values, timestamp=None, **fields):
        timestamp = self.now_ms if timestamp is None else timestamp
        records = [Record(None, value, timestamp + n) for n, value in enumerate(values or (b"x",))]
        return bytes(build_batch(records, **fields))

    def append(self, *values, epoch=0, **fields):
        return self.append_batch(self.batch(*values, **fields), epoch=epoch)

    def append_batch(self, batch, epoch=0, *, from_client=True):
        header = read_header(batch)
        return self.log.append_as_leader(batch, header, leader_epoch=epoch, from_client=from_client)

    def mark(self, kind: ControlType, producer_id, *, producer_epoch=0, coordinator_epoch=0):
        return self.append_batch(
            build_marker(
                Marker(kind, coordinator_epoch),
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                timestamp=self.now_ms,
            )
        )

    def names(self, suffix=""):
        return [e.name for e in self.disk.list(self.log.directory) if e.name.endswith(suffix)]

    def path(self, name):
        return f"{self.log.directory}/{name}"

    def damage(self, name, position, data):
        self.disk.file(self.path(name)).write(position, (data,))


@pytest.fixture
def world():
    return World()
