"""One partition's log: append, read, roll, truncate, delete."""

import errno

import pytest

from odradek.log.log_config import LogConfig
from odradek.log.repair.content import check_content
from odradek.log.slices import ColdRead, OffsetOutOfRangeError, UnexpectedOffsetError
from odradek.model.errors import ApiError, ErrorCode
from odradek.record.batch import (
    CorruptBatchError,
    iter_batches,
    leader_epoch_at,
    read_header,
)
from odradek.record.control import ControlType
from odradek.record.records import iter_records
from odradek.sim.world.disk import DiskFault, SimulatedCrash


def read_all(world, offset=0, **options):
    """The offsets and values that a consumer reads."""
    log = world.log
    end = options.pop("end_offset", log.leo)
    found = []
    while offset < end:
        data = log.read(offset, options.get("max_bytes", 1 << 20), end_offset=end).data
        for position, header in iter_batches(data):
            found += [(record.offset, record.value) for record in iter_records(data[position:])]
            offset = header.next_offset
    return found


def test_a_leader_sets_offsets_and_its_epoch(world):
    world.create()

    assert world.append(b"a", b"b", epoch=7)[:2] == (0, 1)
    assert world.append(b"c", epoch=7)[:2] == (2, 2)
    assert world.log.leo == 3
    data = world.log.read(2, 1000, end_offset=3).data
    assert read_header(data).base_offset == 2
    assert leader_epoch_at(data, 0) == 7
    assert read_all(world) == [(0, b"a"), (1, b"b"), (2, b"c")]


def test_a_read_begins_with_the_batch_that_has_the_offset(world):
    world.create()
    world.append(b"a", b"b", b"c")

    assert read_header(world.log.read(1, 1000, end_offset=3).data).base_offset == 0


def test_a_read_ends_below_the_end_offset(world):
    world.create()
    for value in (b"a", b"b", b"c"):
        world.append(value)

    assert [offset for offset, _ in read_all(world, end_offset=2)] == [0, 1]
    assert world.log.read(2, 1000, end_offset=2) is None


def test_a_read_outside_the_log_is_refused(world):
    world.create()
    world.append(b"a")

    assert world.log.read(1, 100, end_offset=1) is None
    for offset in (-1, 2):
        with pytest.raises(OffsetOutOfRangeError, match="not within"):
            world.log.read(offset, 100, end_offset=1)


def test_the_first_batch_is_read_whole_even_above_max_bytes(world):
    world.create()
    world.append(b"x" * 1000)
    world.append(b"y")
    size = read_header(world.batch(b"x" * 1000)).size_bytes

    assert world.log.read(0, 1, end_offset=2).size == size
    assert world.log.read(0, 1, end_offset=2, load=False).size == size
    assert world.log.read(0, 1, end_offset=2, minimum_one_message=False) is None
    assert world.log.read(0, 1, end_offset=2, minimum_one_message=False, load=False) is None


def test_a_read_of_recent_batches_ends_with_a_whole_one(world):
    world.create()
    for _ in range(3):
        world.append(b"x" * 100)
    log = world.log
    whole = log.size_bytes // 3

    for load in (True, False):
        assert log.read(0, 3 * whole - 1, end_offset=3, load=load).size == 2 * whole
        assert log.read(1, whole, end_offset=3, load=load).size == whole
    assert log.recent(0, 1 << 20) == (log.active_segment, 0, 3 * whole)
    assert log.recent(1, 2 * whole - 1) == (log.active_segment, whole, whole)
    assert log.recent(0, whole - 1) is None, "not one fits"
    for limit in (0, -1, -whole, -9 * whole):
        assert log.recent(1, limit) is None
        assert log.read(1, limit, end_offset=3).size == whole, "the first batch"
    assert log.recent(3, 1 << 20) is None

    log.set_high_watermark(3)
    log.advance_log_start(2)
    assert log.recent(1, 1 << 20) is None, "it is below the log's start"
    assert log.recent(2, 1 << 20) == (log.active_segment, 2 * whole, whole)
    with pytest.raises(OffsetOutOfRangeError):
        log.read(1, 1 << 20, end_offset=3)


def test_a_read_of_batches_that_are_not_recent_ends_at_its_limit(world):
    world.create()
    for _ in range(303):
        world.append(b"x" * 100)
    log = world.log
    whole = log.size_bytes // 303

    assert log.read(0, 2 * whole - 1, end_offset=3).size == 2 * whole - 1, "it is not recent"
    assert log.recent(0, 1 << 20) is None


def test_a_read_without_data_gives_the_position_in_the_file(world):
    world.create()
    world.append(b"a")
    world.append(b"b")
    loaded = world.log.read(1, 1000, end_offset=2)
    found = world.log.read(1, 1000, end_offset=2, load=False)

    assert found.data is None
    assert found.file.read_now(found.position, found.size) == loaded.data


def test_every_offset_of_every_segment_is_found(world):
    world.create(segment_bytes=2000)
    for number in range(150):
        world.append(b"%d" % number)

    assert len(world.log.segments) > 4
    for offset in range(150):
        header = read_header(world.log.read(offset, 100, end_offset=150).data)
        assert header.base_offset == offset


def test_data_outside_the_page_cache_is_loaded_and_read_again(world):
    world.create(segment_bytes=2000)
    for _ in range(50):
        world.append(b"x" * 50)
    world.disk.cold_share = 1.0
    cold = world.log.read(0, 1000, end_offset=50)
    loaded = []
    assert isinstance(cold, ColdRead)
    cold.load(loaded.append)
    world.pass_time()

    assert loaded == [None]
    assert read_header(world.log.read(0, 1000, end_offset=50, wait=True).data).base_offset == 0


def test_a_gap_at_the_end_of_a_segment_is_skipped_but_not_the_end_offset(world):
    world.create(segment_bytes=400, cleanup_policy=frozenset({"compact"}))
    for _ in range(6):
        world.append(b"x" * 100)
    world.disk.file(world.path("00000000000000000002.log")).truncate(170)
    log = world.load(clean=False)

    assert log.read(3, 1000, end_offset=6).segment.base_offset == 4
    assert log.read(3, 1000, end_offset=4) is None


def test_only_the_positions_of_the_last_batches_are_kept(world):
    world.create()
    for _ in range(1000):
        world.append(b"x")
    bound = [world.log.read(n, 1 << 20, end_offset=n + 1) for n in range(0, 1000, 7)]

    assert len({found.size for found in bound}) == 1
    assert len(world.log._recent) <= 256
    assert [read_header(found.data).base_offset for found in bound] == list(range(0, 1000, 7))


def test_an_index_gets_an_entry_after_index_interval_bytes(world):
    world.create(index_interval_bytes=170)
    lengths = []
    for _ in range(5):
        world.append(b"x" * 100)
        lengths.append(len(world.log.active_segment.indexes()[0]))

    assert lengths == [0, 0, 1, 1, 2]


def test_a_follower_keeps_offsets_and_epochs(world):
    leader = world.create()
    world.append(b"a", epoch=3)
    world.append(b"b", b"c", epoch=5)
    data = leader.read(0, 1 << 20, end_offset=3).data
    world.log = follower = type(leader)(leader.partition, "/data/t-1", LogConfig(), world.host)
    world.disk.mkdir("/data/t-1")
    follower.open_segment(0)

    assert follower.append_as_follower(memoryview(data)) == len(data)
    assert follower.leo == 3
    assert follower.epochs.starts() == [(3, 0), (5, 1)]
    assert read_all(world) == [(0, b"a"), (1, b"b"), (2, b"c")]


def test_the_high_watermark_is_at_most_the_log_end_offset(world):
    world.create()
    world.append(b"a", b"b")

    assert [world.log.set_high_watermark(offset) for offset in (1, 3)] == [1, 2]


def test_a_follower_ignores_an_incomplete_batch(world):
    leader = world.create()
    world.append(b"a")
    world.append(b"b")
    data = memoryview(leader.read(0, 1 << 20, end_offset=2).data)
    leader.truncate_fully_and_start_at(0)

    taken = leader.append_as_follower(data[:-1])

    assert taken == len(data) // 2
    assert leader.leo == 1


def test_a_follower_refuses_damaged_batches_and_offsets_that_it_has(world):
    leader = world.create()
    world.append(b"a")
    data = bytearray(leader.read(0, 1 << 20, end_offset=1).data)
    with pytest.raises(UnexpectedOffsetError):
        leader.append_as_follower(memoryview(data))
    leader.truncate_to(0)
    data[-1] ^= 1
    with pytest.raises(CorruptBatchError):
        leader.append_as_follower(memoryview(data))

    assert leader.leo == 0


def test_a_follower_rolls_by_its_own_clock_where_records_have_no_timestamps(world):
    follower = world.create(segment_ms=1000)
    for offset in range(3):
        batch = bytearray(world.batch(b"x", timestamp=-1, base_offset=offset))
        follower.append_as_follower(memoryview(batch))
        world.now_ms += 600

    assert [segment.base_offset for segment in follower.segments] == [0, 2]


def test_a_follower_rolls_at_the_limits_of_a_segment(world):
    follower = world.create(segment_bytes=230, index_interval_bytes=1 << 20)
    for offset in (0, 1, 2, 3, 4, 1 << 32):
        size = 100 if offset == 2 else 0
        batch = bytearray(world.batch(bytes(size), timestamp=5, base_offset=offset))
        follower.append_as_follower(memoryview(batch))

    assert [segment.base_offset for segment in follower.segments] == [0, 2, 3, 1 << 32]


def test_a_follower_rolls_between_the_batches_of_one_fetch(world):
    leader = world.create()
    for _ in range(30):
        world.append(b"x" * 100)
    data = leader.read(0, 1 << 20, end_offset=30).data
    leader.truncate_fully_and_start_at(0)
    leader.update_config(LogConfig(segment_bytes=1000))

    leader.append_as_follower(memoryview(data))

    assert leader.leo == 30
    assert all(segment.size <= 1000 for segment in leader.segments)
    assert len(leader.segments) == 6
    assert [offset for offset, _ in read_all(world)] == list(range(30))


def test_a_follower_accepts_gaps_of_compaction(world):
    leader = world.create()
    for _ in range(3):
        world.append(b"x")
    data = memoryview(leader.read(0, 1 << 20, end_offset=3).data)
    size = len(data) // 3
    leader.truncate_fully_and_start_at(0)
    leader.append_as_follower(data[:size])
    leader.append_as_follower(data[2 * size :])

    assert leader.leo == 3
    assert read_header(leader.read(1, 1000, end_offset=3).data).base_offset == 2


# --------------------------------------------------------------------------------- rolling


def test_a_segment_is_never_larger_than_segment_bytes(world):
    world.create(segment_bytes=500)
    for _ in range(20):
        world.append(b"x" * 100)

    assert [segment.base_offset for segment in world.log.segments] == list(range(0, 20, 2))
    assert all(segment.size <= 500 for segment in world.log.segments)


def test_a_batch_larger_than_a_segment_is_refused(world):
    world.create(segment_bytes=100)
    with pytest.raises(ApiError) as refused:
        world.append(b"x" * 100)

    assert refused.value.code is ErrorCode.RECORD_LIST_TOO_LARGE


def test_a_segment_is_rolled_by_the_timestamps_of_its_records(world):
    world.create(segment_ms=1000)
    world.append(b"a", timestamp=5000)
    world.append(b"b", timestamp=6000)
    assert len(world.log.segments) == 1
    world.append(b"c", timestamp=6001)
    assert len(world.log.segments) == 2
    world.now_ms += 1_000_000
    world.append(b"d", timestamp=6002)
    assert len(world.log.segments) == 2


def test_a_segment_without_timestamps_is_rolled_by_the_brokers_clock(world):
    world.create(segment_ms=1000)
    world.append(b"a", timestamp=-1)
    world.now_ms += 1000
    world.append(b"b", timestamp=-1)
    assert len(world.log.segments) == 1
    world.now_ms += 1
    world.append(b"c", timestamp=-1)
    assert len(world.log.segments) == 2


def test_jitter_rolls_earlier_and_is_not_random(world):
    world.create(segment_ms=1000, segment_jitter_ms=900)
    first = world.batch(timestamp=5000)
    rolled = []
    for timestamp in range(5000, 6002):
        world.log.truncate_fully_and_start_at(0)
        world.append_batch(first)
        world.append(timestamp=timestamp)
        rolled.append(len(world.log.segments) > 1)

    assert rolled.index(True) < 1001
    assert all(rolled[rolled.index(True) :])


@pytest.mark.parametrize(
    ("step_ms", "entries"),
    [
        pytest.param(0, 4, id="4 entries of 8 bytes in the offset index"),
        pytest.param(1, 2, id="3 of 12 in the time index, of which one is reserved"),
    ],
)
def test_a_segment_is_rolled_when_its_index_is_full(world, step_ms, entries):
    world.create(segment_index_bytes=36)
    for number in range(30):
        world.append(b"x" * 200, timestamp=world.now_ms + number * step_ms)

    *full, _ = world.log.segments
    assert full
    assert [len(segment.indexes()[0]) for segment in full] == [entries] * len(full)


def test_a_segment_is_rolled_when_offsets_exceed_the_range_of_its_index(world):
    world.create()
    batch = bytearray(world.batch(b"a", base_offset=0))
    far = bytearray(world.batch(b"b", base_offset=1 << 32))
    world.log.append_as_follower(memoryview(batch))
    world.log.append_as_follower(memoryview(far))

    assert [segment.base_offset for segment in world.log.segments] == [0, 1 << 32]


def test_a_roll_writes_indexes_and_a_snapshot_and_moves_the_recovery_point(world):
    world.create()
    for _ in range(10):
        world.append(b"x" * 100)
    world.log.roll()
    world.pass_time()

    assert world.names(".index") == ["00000000000000000000.index"]
    assert world.names(".timeindex") == ["00000000000000000000.timeindex"]
    assert world.names(".snapshot") == ["00000000000000000010.snapshot"]
    assert world.log.recovery_point == 10


def test_rolling_an_empty_segment_changes_nothing(world):
    world.create()
    world.log.roll()

    assert [segment.base_offset for segment in world.log.segments] == [0]


# ---------------------------------------------------------------------------- producers


def test_a_duplicate_is_answered_with_its_first_offset(world):
    world.create()
    batch = world.batch(b"a", b"b", producer_id=9, producer_epoch=0, base_sequence=0)
    first = world.append_batch(batch)
    again = world.append_batch(batch)

    assert (again.first_offset, again.last_offset) == (first.first_offset, first.last_offset)
    assert again.duplicate
    assert world.log.leo == 2


def test_a_sequence_out_of_order_is_refused(world):
    world.create()
    world.append(producer_id=9, producer_epoch=0, base_sequence=0)
    with pytest.raises(ApiError) as refused:
        world.append(producer_id=9, producer_epoch=0, base_sequence=5)

    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert world.log.leo == 1


def test_the_first_batch_of_a_log_begins_with_sequence_0(world):
    world.create()
    with pytest.raises(ApiError, match="expected 0") as refused:
        world.append(producer_id=9, producer_epoch=0, base_sequence=5)
    assert refused.value.code is ErrorCode.UNKNOWN_PRODUCER_ID
    assert world.log.leo == 0

    world.append(producer_id=9, producer_epoch=0, base_sequence=0)
    world.append(producer_id=8, producer_epoch=0, base_sequence=5)  # its state may have expired
    assert world.log.leo == 2


def test_the_sequence_of_a_coordinators_batch_is_not_checked_but_kept_as_it_is_in_the_log(world):
    world.create()
    for _ in range(3):  # as by three transactions in one epoch
        batch = world.batch(producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
        assert not world.append_batch(batch, from_client=False).duplicate
        world.mark(ControlType.COMMIT, 9)
    assert [producer.last_sequence for producer in world.log.active_producers()] == [0]
    check_content(world.log)


def write_transaction(world, producer_id, sequence=0):
    return world.append(
        producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True
    ).first_offset


def test_an_open_transaction_holds_back_the_last_stable_offset(world):
    world.create()
    world.append()
    write_transaction(world, 9)
    world.append()
    world.log.set_high_watermark(3)
    assert world.log.last_stable_offset == 1
    world.mark(ControlType.COMMIT, 9)
    world.log.set_high_watermark(3)
    assert world.log.last_stable_offset == 1, "the marker is not replicated yet"
    world.log.set_high_watermark(4)
    assert world.log.last_stable_offset == 4


def test_the_last_stable_offset_is_at_least_the_log_start_offset(world):
    """DeleteRecords above the first offset of an open transaction."""
    world.create()
    write_transaction(world, 9)
    for _ in range(4):
        world.append()
    world.log.set_high_watermark(4)
    world.log.advance_log_start(3)
    assert world.log.last_stable_offset == 3
    world.mark(ControlType.ABORT, 9)
    world.log.set_high_watermark(6)
    assert world.log.last_stable_offset == 6


def test_aborted_transactions_of_a_read_range(world):
    world.create(segment_bytes=300)
    write_transaction(world, 9)
    world.append()
    world.mark(ControlType.ABORT, 9)
    world.append()
    world.append()

    answer = [(t.producer_id, t.first_offset, t.last_offset) for t in aborted(world, 0, 5)]
    assert answer == [(9, 0, 2)]
    assert [t.producer_id for t in aborted(world, 1, 2)] == [9]
    assert aborted(world, 3, 5) == []
    world.load()
    assert [t.producer_id for t in aborted(world, 1, 2)] == [9]


def aborted(world, start, end):
    return world.log.aborted_transactions(start, end)


def test_a_marker_of_a_fenced_coordinator_is_refused(world):
    world.create()
    write_transaction(world, 9)
    world.mark(ControlType.COMMIT, 9, coordinator_epoch=3)
    with pytest.raises(ApiError) as refused:
        world.mark(ControlType.COMMIT, 9, coordinator_epoch=2)

    assert refused.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED


# ---------------------------------------------------------------------------- truncation


def test_truncation_removes_whole_batches(world):
    world.create()
    world.append(b"a")
    world.append(b"b", b"c")
    world.append(b"d")

    assert world.log.truncate_to(2)
    assert world.log.leo == 1
    assert read_all(world) == [(0, b"a")]


def test_a_truncation_within_a_batch_lowers_the_recovery_point(world):
    """Otherwise what is appended there next would be below it before its flush."""
    world.create()
    world.append(b"a")
    world.append(b"b", b"c")
    world.append(b"d")
    world.log.set_high_watermark(4)
    world.log.flush()
    world.pass_time()
    assert world.log.recovery_point == 4

    world.log.truncate_to(2)
    assert (world.log.leo, world.log.high_watermark, world.log.recovery_point) == (1, 1, 1)


def test_the_end_after_a_truncation_can_be_computed_before(world):
    world.create(index_interval_bytes=100)
    for number in range(30):
        world.append(*[b"x" * 50] * (1 + number % 3))
    for offset in range(world.log.leo - 1, -1, -1):
        end = world.log.active_segment.end_below(offset)
        world.log.truncate_to(offset)
        assert world.log.leo == end <= offset


def test_truncation_to_the_end_or_beyond_does_nothing(world):
    world.create()
    world.append(b"a")

    assert not world.log.truncate_to(1)
    assert not world.log.truncate_to(5)
    assert world.log.leo == 1


def test_truncation_removes_later_segments_their_snapshots_and_epochs(world):
    world.create(segment_bytes=400)
    for number in range(10):
        world.append(b"x" * 100, epoch=number)
    world.log.set_high_watermark(9)
    world.log.truncate_to(3)
    world.pass_time(100_000)

    assert world.log.leo == 3
    assert world.log.high_watermark == 3
    assert world.log.epochs.starts() == [(0, 0), (1, 1), (2, 2)]
    assert world.names(".log") == ["00000000000000000000.log", "00000000000000000002.log"]
    assert world.names(".snapshot") == ["00000000000000000002.snapshot"]
    assert [offset for offset, _ in read_all(world)] == [0, 1, 2]
    world.append(b"y", epoch=20)
    assert read_all(world)[-1] == (3, b"y")


def test_truncation_below_the_first_segment_empties_the_log(world):
    world.create()
    world.log.truncate_fully_and_start_at(100)
    world.append(b"a")
    world.log.truncate_to(50)

    assert (world.log.log_start_offset, world.log.leo) == (50, 50)
    assert [segment.base_offset for segment in world.log.segments] == [50]


def test_a_full_truncation_lowers_recovery_point_and_high_watermark_first(world):
    world.create()
    for _ in range(4):
        world.append(b"a")
    world.log.set_high_watermark(4)
    world.log.flush()
    world.pass_time()
    world.disk.crash_after(1)
    with pytest.raises(SimulatedCrash):
        world.log.truncate_fully_and_start_at(100)
    assert (world.log.high_watermark, world.log.recovery_point) == (0, 0)


def test_truncation_removes_timestamps(world):
    world.create()
    for number in range(20):
        world.append(b"x" * 100, timestamp=1000 * number)
    world.log.truncate_to(10)
    for number in range(10):
        world.append(b"y" * 100, timestamp=5000 + number)

    assert world.log.max_timestamp_offset() == (9000, 9)
    assert world.log.offset_for_timestamp(9000) == (9000, 9)
    assert world.log.offset_for_timestamp(9001) is None


def test_truncation_restores_the_producer_state(world):
    world.create()
    write_transaction(world, 9)
    world.mark(ControlType.ABORT, 9)
    write_transaction(world, 9, sequence=1)
    world.log.truncate_to(1)

    assert world.log.producers.has_open_transaction(9, 0)
    assert world.log.aborted_transactions(0, 10) == []
    assert write_transaction(world, 9, sequence=1) == 1


def test_a_flush_that_began_before_a_truncation_does_not_count(world):
    world.create()
    world.append(b"a")
    world.append(b"b")
    world.pass_time()
    world.log.flush()
    world.log.truncate_to(1)
    world.append(b"c")
    world.pass_time()

    assert world.log.recovery_point <= 1


# ------------------------------------------------------------------------------ deletion


def test_deleted_records_cannot_be_read_and_their_segments_are_removed(world):
    world.create(segment_bytes=400)
    for _ in range(10):
        world.append(b"x" * 100)
    with pytest.raises(OffsetOutOfRangeError):
        world.log.advance_log_start(5)
    world.log.set_high_watermark(10)
    assert world.log.advance_log_start(5)
    assert not world.log.advance_log_start(4)
    with pytest.raises(OffsetOutOfRangeError):
        world.log.read(4, 100, end_offset=10)
    expired = world.log.delete_old_segments(world.now_ms)

    assert expired.by_log_start == 2
    assert world.log.log_start_offset == 5
    assert world.log.recovery_point == 0  # the deleted segments were not flushed
    assert world.names(".deleted") != []
    world.pass_time(61_000)
    assert world.names(".deleted") == []
    assert world.names(".log")[0] == "00000000000000000004.log"


def test_a_log_whose_segments_are_all_deleted_continues_empty(world):
    world.create(retention_ms=1000)
    world.append(b"x")
    world.log.set_high_watermark(1)
    world.now_ms += 2000
    world.log.delete_old_segments(world.now_ms)

    assert (world.log.log_start_offset, world.log.leo) == (1, 1)
    assert [segment.base_offset for segment in world.log.segments] == [1]
    world.append(b"y")
    assert read_all(world, 1) == [(1, b"y")]


# ------------------------------------------------------------------------------ the flush


def test_flush_messages_starts_a_flush(world):
    world.create(flush_messages=3)
    world.append(b"a")
    world.append(b"b")
    world.pass_time()
    assert world.log.recovery_point == 0
    world.append(b"c")
    world.pass_time()
    assert world.log.recovery_point == 3


def test_flush_messages_applies_to_followers(world):
    leader = world.create(flush_messages=3)
    for _ in range(3):
        world.append(b"a")
    world.pass_time()
    data = memoryview(leader.read(0, 1 << 20, end_offset=3).data)
    leader.truncate_fully_and_start_at(0)
    leader.append_as_follower(data)
    world.pass_time()

    assert leader.recovery_point == 3


def test_the_end_of_a_flush_is_reported_to_its_caller(world):
    world.create()
    world.append(b"a")
    received = []
    world.log.flush(received.append)
    world.append(b"b")
    world.log.flush(received.append)
    world.pass_time()

    assert received == [None, None]
    assert world.log.recovery_point == 2


def test_a_failed_flush_is_reported_and_moves_no_recovery_point(world):
    world.create()
    world.append(b"a")
    world.pass_time()

    world.disk.faults.append(DiskFault("flush", ".log"))
    received = []
    world.log.flush(received.append)
    world.pass_time()

    assert received == world.failures
    assert len(received) == 1
    assert world.log.recovery_point == 0


def rename_while_flushing(world, error):
    """The flush fails with this error, and the directory is renamed before it is reported.

    Returns what the flush was answered.
    """
    world.create()
    world.append(b"a")
    world.pass_time()
    world.disk.faults.append(DiskFault("flush", ".log", error))
    received = []
    world.log.flush(received.append)
    world.disk.rename(world.log.directory, "/data/elsewhere")
    world.log.moved("/data/elsewhere")
    world.pass_time()
    return received


def test_a_file_that_is_not_found_because_of_a_rename_is_flushed_again(world):
    assert rename_while_flushing(world, errno.ENOENT) == [None]
    assert world.failures == []
    assert world.log.recovery_point == 1


def test_an_io_error_is_reported_although_the_directory_was_renamed(world):
    """The kernel reports it once: the next fdatasync would succeed without the lost pages."""
    received = rename_while_flushing(world, errno.EIO)
    assert [error.errno for error in received] == [errno.EIO]
    assert received == world.failures
    assert world.log.recovery_point == 0


@pytest.mark.parametrize(("error", "failures"), [(errno.ENOENT, []), (errno.EIO, [errno.EIO])])
def test_a_small_file_is_written_again_only_if_its_name_was_not_found(world, error, failures):
    world.create()
    world.pass_time()
    world.disk.faults.append(DiskFault("flush", "leader-epoch-checkpoint", error))
    world.append(epoch=7)  # which the file has to have
    world.disk.rename(world.log.directory, "/data/elsewhere")
    world.log.moved("/data/elsewhere")
    world.pass_time()
    assert [failure.errno for failure in world.failures] == failures
