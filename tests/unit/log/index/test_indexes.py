"""The two sparse indexes, byte for byte."""

from odradek.log.index.offsets import OffsetIndex
from odradek.log.index.times import TimeIndex

PATH = "/data/i"


def offsets(*entries):
    index = OffsetIndex()
    for offset, position in entries:
        index.append(offset, position)
    return index


def times(*entries):
    index = TimeIndex()
    for timestamp, offset in entries:
        index.append(timestamp, offset)
    return index


def test_the_offset_index_finds_the_last_entry_not_above():
    index = offsets((10, 100), (20, 200), (30, 300))

    found = [index.lookup(offset) for offset in (0, 9, 10, 15, 20, 29, 30, 1000)]
    assert found == [0, 0, 100, 100, 200, 200, 300, 300]
    assert OffsetIndex().lookup(5) == 0


def test_the_offset_index_gives_an_offset_at_or_above_a_position():
    index = offsets((10, 100), (20, 200))

    assert index.offset_at_or_behind(50) == 10
    assert index.offset_at_or_behind(100) == 10
    assert index.offset_at_or_behind(101) == 20
    assert index.offset_at_or_behind(201) is None


def test_the_time_index_starts_after_all_batches_with_smaller_timestamps():
    index = times((1000, 10), (2000, 20))

    found = [index.lookup(timestamp) for timestamp in (0, 1000, 1001, 2000, 2001)]
    assert found == [0, 0, 10, 10, 20]


def test_the_time_index_takes_only_new_maxima():
    index = times((1000, 10), (1000, 20), (900, 30), (-1, 40))

    assert len(index) == 1
    assert index.last() == (1000, 10)
    assert times((-1, 3)).last() is None


def test_truncation_removes_an_offset_and_those_above():
    for entries, offset, left in (
        ([(10, 1), (20, 2)], 20, 1),
        ([(10, 1), (20, 2)], 21, 2),
        ([(10, 1), (20, 2)], 0, 0),
    ):
        index = offsets(*entries)
        index.truncate(offset)
        assert len(index) == left
        index = times(*((1000 * n, offset) for offset, n in entries))
        index.truncate(offset)
        assert len(index) == left


def test_the_bytes_are_kafkas(world):
    offset_index, time_index = offsets((10, 100), (260, 65536)), times((1 << 40, 10))
    offset_index.save(world.disk, PATH)
    assert world.disk.read_file(PATH) == bytes.fromhex("0000000a 00000064 00000104 00010000")
    time_index.save(world.disk, PATH)
    assert world.disk.read_file(PATH) == bytes.fromhex("0000010000000000 0000000a")


def test_saving_writes_new_entries_and_truncates_removed_ones(world):
    index = offsets((10, 100), (20, 200))
    assert index.save(world.disk, PATH)
    assert not index.save(world.disk, PATH)
    index.truncate(20)
    index.append(15, 150)
    assert index.save(world.disk, PATH)
    assert OffsetIndex(world.disk.read_file(PATH)).lookup(16) == 150
    index.clear()
    index.save(world.disk, PATH)
    assert world.disk.read_file(PATH) == b""


def test_an_empty_index_has_a_file(world):
    OffsetIndex().save(world.disk, PATH)

    assert world.disk.read_file(PATH) == b""


def test_an_index_that_was_not_read_is_written_from_the_start(world):
    offsets((10, 100), (20, 200)).save(world.disk, PATH)
    index = OffsetIndex.unread(16)
    index.append(1, 10)
    index.save(world.disk, PATH)

    assert world.disk.read_file(PATH) == bytes.fromhex("00000001 0000000a")


def test_an_implausible_index_is_recognised():
    good = bytes.fromhex("0000000a 00000064")
    zeros = bytes(8)
    assert OffsetIndex(good).is_sane(1000)
    assert OffsetIndex(b"").is_sane(0)
    assert not OffsetIndex(good).is_sane(99), "after the end of the log"
    assert not OffsetIndex(good[:-1]).is_sane(1000), "an incomplete entry"
    assert not OffsetIndex(good + zeros).is_sane(1000), "preallocated"
    entry = bytes.fromhex("0000010000000000 0000000a")
    assert TimeIndex(entry).is_sane()
    assert not TimeIndex(entry[:-1]).is_sane()
    assert not TimeIndex(entry + bytes(12)).is_sane()
