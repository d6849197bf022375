"""Files that somebody has edited, or put back from another log or another time."""

import pytest
from tests.unit.log.test_logs import T0, Broker

from odradek.log.checkpoints import CheckpointError, decode_epochs, decode_offsets
from odradek.log.directories import KeptCounter, parse_name
from odradek.record.batch import read_header

SEGMENT = "00000000000000000000"
ENTRY_BYTES = 8


def close(world):
    world.log.close(lambda _: None)
    world.pass_time()


def found_at(segment, offset):
    return read_header(segment.read(segment.find(offset, wait=True), 61, wait=True))


@pytest.mark.parametrize("moved", [3, -3, 5])
def test_an_offset_index_of_another_log_hides_no_record(world, moved):
    """The entries of offsets show the positions of others."""
    world.create(index_interval_bytes=100)
    for number in range(30):
        world.append(b"x" * (60 + 7 * number))
    world.log.roll()
    world.append(b"next")
    close(world)
    index = world.path(f"{SEGMENT}.index")
    data = world.disk.read_file(index)
    offsets = [data[at : at + 4] for at in range(0, len(data), ENTRY_BYTES)]
    positions = [data[at + 4 : at + 8] for at in range(0, len(data), ENTRY_BYTES)]
    if moved > 0:
        pairs = list(zip(offsets, positions[moved:], strict=False))
    else:
        pairs = list(zip(offsets[-moved:], positions, strict=False))
    world.disk.create(index).write(0, (b"".join(map(b"".join, pairs)),))
    log = world.load(clean=True)

    for offset in range(30):
        assert found_at(log.segments[0], offset).base_offset == offset
    assert log.leo == 31


def test_positions_that_are_no_batches_are_not_believed(world):
    world.create(index_interval_bytes=100)
    for _ in range(30):
        world.append(b"x" * 100)
    world.log.roll()
    close(world)
    index = world.path(f"{SEGMENT}.index")
    data = bytearray(world.disk.read_file(index))
    for at in range(0, len(data), ENTRY_BYTES):
        position = int.from_bytes(data[at + 4 : at + 8], "big") + 5
        data[at + 4 : at + 8] = position.to_bytes(4, "big")
    world.disk.create(index).write(0, (bytes(data),))
    log = world.load(clean=True)

    for offset in range(30):
        assert found_at(log.segments[0], offset).base_offset == offset


def test_rebuilt_indexes_are_on_disk_before_the_log_is_used(world):
    """A time index of zeros would say that all records are old enough for retention."""
    world.create(segment_bytes=400)
    for _ in range(6):
        world.append(b"x" * 100)
    world.pass_time()
    close(world)
    rebuilt = [world.path(f"{SEGMENT}{suffix}") for suffix in (".index", ".timeindex")]
    before = [world.disk.read_file(path) for path in rebuilt]
    for path in rebuilt:
        world.disk.unlink(path)
    world.load(clean=True)

    assert [bytes(world.disk.content(path).stable) for path in rebuilt] == before
    assert before[1]


@pytest.mark.parametrize("name", ["t-2147483648", "t-9999999999"])
def test_a_directory_with_a_number_that_no_partition_has_is_ignored(name):
    assert parse_name(name) is None
    assert parse_name(f"{name}.{0:032x}-delete") is None
    assert parse_name("t-2147483647").partition == ("t", 2147483647)


@pytest.mark.parametrize("suffix", [".log", ".snapshot", ".index"])
def test_a_file_with_an_offset_that_no_log_has_is_ignored(world, suffix):
    world.create()
    world.append(b"a")
    close(world)
    world.disk.create(world.path("9" * 20 + suffix))
    log = world.load(clean=True)
    world.append(b"b")

    assert log.leo == 2
    assert [segment.base_offset for segment in log.segments] == [0]


def test_leader_epochs_that_no_controller_gives_are_rebuilt_from_the_log(world):
    world.create()
    world.append(b"a", epoch=3)
    close(world)
    world.disk.replace_now(world.path("leader-epoch-checkpoint"), b"0\n1\n2147483648 0\n")

    assert world.load(clean=True).epochs.starts() == [(3, 0)]


@pytest.mark.parametrize(
    "line", [b"t 0 9223372036854775808", b"t 2147483648 5", b"t 0 9999999999999999999"]
)
def test_offsets_and_partitions_above_their_limits_are_refused(line):
    with pytest.raises(CheckpointError, match="is not a number from 0 to"):
        decode_offsets(b"0\n1\n" + line + b"\n")
    assert decode_offsets(b"0\n1\nt 0 9223372036854775807\n") == {T0: (1 << 63) - 1}
    with pytest.raises(CheckpointError, match="is not a number from 0 to 2147483647"):
        decode_epochs(b"0\n1\n2147483648 0\n")


@pytest.mark.parametrize("written", [b"1e999", b"1.5", b"true", b"null", b'"7"', b"NaN"])
def test_a_counter_that_is_no_number_is_none(world, written):
    Broker(world).start().stop()
    data = b'{"version": 1, "written": ' + written + b', "begun": 9}'
    world.disk.replace_now("/a/odradek-store-counter", data)
    again = Broker(world).start()

    assert again.logs.directories["/a"].counter == KeptCounter()


def test_a_log_start_offset_above_a_long_deletes_nothing(world):
    broker = Broker(world).start()
    broker.create(directory="/a")
    broker.append()
    broker.stop()
    world.disk.unlink("/a/.kafka_cleanshutdown")
    checkpoint = b"0\n1\nt 0 9999999999999999999\n"
    world.disk.replace_now("/a/log-start-offset-checkpoint", checkpoint)
    again = Broker(world).start()

    assert again.logs.get(T0).leo == 1
    assert again.append().first_offset == 1
