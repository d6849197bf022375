"""Logs of brokers before Kafka 0.11: their segments are converted when they are loaded."""

import pytest

from odradek.log.producer_state import ProducerState
from odradek.log.upgrade import CHUNK_BYTES
from odradek.model.errors import StartupError
from odradek.record.batch import LOG_APPEND_TIME_BIT
from odradek.record.compression import Codec, compress
from odradek.record.message_set import OldMessage, append_message, write_messages
from odradek.record.records import Record, build_batch, iter_records
from odradek.sim.world.disk import Crash

TIME = 1_500_000_000_000
MAGICS = [0, 1]


def name_of(offset, suffix=".log"):
    return f"{offset:020d}{suffix}"


def records(first, count, size=20):
    return [
        Record(b"k%d" % offset, b"v" * size, TIME + offset, (), offset)
        for offset in range(first, first + count)
    ]


def put(world, offset, data):
    """A segment in place of what is there."""
    file = world.disk.create(world.path(name_of(offset)))
    file.write(0, (bytes(data),))
    world.disk.flush_now([file])


def old_log(world, *segments):
    """A log of these segments; returns the bytes of each by its first offset."""
    world.create()
    world.log.close(lambda _: None)
    world.pass_time()
    for offset, data in segments:
        put(world, offset, data)
        for suffix in (".index", ".timeindex"):
            world.disk.create(world.path(name_of(offset, suffix)))


def read(log):
    """All records, as clients get them."""
    found = []
    for segment in log.segments:
        for position, header in segment.walk(0):
            data = segment.read(position, header.size_bytes, wait=True)
            assert header.magic == 2
            found += iter_records(bytes(data))
    return found


def of_magic(magic, found):
    return found if magic else [record._replace(timestamp=-1) for record in found]


@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("clean", [True, False])
def test_offsets_timestamps_keys_and_codecs_stay(world, magic, codec, clean):
    all_records = records(0, 1200)
    segments = [
        (begin, b"".join(
            write_messages(all_records[at : at + 50], magic=magic, codec=codec)
            for at in range(begin, begin + 600, 50)
        ))
        for begin in (0, 600)
    ]  # fmt: skip
    old_log(world, *segments)
    log = world.load(clean=clean)

    assert (log.log_start_offset, log.leo) == (0, 1200)
    assert read(log) == of_magic(magic, all_records)
    assert {header.codec for segment in log.segments for _, header in segment.walk(0)} == {codec}
    assert world.names(".cleaned") == []


def test_the_log_is_searched_by_offset_and_time_and_written_on(world):
    old_log(world, (0, write_messages(records(0, 2000), magic=1)))
    log = world.load()
    (segment,) = log.segments

    position, header = segment.find_timestamp(TIME + 1234, 0, wait=True)
    assert header.base_offset <= 1234 <= header.last_offset
    assert segment.find(1234, wait=True) == position
    assert log.epochs.latest_epoch == -1
    world.append(b"new", epoch=3)
    assert (log.leo, log.epochs.latest_epoch) == (2001, 3)
    assert world.load(clean=False).leo == 2001


def test_gaps_of_compaction_and_append_times_stay(world):
    kept = [record for record in records(0, 30) if record.offset % 3]
    wrapper = bytearray()
    inner = write_messages([r._replace(offset=r.offset - 40) for r in records(40, 2)], magic=1)
    append_message(
        wrapper,
        OldMessage(
            41, 1, Codec.GZIP | LOG_APPEND_TIME_BIT, TIME + 9, None, compress(Codec.GZIP, inner)
        ),
    )
    old_log(world, (0, write_messages(kept, magic=1) + wrapper))
    found = read(world.load())

    assert found[:-2] == kept
    assert [(r.offset, r.timestamp) for r in found[-2:]] == [(40, TIME + 9), (41, TIME + 9)]


def test_batches_of_format_2_behind_the_messages_are_copied(world):
    batch = build_batch(
        records(3, 2), base_offset=3, producer_id=7, producer_epoch=1, base_sequence=0
    )
    old_log(world, (0, write_messages(records(0, 3), magic=0) + batch))
    log = world.load()

    headers = [header for _, header in log.segments[0].walk(0)]
    assert [(header.base_offset, header.producer_id) for header in headers] == [(0, -1), (3, 7)]


def test_a_message_larger_than_a_piece_is_converted(world):
    large = records(0, 3, CHUNK_BYTES + 5_000)
    old_log(world, (0, write_messages(large, magic=1)))

    assert read(world.load()) == large


@pytest.mark.parametrize("cut", [1, 30, 60])
def test_a_torn_end_is_cut_after_a_crash(world, cut):
    data = write_messages(records(0, 10), magic=1)
    old_log(world, (0, data[:-cut]))
    log = world.load(clean=False)

    assert log.leo == len(read(log)) == 10 - 1 - cut // 60


def test_damage_elsewhere_prevents_the_start_and_changes_nothing(world):
    data = write_messages(records(0, 10), magic=1)
    data[-5] ^= 1
    old_log(world, (0, data), (10, write_messages(records(10, 2), magic=1)))
    with pytest.raises(StartupError, match="before Kafka 0.11 and is damaged at position"):
        world.load(clean=False)

    assert world.disk.read_file(world.path(name_of(0))) == data


def test_after_a_power_failure_during_the_conversion_it_is_done_again(world):
    data = write_messages(records(0, 10), magic=1)
    old_log(world, (0, data))
    world.disk.create(world.path(name_of(0, ".log.cleaned"))).write(0, (b"half",))
    world.disk.crash(Crash.PROCESS)

    assert read(world.load(clean=False)) == records(0, 10)


def in_format_2(first, count):
    return bytes(build_batch(records(first, count), base_offset=first, leader_epoch=0))


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("magic", MAGICS)
def test_messages_behind_batches_of_format_2_are_converted(world, magic, clean):
    old = write_messages(records(3, 3), magic=magic)
    old_log(world, (0, in_format_2(0, 3) + old + in_format_2(6, 2)))
    log = world.load(clean=clean)

    assert log.leo == 8
    expected = records(0, 3) + of_magic(magic, records(3, 3)) + records(6, 2)
    assert read(log) == expected


def test_messages_within_a_sealed_segment_are_converted(world):
    mixed = in_format_2(0, 3) + write_messages(records(3, 3), magic=1) + in_format_2(6, 2)
    old_log(world, (0, mixed), (8, in_format_2(8, 2)))

    assert read(world.load()) == records(0, 10)


def test_segments_that_were_searched_before_are_not_searched_again(world):
    data = write_messages(records(0, 3), magic=1)
    old_log(world, (0, data), (3, in_format_2(3, 3)))
    world.disk.replace_now(world.path("leader-epoch-checkpoint"), b"0\n1\n0 0\n")
    world.disk.replace_now(world.path(name_of(6, ".snapshot")), ProducerState().encode_snapshot())
    world.load(format_2_below=6)

    assert world.disk.read_file(world.path(name_of(0))) == data


def test_a_checkpoint_within_a_segment_finds_what_was_appended_above_it(world):
    known = b"".join(in_format_2(offset, 1) for offset in range(40))
    old_log(world, (0, known + write_messages(records(40, 3), magic=1)))

    assert read(world.load(format_2_below=40)) == records(0, 43)


def test_a_cleaned_segment_of_an_old_format_takes_its_place_after_a_crash(world):
    old_log(world, (0, in_format_2(0, 3)), (3, in_format_2(3, 2)))
    swap = world.disk.create(world.path(name_of(0) + ".swap"))
    swap.write(0, (bytes(write_messages(records(1, 2), magic=1)),))
    log = world.load(clean=False)

    assert read(log) == records(1, 4)
