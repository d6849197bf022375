"""Every disk operation of every change of a log fails once: what is left can be relied on.

A change is played on a log of several segments, with the n-th operation of the disk failing, for
each n and several errors. Then either the directory is offline, or the log is as before the change
or as after it, and the change can be made again. In both cases what was flushed before is there
after a power failure.
"""

import errno
from functools import cache
from itertools import count
from struct import pack
from zlib import crc32

import pytest

from odradek.log.cleaning.cleaner import cleanable, job_for, make_durable, replace
from odradek.log.cleaning.round import cleaning
from odradek.log.disk import StorageError
from odradek.log.log_config import LogConfig
from odradek.log.logs import Logs
from odradek.log.repair.content import check_content
from odradek.model.partition import TopicPartition
from odradek.record.batch import iter_batches, read_header
from odradek.record.control import ControlType, Marker, build_marker
from odradek.record.records import Record, build_batch
from odradek.sim.world.disk import Crash, DiskFault

T0 = TopicPartition("t", 0)
U0 = TopicPartition("u", 0)
TOPIC_ID = bytes(15) + b"\1"
CONFIG = LogConfig(
    segment_bytes=600,
    index_interval_bytes=1,
    retention_bytes=800,
    file_delete_delay_ms=50,
    cleanup_policy=frozenset({"compact", "delete"}),
    min_cleanable_dirty_ratio=0.0,
)
ERRORS = (errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EIO, errno.EINTR)


class Life:
    """A broker's logs on two directories of a simulated disk."""

    def __init__(self, world):
        self.world = world
        self.disk = world.disk
        self.disk.flush_now(["/"])
        self.start()
        log = self.logs.create(T0, TOPIC_ID, CONFIG, directory="/a")
        for number in range(4):
            self.append(b"k%d" % (number % 2), b"v" * 100)
        self.append(b"k1", b"t1", producer_id=7, base_sequence=0, transactional=True)
        self.mark(ControlType.ABORT, 7)
        self.append(b"k2", b"i1", producer_id=9, base_sequence=0)
        log.roll()
        self.append(b"k3", b"t2", producer_id=7, base_sequence=1, transactional=True)
        self.append(b"k4", b"w" * 90)
        log.set_high_watermark(log.leo)
        log.flush()
        world.pass_time(200)
        self.logs.checkpoint_recovery_points()
        self.logs.checkpoint_high_watermarks()
        world.pass_time(200)
        self.flushed = batches_of(log)
        self.append(b"k5", b"not flushed")
        log.set_high_watermark(log.leo)

    @property
    def log(self):
        return self.logs.get(T0)

    def start(self):
        self.lost = []
        self.host = self.world.new_host()
        self.logs = Logs(
            ("/a", "/b"),
            self.host,
            config_of=lambda _: CONFIG,
            lost=lambda path, _, error: self.lost.append((path, error)),
        )
        self.host.failed = self.logs.failed
        for _ in self.logs.opening(broker_id=1, cluster_id="c"):
            pass

    def append(self, key, value, epoch=0, **fields):
        fields = {"producer_epoch": 0, **fields} if "producer_id" in fields else fields
        batch = build_batch([Record(key, value, self.world.now_ms)], **fields)
        return self.log.append_as_leader(memoryview(batch), read_header(batch), epoch)

    def mark(self, kind, producer_id):
        batch = marker(kind, producer_id, self.world.now_ms)
        return self.log.append_as_leader(memoryview(batch), read_header(batch), 0)


def marker(kind, producer_id, timestamp, **fields):
    return build_marker(
        Marker(kind, 0), producer_id=producer_id, producer_epoch=0, timestamp=timestamp, **fields
    )


def batches_of(log):
    """The batches from the log start offset on, by offset."""
    found, offset = {}, log.log_start_offset
    while offset < log.leo:
        part = log.read(offset, 1 << 20, end_offset=log.leo, wait=True)
        if part is None:
            break
        data = bytes(part.data)
        for position, header in iter_batches(data):
            found[header.base_offset] = data[position : position + header.size_bytes]
            offset = header.next_offset
    return found


def message(offset, key, value):
    """One message of format v1."""
    body = pack(">bbqi", 1, 0, 1_000, len(key)) + key + pack(">i", len(value)) + value
    return pack(">qiI", offset, len(body) + 4, crc32(body)) + body


# ------------------------------------------------------------------------------- the changes


def append(life):
    life.append(b"k6", b"x")


def append_in_another_epoch(life):
    life.append(b"k6", b"x", epoch=3)


def append_that_rolls(life):
    life.append(b"k6", b"x" * 400)


def append_after_a_rest(life):
    life.log.rest()
    life.append(b"k6", b"x")


def abort(life):
    life.mark(ControlType.ABORT, 7)


def commit(life):
    life.mark(ControlType.COMMIT, 7)


def follow(life):
    log, now_ms = life.log, life.world.now_ms
    transactional = {"producer_id": 8, "producer_epoch": 0, "transactional": True}
    at = {"leader_epoch": 1}
    parts = [
        build_batch([Record(b"a", b"x" * 300, now_ms)], base_offset=log.leo, **at),
        build_batch(
            [Record(b"b", b"y", now_ms)],
            base_offset=log.leo + 1,
            base_sequence=0,
            **transactional,
            **at,
        ),
        marker(ControlType.ABORT, 8, now_ms, base_offset=log.leo + 2, **at),
        build_batch([Record(b"c", b"z" * 400, now_ms)], base_offset=log.leo + 3, **at),
    ]
    log.append_as_follower(memoryview(b"".join(map(bytes, parts))))


def roll(life):
    life.log.roll()


def flush(life):
    life.log.flush()


def flush_after_a_roll(life):
    life.log.roll()
    life.append(b"k6", b"x")
    life.log.flush()


def settle(life):
    life.log.settle(lambda _: None)


def truncate_the_end(life):
    life.log.truncate_to(life.log.leo - 1)


def truncate_segments(life):
    life.log.truncate_to(3)


def truncate_and_append(life):
    life.log.truncate_to(7)
    life.append(b"k7", b"other", epoch=4)


def truncate_fully(life):
    life.log.truncate_fully_and_start_at(50)


def delete_records(life):
    life.log.advance_log_start(5)
    for _ in life.logs.applying_retention():
        pass


def clean(life):
    log = life.log
    log.roll()
    log.set_high_watermark(log.leo)
    found = cleanable(log, wall_ms=life.world.now_ms)
    job = job_for(found, wall_ms=life.world.now_ms, map_bytes=1 << 16, read_bytes=1 << 12)
    steps = cleaning(job, life.disk)
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            outcome = stop.value
            break
    for cleaned in outcome.segments:
        replace(log, cleaned)
    make_durable(log, outcome, lambda error: error and life.logs.failed(error))


def move(life):
    log = life.log
    copy = life.logs.future(T0)
    if copy is None:
        copy = life.logs.create_future(T0, "/b")
    while copy.leo < log.leo:
        data = log.read(copy.leo, 1 << 20, end_offset=log.leo, wait=True).data
        copy.append_as_follower(memoryview(data))
    copy.flush()
    life.world.pass_time(100)
    if life.logs.get(T0) and life.logs.future(T0):
        life.logs.swap_in(T0)


def create(life):
    if life.logs.get(U0) is None:
        life.logs.create(U0, TOPIC_ID, CONFIG, directory="/a")


def delete(life):
    life.logs.delete(T0)
    life.logs.flush_deletions(lambda _: None)


def checkpoint(life):
    life.logs.checkpoint_recovery_points()
    life.logs.checkpoint_log_start_offsets()
    life.logs.checkpoint_high_watermarks()
    life.logs.checkpoint_first_dirty_offsets()


def close(life):
    life.logs.close(lambda: None)


CHANGES = [
    append, append_in_another_epoch, append_that_rolls, append_after_a_rest, abort, commit, follow,
    roll, flush, flush_after_a_roll, settle, truncate_the_end, truncate_segments,
    truncate_and_append, truncate_fully, delete_records, clean, move, create, delete, checkpoint,
    close,
]  # fmt: skip
# These may remove what was flushed before.
REMOVE = {truncate_segments, truncate_and_append, truncate_fully, delete_records, clean, delete}


@cache
def expected(make_world, change):
    """The batches before the change and after it, without any failure."""
    life = Life(make_world())
    before = batches_of(life.log)
    change(life)
    life.world.pass_time(500)
    return before, batches_of(life.log) if life.log else {}


def play(life, change, fault):
    """Make the change. Returns its error."""
    life.disk.faults.append(fault)
    try:
        change(life)
    except StorageError as error:
        life.logs.failed(error)
        failed = error
    else:
        failed = None
    life.world.pass_time(500)
    life.disk.faults.clear()
    return failed


def check(life, change, failed, make_world):
    """The log is offline, or as before the change, or as after it."""
    before, after = expected(make_world, change)
    log = life.log
    is_gone = bool(life.lost) or change is close
    assert is_gone or log is not None or change is delete
    if is_gone or log is None:
        return
    log.validate()
    check_content(log)
    found = batches_of(log)
    kept = {offset: data for offset, data in before.items() if after.get(offset) == data}
    whole = {offset: data for offset, data in after.items() if offset in found}
    assert found in (before, after, kept, before | whole)
    assert failed is not None or found == after
    if failed is not None:
        check_repeated(life, change, after)


def check_repeated(life, change, after):
    change(life)
    life.world.pass_time(500)
    assert life.lost == []
    life.log.validate()
    check_content(life.log)
    assert batches_of(life.log).keys() >= after.keys()


def flush_everything(life):
    life.log.flush()
    life.world.pass_time(500)
    assert life.log.recovery_point == life.log.leo
    return batches_of(life.log)


def check_what_is_durable(life, change, seed):
    """What was flushed, before the change and since, is there after a power failure."""
    flushed = {} if change in REMOVE else life.flushed
    if life.log is not None and not life.lost and change is not close:
        flushed = flush_everything(life)
    life.disk.rng.seed(seed)
    life.disk.crash(Crash.POWER)
    life.start()
    assert life.lost == []
    assert life.log is not None or change is delete or not flushed
    if life.log is not None:
        check_started(life.log, flushed)


def check_started(log, flushed):
    log.validate()
    check_content(log)
    found = batches_of(log)
    assert {offset: found.get(offset) for offset in flushed} == flushed


@pytest.mark.parametrize("error", ERRORS, ids=errno.errorcode.get)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_change_leaves_nothing_or_takes_the_directory_offline(world, change, error):
    make_world = type(world)
    for number in count():
        life = Life(make_world())
        fault = DiskFault("", "", error, after=number)
        failed = play(life, change, fault)
        if fault.times:
            break
        check(life, change, failed, make_world)
        check_what_is_durable(life, change, number)
    assert number > 0


def offsets_of(log):
    """The offsets of all records: converted messages are in one batch."""
    headers = map(read_header, batches_of(log).values())
    return {offset for each in headers for offset in range(each.base_offset, each.next_offset)}


def old_messages(disk):
    """Replace the segment at offset 0 by messages of format v1 with the same offsets."""
    messages = b"".join(message(offset, b"k%d" % (offset % 2), b"v" * 100) for offset in range(3))
    file = disk.create(f"/a/t-0/{0:020d}.log")
    file.write(0, (messages,))
    disk.flush_now([file])
    disk.unlink("/a/record-format-checkpoint")


@pytest.mark.parametrize("error", ERRORS, ids=errno.errorcode.get)
@pytest.mark.parametrize("stop", ["clean", "killed"])
@pytest.mark.parametrize("has_old", [True, False], ids=["old", "new"])
def test_a_start_that_fails_changes_nothing_that_the_next_one_needs(world, stop, has_old, error):
    for number in count():
        life = Life(type(world)())
        expected = offsets_of(life.log)
        if stop == "clean":
            life.logs.close(lambda: None)
            life.world.pass_time(500)
        life.disk.crash(Crash.PROCESS)
        if has_old:
            old_messages(life.disk)
        fault = DiskFault("", "/a", error, after=number)
        life.disk.faults.append(fault)
        life.start()
        life.world.pass_time(500)
        life.disk.faults.clear()
        if fault.times:
            break
        life.disk.rng.seed(number)
        life.disk.crash(Crash.PROCESS)
        life.start()
        assert life.lost == []
        assert offsets_of(life.log) == expected
        check_content(life.log)
    assert number > 10
