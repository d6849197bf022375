"""Offsets by timestamp."""

from odradek.log.slices import ColdRead
from odradek.record.batch import TimestampType
from odradek.record.records import Record, build_batch


def test_the_first_record_with_a_timestamp_or_a_later_one_is_found(world):
    world.create(segment_bytes=500)
    for number in range(30):
        world.append(b"a", b"b", timestamp=1000 + 10 * number)

    assert len(world.log.segments) > 3
    for timestamp, found in [
        (0, (1000, 0)),
        (1000, (1000, 0)),
        (1001, (1001, 1)),
        (1002, (1010, 2)),
        (1155, (1160, 32)),
        (1291, (1291, 59)),
    ]:
        assert world.log.offset_for_timestamp(timestamp) == found
    assert world.log.offset_for_timestamp(1292) is None


def test_timestamps_that_decrease_are_found(world):
    world.create(segment_bytes=400)
    for timestamp in (5000, 1000, 9000, 2000, 8000, 3000, 100, 200, 9500):
        world.append(b"x" * 50, timestamp=timestamp)

    found = [world.log.offset_for_timestamp(t) for t in (1, 5001, 9001, 9501)]
    assert found == [(5000, 0), (9000, 2), (9500, 8), None]
    assert world.log.max_timestamp_offset() == (9500, 8)


def test_the_first_record_with_the_largest_timestamp_is_found(world):
    world.create()
    batch = build_batch(
        [Record(None, b"a", 5), Record(None, b"b", 70), Record(None, b"c", 70), Record(None, b"")]
    )
    world.append_batch(bytes(batch))
    world.append(timestamp=70)

    assert world.log.max_timestamp_offset() == (70, 1)


def test_an_empty_log_and_one_without_timestamps_have_no_result(world):
    world.create()
    assert world.log.max_timestamp_offset() is None
    assert world.log.offset_for_timestamp(0) is None
    world.append(timestamp=-1)
    assert world.log.max_timestamp_offset() is None
    assert world.log.offset_for_timestamp(0) is None


def test_deleted_records_are_not_found(world):
    world.create()
    world.append(b"a", b"b", b"c", timestamp=1000)
    world.append(timestamp=2000)
    world.log.set_high_watermark(4)
    world.log.advance_log_start(2)

    assert world.log.offset_for_timestamp(0) == (1002, 2)


def test_the_log_append_time_is_that_of_the_batch(world):
    world.create()
    ours = {"timestamp_type": TimestampType.LOG_APPEND_TIME, "append_time_ms": 5000}
    world.append(b"a", b"b", timestamp=1000, **ours)

    assert world.log.offset_for_timestamp(1002) == (5000, 0)


def test_a_search_without_waiting_returns_a_cold_read(world):
    world.create()
    world.append(timestamp=1000)
    world.disk.cold_share = 1.0

    assert isinstance(world.log.offset_for_timestamp(0, wait=False), ColdRead)
    assert isinstance(world.log.max_timestamp_offset(wait=False), ColdRead)
    assert world.log.offset_for_timestamp(0) == (1000, 0)
