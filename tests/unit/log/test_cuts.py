"""What leaves a log at a start is reported; after a clean shutdown nothing intact leaves it."""

import pytest

from odradek.log.repair.cuts import CutKind
from odradek.model.errors import StartupError
from odradek.record.control import ControlType
from odradek.record.message_set import write_messages
from odradek.record.records import Record
from odradek.sim.world.disk import Crash

BATCH = b"x" * 100  # a batch of 170 bytes
SIZE = 170
LAST = "00000000000000000008.log"


def fill(world, count=10):
    """A log of some batches, two in each segment."""
    world.create(segment_bytes=400)
    for _ in range(count):
        world.append(BATCH)
    world.pass_time()


def closed(world):
    world.log.close(lambda _: None)
    world.pass_time()
    return {name: world.disk.read_file(world.path(name)) for name in world.names()}


def cuts(world):
    return [(cut.kind, cut.offset, cut.end_offset, cut.size_bytes) for cut in world.cuts]


def old_messages(first, magic, count=2):
    records = [Record(None, b"m", 5, (), offset) for offset in range(first, first + count)]
    return write_messages(records, magic=magic)


# --------------------------------------------------------------------------------- reported


@pytest.mark.parametrize(
    ("position", "data", "reason"),
    [
        (150, b"y", "the checksum of the next batch is wrong"),
        (0, bytes(SIZE), "zeros follow"),
        (11, b"\0", "no batch follows (length 0, format v2)"),
        (16, b"\7", "no batch follows (length 158, format v7)"),
        (10, b"\1", "only 340 of the 426 bytes of the next batch are there"),
        (7, b"\3", "the next batch has the offsets 3 to 3, instead of 4"),
    ],
    ids=["checksum", "zeros", "length", "format", "size", "offset"],
)
def test_damage_is_reported_with_offsets_bytes_and_the_reason(world, position, data, reason):
    fill(world)
    world.disk.crash(Crash.PROCESS)
    world.damage("00000000000000000004.log", position, data)
    log = world.load(clean=False, high_watermark=9)

    assert log.leo == 4
    assert cuts(world) == [(CutKind.DAMAGE, 4, None, 6 * SIZE)]
    (cut,) = world.cuts
    assert reason in cut.reason
    assert cut.has_committed
    assert str(cut) == (
        f"t-0: the records from offset 4 on are not in the log any more (1020 bytes, /data/t-0): "
        f"{cut.reason}; those below the high watermark 9 were committed"
    )


@pytest.mark.parametrize("torn", [1, 60, 61, 169])
def test_a_torn_end_is_reported_and_is_no_loss_of_committed_records(world, torn):
    fill(world)
    world.disk.crash(Crash.PROCESS)
    world.disk.file(world.path(LAST)).truncate(SIZE + torn)
    world.load(clean=False, high_watermark=9)

    assert cuts(world) == [(CutKind.DAMAGE, 9, None, torn)]
    assert not world.cuts[0].has_committed


def test_segments_behind_a_gap_are_reported(world):
    fill(world)
    world.disk.crash(Crash.PROCESS)
    world.disk.file(world.path("00000000000000000004.log")).truncate(SIZE)
    world.load(clean=False)

    assert cuts(world) == [(CutKind.GAP, 5, None, 4 * SIZE)]


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_that_ends_below_its_high_watermark_is_reported(world, clean):
    fill(world)
    closed(world)
    world.disk.file(world.path(LAST)).truncate(SIZE)
    world.load(clean=clean, high_watermark=10)

    assert cuts(world) == [(CutKind.MISSING, 9, 10, 0)]
    assert world.cuts[0].has_committed


def test_a_log_that_ends_below_its_log_start_offset_is_reported_as_it_is_emptied(world):
    fill(world)
    world.disk.crash(Crash.PROCESS)
    log = world.load(clean=False, log_start_offset=50)

    assert (log.log_start_offset, log.leo) == (50, 50)
    assert cuts(world) == [(CutKind.LOG_START, 0, 10, 10 * SIZE)]
    assert not world.cuts[0].has_committed


def test_a_torn_end_of_old_messages_is_reported(world):
    world.create()
    world.damage("00000000000000000000.log", 0, bytes(old_messages(0, magic=1, count=3)[:-4]))
    world.disk.crash(Crash.PROCESS)
    log = world.load(clean=False)

    assert log.leo == 2
    assert [(cut.kind, cut.offset) for cut in world.cuts] == [(CutKind.DAMAGE, 2)]
    assert "an incomplete message" in world.cuts[0].reason


@pytest.mark.parametrize("clean", [True, False])
def test_a_whole_log_is_loaded_without_a_report(world, clean):
    fill(world)
    closed(world)
    world.load(clean=clean, high_watermark=10, recovery_point=10)

    assert world.cuts == []


# ------------------------------------------------------------------ after a clean shutdown


@pytest.mark.parametrize("position", [0, 8, 16])
def test_damage_with_an_intact_batch_behind_it_prevents_a_clean_start(world, position):
    fill(world)
    before = closed(world)
    world.damage(LAST, position, b"\xff" * 5)
    with pytest.raises(StartupError, match=r"damaged at position 0 .* from offset 9 on"):
        world.load(clean=True)

    assert world.cuts == []
    left = {name: world.disk.read_file(world.path(name)) for name in world.names()}
    assert left.keys() == before.keys()
    assert {name for name in left if left[name] != before[name]} == {LAST}


@pytest.mark.parametrize("magic", [0, 1])
def test_damage_with_an_intact_old_message_behind_it_prevents_a_clean_start(world, magic):
    fill(world)
    closed(world)
    tail = bytes(200) + b"\1\2" * 50 + bytes(old_messages(12, magic, count=1))
    world.damage(LAST, 2 * SIZE, tail)

    with pytest.raises(StartupError, match="Intact batches from offset 12 on"):
        world.load(clean=True)


def test_bytes_without_an_intact_batch_are_cut_after_a_clean_shutdown_too(world):
    fill(world)
    closed(world)
    almost = bytearray(world.batch(BATCH, base_offset=11))
    almost[-1] ^= 1
    tail = bytes(5_000) + bytes(almost) + bytes(range(256)) * 8 + bytes(2 << 20)
    world.damage(LAST, 2 * SIZE, tail)
    log = world.load(clean=True)

    assert log.leo == 10
    assert cuts(world) == [(CutKind.DAMAGE, 10, None, len(tail))]
    assert world.disk.file(world.path(LAST)).size() == 2 * SIZE


@pytest.mark.parametrize("torn", [1, 60, 61, 169])
def test_an_incomplete_batch_is_no_part_of_the_log_after_a_clean_shutdown(world, torn):
    """As after a copy of the directory that was interrupted."""
    fill(world)
    closed(world)
    world.disk.file(world.path(LAST)).truncate(SIZE + torn)
    log = world.load(clean=True)
    assert log.leo == 9
    world.append(b"next")

    assert [header.base_offset for _, header in log.segments[-1].walk(0)] == [8, 9]
    assert cuts(world) == [(CutKind.DAMAGE, 9, None, torn)]


def aborting(world):
    """Segments with transaction indexes."""
    world.create(segment_bytes=400)
    for sequence in range(8):
        fields = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
        world.append(BATCH, base_sequence=sequence, **fields)
        world.mark(ControlType.ABORT, 7)
    world.pass_time()
    return closed(world)


def test_a_damaged_transaction_index_does_not_cut_behind_damage_in_its_segment(world):
    before = aborting(world)
    first = world.names(".log")[1]
    world.damage(first.replace(".log", ".txnindex"), 0, b"\0\7")
    world.damage(first, SIZE - 1, b"?")
    with pytest.raises(StartupError, match="the checksum of the next batch is wrong"):
        world.load(clean=True)

    assert before.keys() == set(world.names())


@pytest.mark.parametrize("offset", [b"\xff", b"\x10", b"\0\0\0\0\x80"])
def test_an_absurd_offset_at_the_end_is_not_the_end_of_the_log(world, offset):
    fill(world)
    closed(world)
    world.damage(LAST, SIZE, offset)

    assert world.load(clean=True).leo == 9


def test_gaps_between_segments_stay_after_a_clean_shutdown(world):
    aborting(world)
    aborted = world.log.aborted_transactions(0, 99)
    names = world.names(".log")
    base, end = int(names[2][:20]), int(names[3][:20])
    for suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot"):
        world.disk.unlink(world.path(names[2].replace(".log", suffix)))
    world.damage(names[1].replace(".log", ".txnindex"), 0, b"\0\7")
    log = world.load(clean=True)

    assert log.leo == 16
    assert log.aborted_transactions(0, 99) == [
        each for each in aborted if not base <= each.last_offset < end
    ]
    assert world.cuts == []


def test_a_log_start_offset_above_the_log_prevents_a_clean_start(world):
    fill(world)
    before = closed(world)
    with pytest.raises(StartupError, match="ends at offset 10, and .* below 50 were deleted"):
        world.load(clean=True, log_start_offset=50)

    assert {name: world.disk.read_file(world.path(name)) for name in world.names()} == before
