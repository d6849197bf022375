"""A log of Apache Kafka whose message format was lowered and raised: every record is kept.

Kafka before 3.0 (and later ones with an older `inter.broker.protocol.version`) writes each batch in
the format that `message.format.version` then says: v0, v1 and v2 may stand in one segment in any
order, compressed or not. The records, the offsets by time, the producer state and the aborted
transactions have to be those of the same records written in format v2 only.
"""

import heapq
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.log.log import Log
from odradek.log.log_config import LogConfig, LogHost
from odradek.log.recovery import Checkpointed, loading
from odradek.model.partition import TopicPartition
from odradek.record.batch import TimestampType, read_header
from odradek.record.compression import Codec, compress
from odradek.record.control import ControlType, Marker, build_marker
from odradek.record.message_set import OldMessage, append_message, write_messages
from odradek.record.records import Record, build_batch, iter_records
from odradek.sim.world.disk import SimulatedDisk

T0 = TopicPartition("t", 0)
CONFIG = LogConfig(index_interval_bytes=150, segment_bytes=1 << 20)
TIME_MS = 1_500_000_000_000
OLD_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]


class Around:
    """Disk, clock and timers."""

    def __init__(self) -> None:
        self._calls = []
        self._number = 0
        self.now_ms = TIME_MS + 10_000
        self.disk = SimulatedDisk(random.Random(1), self.call_later, wall_ms=self.wall_ms)
        self.failures = []

    def wall_ms(self):
        return self.now_ms

    monotonic_ms = wall_ms

    def call_later(self, delay_s, call):
        self._number += 1
        heapq.heappush(self._calls, (delay_s, self._number, call))

    def settle(self):
        while self._calls:
            heapq.heappop(self._calls)[2]()
        assert self.failures == []

    def host(self):
        return LogHost(
            disk=self.disk, clock=self, call_later=self.call_later, failed=self.failures.append
        )

    def load(self, directory, *, clean, checkpointed):
        steps = loading(T0, directory, CONFIG, self.host(), clean=clean, checkpointed=checkpointed)
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                self.settle()
                return stop.value


@st.composite
def appends(draw):
    """One append: its format and codec, and what is in it."""
    magic = draw(st.sampled_from([0, 1, 2]))
    codec = draw(st.sampled_from(OLD_CODECS + ([Codec.ZSTD] if magic == 2 else [])))
    values = draw(
        st.lists(
            st.tuples(
                st.none() | st.binary(max_size=4),
                st.none() | st.binary(max_size=80),
                st.integers(-5, 1000),
            ),
            min_size=1,
            max_size=4,
        )
    )
    producer = draw(st.sampled_from([None, None, 7, 11, 12])) if magic == 2 else None
    ends = draw(st.sampled_from([None, ControlType.ABORT, ControlType.COMMIT]))
    has_append_time = magic > 0 and draw(st.booleans())
    return magic, codec, values, producer, ends, has_append_time


class Written:
    """The bytes of a log as Kafka wrote them, and the same records in format v2 only."""

    def __init__(self, segments, gaps) -> None:
        self.records = []
        self.segments = {}
        self.of_format_2 = {}
        self.leo = 0
        self._sequences = {}
        self._open = set()
        for appended in segments:
            base = self.leo
            self.segments[base] = b""
            self.of_format_2[base] = []
            for append in appended:
                self.leo += next(gaps)
                self._append(base, append)

    def _append(self, base, append):
        magic, codec, values, producer, ends, has_append_time = append
        append_time = TIME_MS + 2000 if has_append_time else None
        records = [
            Record(key, value, TIME_MS + at, (), self.leo + number)
            for number, (key, value, at) in enumerate(values)
        ]
        fields = {}
        if producer is not None:
            fields = {"producer_id": producer, "producer_epoch": 0}
            fields["base_sequence"] = self._sequences.get(producer, 0)
            self._sequences[producer] = fields["base_sequence"] + len(records)
        if producer is not None and producer > 10:
            fields["transactional"] = True
            self._open.add(producer)
        batch = build_batch(
            records,
            base_offset=self.leo,
            codec=codec,
            timestamp_type=TimestampType(has_append_time),
            append_time_ms=append_time or 0,
            **fields,
        )
        if magic == 0:
            kept = [record._replace(timestamp=-1) for record in records]
        elif has_append_time:
            kept = [record._replace(timestamp=append_time) for record in records]
        else:
            kept = records
        self.records += kept
        data = batch if magic == 2 else _messages(records, magic, codec, append_time)
        if magic < 2:
            batch = build_batch(
                kept,
                base_offset=self.leo,
                timestamp_type=TimestampType(has_append_time),
                append_time_ms=append_time or 0,
            )
        self.leo += len(records)
        self._add(base, data, batch)
        if ends is not None and producer in self._open:
            self._open.remove(producer)
            marker = bytearray(
                build_marker(
                    Marker(ends, 0), producer_id=producer, producer_epoch=0, timestamp=TIME_MS
                )
            )
            marker[:8] = self.leo.to_bytes(8, "big")
            self._add(base, bytes(marker), bytes(marker))
            self.leo += 1

    def _add(self, base, data, batch):
        self.segments[base] += bytes(data)
        self.of_format_2[base].append(bytes(batch))


def _messages(records, magic, codec, append_time):
    if append_time is None or not codec:
        return write_messages(records, magic=magic, codec=codec, append_time_ms=append_time)
    # Kafka sets LogAppendTime in the wrapper only.
    first = records[0].offset
    inner = write_messages([r._replace(offset=r.offset - first) for r in records], magic=magic)
    out = bytearray()
    append_message(
        out,
        OldMessage(
            records[-1].offset, magic, codec | 8, append_time, None, compress(codec, bytes(inner))
        ),
    )
    return out


def state_of(log):
    return {
        "offsets": (log.log_start_offset, log.leo, log.last_stable_offset),
        "producers": sorted(log.active_producers()),
        "aborted": sorted(log.aborted_transactions(0, log.leo)),
    }


def records_of(log):
    found = []
    for segment in log.segments:
        for position, header in segment.walk(0):
            data = bytes(segment.read(position, header.size_bytes, wait=True))
            assert header.magic == 2
            if not header.is_control:
                found += iter_records(data)
    return [record._replace(headers=()) for record in found]


def reference(around, written):
    """The same log in format v2, written by this code."""
    log = Log.create(T0, "/data/r-0", CONFIG, around.host())
    for base, batches in written.of_format_2.items():
        if base:
            log.roll(base)
        for batch in batches:
            log.append_as_follower(memoryview(batch))
    log.set_high_watermark(log.leo)
    around.settle()
    return log


def put(around, written, expected, *, clean):
    """What Kafka leaves behind; after a clean stop with snapshot and transaction index."""
    disk = around.disk
    disk.mkdir("/data/t-0")
    for base, data in written.segments.items():
        disk.create(f"/data/t-0/{base:020d}.log").write(0, (data,))
        entries = expected.segments_from(base)[0].aborted()
        if clean and entries:
            file = disk.create(f"/data/t-0/{base:020d}.txnindex")
            file.write(0, tuple(entry.encode() for entry in entries))


@settings(max_examples=150, deadline=None)
@given(
    segments=st.lists(st.lists(appends(), min_size=1, max_size=6), min_size=1, max_size=3),
    gaps=st.lists(st.integers(0, 2), min_size=20, max_size=20),
    clean=st.booleans(),
    known=st.booleans(),
)
def test_every_record_and_all_state_is_that_of_a_log_of_format_2(segments, gaps, clean, known):
    around = Around()
    around.disk.mkdir("/data")
    written = Written(segments, iter(gaps))  # gaps as of compaction
    expected = reference(around, written)
    put(around, written, expected, clean=clean)
    # Up to there an earlier start has found format v2 only.
    first_old = next((r.offset for r, old in _with_format(written, segments) if old), written.leo)
    log = around.load(
        "/data/t-0",
        clean=clean,
        checkpointed=Checkpointed(
            high_watermark=written.leo, format_2_below=first_old if known else 0
        ),
    )

    assert records_of(log) == written.records
    assert state_of(log) == state_of(expected)
    for record in written.records:
        segment = log.segments_from(record.offset)[0]
        header = read_header(segment.read(segment.find(record.offset, wait=True), 61, wait=True))
        assert header.base_offset <= record.offset <= header.last_offset
    for at in range(-6, 2002, 167):
        found = next((r for r in written.records if r.timestamp >= TIME_MS + at), None)
        stamped = log.offset_for_timestamp(TIME_MS + at)
        assert (found and found.offset) == (stamped and stamped.offset)
    log.validate()
    again = around.load("/data/t-0", clean=False, checkpointed=Checkpointed())
    assert records_of(again) == written.records


def _with_format(written, segments):
    """Each record, and whether it was written in format v0 or v1."""
    formats = [append[0] < 2 for appended in segments for append in appended for _ in append[2]]
    return zip(written.records, formats, strict=True)
