"""For any operations on a log, with process crashes and power failures at any time:

* after a crash of the process all appended batches are there;
* after a power failure all flushed batches are there, and a prefix of the others;
* recovery gives the same log, also if it is itself interrupted by crashes;
* indexes, leader epochs, producer state and aborted transactions match the batches;
* after a clean shutdown neither loses anything.
"""

import copy
import heapq
import random

import pytest
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from odradek.log.log import Log
from odradek.log.log_config import LogConfig, LogHost
from odradek.log.producer_replay import note_producer
from odradek.log.producer_state import ProducerState
from odradek.log.recovery import Checkpointed, loading
from odradek.model.partition import TopicPartition
from odradek.record.batch import iter_batches, read_header
from odradek.record.control import ControlType, Marker, build_marker
from odradek.record.records import Record, build_batch
from odradek.sim.world.disk import Crash, SimulatedCrash, SimulatedDisk

T0 = TopicPartition("t", 0)
DIRECTORY = "/data/t-0"
CONFIG = LogConfig(
    segment_bytes=2000, index_interval_bytes=150, retention_bytes=5000, file_delete_delay_ms=50
)
PRODUCERS = st.sampled_from([7, 8])


class Surroundings:
    """Disk, clock and timers, which can be copied together."""

    def __init__(self, seed):
        self.now_ms = 1_000_000
        self._calls = []
        self._number = 0  # number of timers; itertools.count cannot be copied
        self.rng = random.Random(seed)
        self.disk = SimulatedDisk(self.rng, self.call_later, wall_ms=self.wall_ms)
        self.disk.mkdir("/data")
        self.disk.flush_now(["/"])

    def wall_ms(self):
        return self.now_ms

    monotonic_ms = wall_ms

    def call_later(self, delay_s, call):
        self._number += 1
        heapq.heappush(self._calls, (self.now_ms + delay_s * 1000, self._number, call))

    def pass_time(self, ms):
        until = self.now_ms + ms
        while self._calls and self._calls[0][0] <= until:
            at, _, call = heapq.heappop(self._calls)
            self.now_ms = max(self.now_ms, int(at))
            call()
        self.now_ms = until

    def crash(self, mode):
        self._calls.clear()
        self.disk.crash(mode)

    def host(self):
        return LogHost(disk=self.disk, clock=self, call_later=self.call_later, failed=fail)

    def load(self, *, clean, checkpointed):
        steps = loading(T0, DIRECTORY, CONFIG, self.host(), clean=clean, checkpointed=checkpointed)
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                return stop.value


def fail(error):
    pytest.fail(f"the disk was reported as failed: {error}")


def batches_of(log):
    """Every batch that can be read."""
    found = []
    offset = log.log_start_offset
    while offset < log.leo:
        data = bytes(log.read(offset, 1 << 20, end_offset=log.leo).data)
        for position, header in iter_batches(data):
            found.append((header, data[position : position + header.size_bytes]))
            offset = header.next_offset
    return found


class LogLife(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.around = Surroundings(0)
        self.log = Log.create(T0, DIRECTORY, CONFIG, self.around.host(), topic_id=bytes(16))
        self.around.disk.flush_now(["/data"])
        self.around.pass_time(100)
        self.epoch = 0
        self.sequences = {}
        self.batches = []  # what the log has, as (base offset, next offset, bytes)
        self.before = []  # batches truncated since the last flush
        self.checkpointed = Checkpointed()

    # ------------------------------------------------------------------------- what happens

    @rule(seed=st.integers(0, 1 << 32))
    def reseed(self, seed: int) -> None:
        self.around.rng.seed(seed)

    @rule(sizes=st.lists(st.integers(0, 190), min_size=1, max_size=3))
    def append(self, sizes: list[int]) -> None:
        self.write(build_batch([Record(None, b"%d" % n * n, 5) for n in sizes]))

    @rule(producer=PRODUCERS, transactional=st.booleans())
    def append_idempotent(self, producer: int, transactional: bool) -> None:
        if self.log.producers.has_open_transaction(producer, 0):
            transactional = True
        sequence = self.sequences.get(producer, 0)
        self.write(
            build_batch(
                [Record(b"k", b"v" * 40, 9), Record(None, None, 9)],
                producer_id=producer,
                producer_epoch=0,
                base_sequence=sequence,
                transactional=transactional,
            )
        )
        self.sequences[producer] = sequence + 2

    @rule(producer=PRODUCERS, kind=st.sampled_from(ControlType))
    def end_transaction(self, producer: int, kind: ControlType) -> None:
        self.write(
            build_marker(Marker(kind, 0), producer_id=producer, producer_epoch=0, timestamp=9)
        )

    def write(self, batch: bytes) -> None:
        appended = self.log.append_as_leader(batch, read_header(batch), leader_epoch=self.epoch)
        assert not appended.duplicate
        header, written = batches_of(self.log)[-1]
        assert header.base_offset == appended.first_offset
        self.batches.append((header.base_offset, header.next_offset, written))

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def begin_epoch(self) -> None:
        self.epoch += 1

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        kept = data.draw(st.integers(0, len(self.batches) - 1))
        self.log.truncate_to(self.batches[kept][0])
        self.before += self.batches[kept:]
        del self.batches[kept:]
        self.checkpointed = Checkpointed(
            min(self.checkpointed.recovery_point, self.log.recovery_point),
            min(self.checkpointed.log_start_offset, self.log.log_start_offset),
        )
        self.remember_sequences()

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        self.log.set_high_watermark(self.log.leo)
        start = self.log.log_start_offset
        self.log.advance_log_start(start + int(share * (self.log.leo - start)))
        self.log.delete_old_segments(self.around.now_ms)
        self.checkpointed = self.checkpointed._replace(log_start_offset=self.log.log_start_offset)
        self.batches = [b for b in self.batches if b[1] > self.log.log_start_offset]

    @rule()
    def flush(self) -> None:
        self.log.flush()

    @rule()
    def settle(self) -> None:
        self.log.settle(lambda _: None)

    @rule(ms=st.integers(1, 100))
    def pass_time(self, ms: int) -> None:
        self.around.pass_time(ms)

    @rule()
    def checkpoint(self) -> None:
        self.checkpointed = self.checkpointed._replace(recovery_point=self.log.recovery_point)

    # ------------------------------------------------------------------------------- crashes

    @rule(mode=st.sampled_from(Crash), interruptions=st.lists(st.integers(0, 40), max_size=3))
    def crash(self, mode: Crash, interruptions: list[int]) -> None:
        flushed = self.log.recovery_point
        self.around.crash(mode)
        undisturbed = copy.deepcopy(self.around)
        for operations in interruptions:
            self.around.disk.crash_after(operations)
            try:
                self.around.load(clean=False, checkpointed=self.checkpointed)
            except SimulatedCrash:
                note(f"recovery crashes after {operations} operations")
            self.around.crash(mode)
        self.log = self.around.load(clean=False, checkpointed=self.checkpointed)
        reference = undisturbed.load(clean=False, checkpointed=self.checkpointed)
        assert batches_of(self.log) == batches_of(reference)
        assert self.log.leo == reference.leo
        if mode is Crash.PROCESS:
            self.check_that_nothing_is_lost()
        else:
            self.check_what_the_power_left(flushed)
        self.remember()

    def check_that_nothing_is_lost(self) -> None:
        assert self.log.leo == (self.batches[-1][1] if self.batches else self.log.leo)
        assert [data for _, data in batches_of(self.log)] == [b[2] for b in self.batches]

    def check_what_the_power_left(self, flushed: int) -> None:
        found = batches_of(self.log)
        expected = {first: data for first, _, data in self.batches}
        possible = {data for _, _, data in [*self.batches, *self.before]}
        for header, data in found:
            assert data in possible
            assert header.next_offset > flushed or data == expected[header.base_offset]
        assert self.log.leo >= flushed
        offsets = [header.base_offset for header, _ in found] + [self.log.leo]
        assert offsets[1:] == [header.next_offset for header, _ in found], "no holes"

    def remember(self) -> None:
        self.batches = [(h.base_offset, h.next_offset, data) for h, data in batches_of(self.log)]
        self.remember_sequences()
        self.epoch = max(self.epoch, self.log.epochs.latest_epoch)

    def remember_sequences(self) -> None:
        self.sequences = {p.producer_id: p.last_sequence + 1 for p in self.log.active_producers()}

    @rule(mode=st.sampled_from(Crash))
    def stop_cleanly_and_start(self, mode: Crash) -> None:
        self.log.close(lambda _: None)
        self.around.pass_time(200)
        self.checkpointed = self.checkpointed._replace(recovery_point=self.log.recovery_point)
        # An epoch without a batch is dropped, as in Kafka: the next leader has another one.
        epochs = [start for start in self.log.epochs.starts() if start[1] < self.log.leo]
        before = batches_of(self.log), self.log.leo, epochs
        producers = sorted(self.log.active_producers())
        self.around.crash(mode)
        self.log = self.around.load(clean=True, checkpointed=self.checkpointed)
        self.before = []

        assert (batches_of(self.log), self.log.leo, self.log.epochs.starts()) == before
        assert sorted(self.log.active_producers()) == producers

    # ------------------------------------------------------------------------- what must hold

    @invariant()
    def what_leads_into_the_log_says_what_is_in_it(self) -> None:
        log = self.log
        log.validate()
        found = batches_of(log)
        assert [(h.base_offset, h.next_offset, data) for h, data in found] == self.batches
        for header, _ in found:
            for offset in (max(header.base_offset, log.log_start_offset), header.last_offset):
                assert read_header(log.read(offset, 1, end_offset=log.leo).data) == header
            assert log.epochs.epoch_at(header.last_offset) == header.leader_epoch
            reached = log.offset_for_timestamp(header.max_timestamp)
            assert reached.timestamp >= header.max_timestamp
        answer = log.aborted_transactions(log.log_start_offset, log.leo)
        assert {(t.producer_id, t.last_offset) for t in answer} >= self.aborted_transactions()

    def aborted_transactions(self) -> set[tuple[int, int]]:
        """Producer id and marker offset of transactions with data and marker in the log."""
        producers, found = ProducerState(), _Collected()
        for first, _, data in self.batches:
            header = read_header(data)
            if header.producer_id >= 0:
                note_producer(producers, found, data, header, first)
        return found.aborted


class _Collected:
    def __init__(self) -> None:
        self.aborted = set()

    def add_aborted(self, transaction):
        self.aborted.add((transaction.producer_id, transaction.last_offset))


TestLogLife = LogLife.TestCase


class _Third:
    """A random generator with a fixed result."""

    def draw(self, _strategy):
        return 3


@pytest.mark.parametrize("seed", range(20))
def test_truncated_batches_of_a_segment_before_a_roll_are_not_back(seed):
    life = LogLife()
    life.around.rng.seed(seed)
    life.append([0])
    life.append([0, 0])
    life.append([0])
    life.append([112, 74])
    life.flush()
    life.around.pass_time(200)
    life.checkpoint()
    life.truncate(_Third())
    life.roll()
    life.crash(Crash.POWER, [])
    life.what_leads_into_the_log_says_what_is_in_it()
