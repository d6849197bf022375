"""For any writes to a compacted log, with any cleanings and crashes in between:

* the last record of each key can be read, and a deleted key is not back;
* every record that is read was written at that offset;
* read_committed returns committed records, and no aborted ones;
* the producer state is unchanged;
* cleaning a clean log changes nothing.
"""

import copy
import heapq
import itertools
import random

import pytest
from hypothesis import note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from odradek.log.cleaning.cleaner import cleanable, job_for, make_durable, replace, still_fits
from odradek.log.cleaning.round import CleaningJob, CleaningOutcome, cleaning
from odradek.log.log import Log
from odradek.log.log_config import LogConfig, LogHost
from odradek.log.recovery import Checkpointed, loading
from odradek.model.partition import TopicPartition
from odradek.record.batch import iter_batches, read_header
from odradek.record.compression import Codec
from odradek.record.control import ControlType, Marker, build_marker
from odradek.record.records import Record, build_batch, iter_records
from odradek.sim.world.disk import Crash, SimulatedCrash, SimulatedDisk

T0 = TopicPartition("t", 0)
DIRECTORY = "/data/t-0"
CONFIG = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    segment_bytes=700,
    index_interval_bytes=100,
    file_delete_delay_ms=50,
    delete_retention_ms=1000,
)
KEYS = st.sampled_from([b"a", b"b", b"c", b"d"])
VALUES = st.one_of(st.none(), st.binary(max_size=40))
PRODUCERS = st.sampled_from([7, 8])


class Surroundings:
    """Disk, clock and timers, which can be copied together."""

    def __init__(self):
        self.now_ms = 1_000_000
        self._calls = []
        self._number = 0
        self.rng = random.Random(0)
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

    def load(self, checkpointed, first_dirty_offset):
        steps = loading(T0, DIRECTORY, CONFIG, self.host(), clean=False, checkpointed=checkpointed)
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                log = stop.value
                log.first_dirty_offset = min(first_dirty_offset, log.leo)
                return log


def fail(error):
    pytest.fail(f"the disk was reported as failed: {error}")


def batches_of(log):
    found = []
    offset = log.log_start_offset
    while offset < log.leo:
        read = log.read(offset, 1 << 20, end_offset=log.leo)
        if read is None:
            break
        data = bytes(read.data)
        for position, header in iter_batches(data):
            found.append((header, data[position : position + header.size_bytes]))
            offset = header.next_offset
    return found


def records_of(log):
    """Offset to key, value, timestamp of everything that a read_uncommitted consumer reads."""
    return {
        record.offset: (record.key, record.value, record.timestamp)
        for header, data in batches_of(log)
        if not header.is_control
        for record in iter_records(data)
    }


def committed_of(log, end):
    """What a read_committed consumer reads of the log below `end`."""
    waiting = sorted(log.aborted_transactions(0, log.leo), key=lambda t: t.first_offset)
    aborted = set()
    seen = {}
    for header, data in batches_of(log):
        if header.base_offset >= end:
            break
        while waiting and waiting[0].first_offset <= header.last_offset:
            aborted.add(waiting.pop(0).producer_id)
        if header.is_control:
            aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted):
            for record in iter_records(data):
                seen[record.key] = (record.offset, record.value)
    return {key: found for key, found in seen.items() if found[1] is not None}


def clean(log, wall_ms, map_bytes, operations=None, as_json=True):
    """Run one whole round of cleaning."""
    found = cleanable(log, wall_ms=wall_ms)
    if not found.cleanable_bytes:
        return None
    job = job_for(found, wall_ms=wall_ms, map_bytes=map_bytes, read_bytes=1 << 20)
    job = CleaningJob.from_json(copy.deepcopy(job.to_json()))
    steps = cleaning(job, log.host.disk)
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            outcome = CleaningOutcome.from_json(stop.value.to_json())
            break
    assert still_fits(log, job, outcome)
    for cleaned in outcome.segments:
        assert replace(log, cleaned)
    make_durable(log, outcome, lambda error: None)
    return outcome


class CleanedLogLife(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.around = Surroundings()
        self.log = Log.create(T0, DIRECTORY, CONFIG, self.around.host(), topic_id=bytes(16))
        self.around.disk.flush_now(["/data"])
        self.around.pass_time(100)
        self.sequences = {}
        self.open = {}  # producer -> what its transaction has written
        self.written = {}  # offset -> key, value, timestamp
        self.visible = {}  # key -> offset, value, as a read_committed consumer has it
        self.checkpointed = Checkpointed()
        self.clean_to = 0

    @rule(
        records=st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=4),
        codec=st.sampled_from([Codec.NONE, Codec.GZIP]),
    )
    def append(self, records, codec) -> None:
        self.write(records, codec=codec)

    @rule(
        producer=PRODUCERS,
        transactional=st.booleans(),
        records=st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=3),
    )
    def append_idempotent(self, producer, transactional, records) -> None:
        if producer in self.open:
            transactional = True
        sequence = self.sequences.get(producer, 0)
        first = self.write(
            records,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=transactional,
        )
        self.sequences[producer] = sequence + len(records)
        if transactional:
            mine = self.open.setdefault(producer, [])
            mine += [(key, first + n, value) for n, (key, value) in enumerate(records)]

    @rule(producer=PRODUCERS, kind=st.sampled_from(ControlType))
    def end_transaction(self, producer, kind) -> None:
        if producer not in self.open:
            return
        marker = build_marker(
            Marker(kind, 0), producer_id=producer, producer_epoch=0, timestamp=self.around.now_ms
        )
        self.append_batch(marker)
        records = self.open.pop(producer)
        if kind is ControlType.COMMIT:
            for key, offset, value in records:
                self.see(key, offset, value)

    def write(self, records, transactional=False, **fields):
        built = [
            Record(key, value, self.around.now_ms + n) for n, (key, value) in enumerate(records)
        ]
        batch = build_batch(built, transactional=transactional, **fields)
        first = self.append_batch(batch)
        for n, record in enumerate(built):
            self.written[first + n] = (record.key, record.value, record.timestamp)
            if not transactional:
                self.see(record.key, first + n, record.value)
        return first

    def see(self, key, offset, value):
        if offset > self.visible.get(key, (-1, None))[0]:
            self.visible[key] = (offset, value)

    def append_batch(self, batch):
        appended = self.log.append_as_leader(bytes(batch), read_header(batch), leader_epoch=0)
        assert not appended.duplicate
        self.log.set_high_watermark(self.log.leo)
        return appended.first_offset

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def flush(self) -> None:
        self.log.flush()

    @rule(ms=st.sampled_from([10, 100, 1500]))
    def pass_time(self, ms) -> None:
        self.around.pass_time(ms)

    @rule()
    def checkpoint(self) -> None:
        self.checkpointed = self.checkpointed._replace(
            recovery_point=self.log.recovery_point, high_watermark=self.log.high_watermark
        )
        self.clean_to = self.log.first_dirty_offset

    # ------------------------------------------------------------------------------- cleaning

    @rule(map_bytes=st.sampled_from([1, 400, 1 << 20]))
    def clean(self, map_bytes) -> None:
        before = sorted(self.log.active_producers())
        clean(self.log, self.around.now_ms, map_bytes)
        assert sorted(self.log.active_producers()) == before

    @rule()
    def clean_until_nothing_changes(self) -> None:
        for _ in range(3):  # data of aborted transactions, their markers, what is empty then
            self.clean_from_the_start()
        before = records_of(self.log)
        self.clean_from_the_start()
        assert records_of(self.log) == before

    def clean_from_the_start(self) -> None:
        self.log.first_dirty_offset = 0
        clean(self.log, self.around.now_ms, 1 << 20)

    @rule(mode=st.sampled_from(Crash), operations=st.integers(0, 60), seed=st.integers(0, 1 << 30))
    def crash_while_cleaning(self, mode, operations, seed) -> None:
        self.around.rng.seed(seed)
        self.settle()
        flushed = self.log.leo
        self.around.disk.crash_after(operations)
        try:
            clean(self.log, self.around.now_ms, 1 << 20)
            self.around.pass_time(200)
        except SimulatedCrash:
            note(f"crashes after {operations} operations")
        self.around.crash(mode)
        before = sorted(self.log.active_producers())
        self.log = self.around.load(self.checkpointed, self.clean_to)
        self.log.set_high_watermark(self.log.leo)
        assert self.log.leo == flushed
        assert not [
            e.name
            for e in self.around.disk.list(DIRECTORY)
            if e.name.endswith((".cleaned", ".swap"))
        ]
        assert sorted(self.log.active_producers()) == before

    def settle(self) -> None:
        """Flush everything, and write the checkpoints."""
        self.log.flush()
        self.around.pass_time(200)
        self.checkpoint()

    # ------------------------------------------------------------------------- what must hold

    @invariant()
    def the_last_of_each_key_is_there(self) -> None:
        stable = self.log.last_stable_offset
        expected = {
            key: found
            for key, found in self.visible.items()
            if found[1] is not None and found[0] < stable
        }
        found = committed_of(self.log, stable)
        # A key overwritten above the last stable offset may or may not have its older record.
        for key, (offset, value) in expected.items():
            assert found.get(key) == (offset, value), key
        deleted = {
            key
            for key, (offset, value) in self.visible.items()
            if value is None and offset < stable
        }
        assert not deleted & set(found)

    @invariant()
    def what_is_read_was_written_there(self) -> None:
        for offset, record in records_of(self.log).items():
            assert self.written[offset] == record
        offsets = [(h.base_offset, h.next_offset) for h, _ in batches_of(self.log)]
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(offsets))

    @invariant()
    def indexes_lead_to_the_batches(self) -> None:
        log = self.log
        for header, _ in batches_of(log):
            found = log.read(header.last_offset, 1, end_offset=log.leo)
            assert read_header(found.data) == header
        for segment in log.segments:
            largest = max(
                (
                    h.max_timestamp
                    for h, _ in batches_of(log)
                    if segment.base_offset <= h.base_offset
                    and log.segments_from(h.base_offset)[0] is segment
                ),
                default=-1,
            )
            assert segment.max_timestamp == largest


TestCleanedLogLife = CleanedLogLife.TestCase
TestCleanedLogLife.settings = settings(max_examples=150, stateful_step_count=40)
