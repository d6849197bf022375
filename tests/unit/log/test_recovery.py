"""Loading a log: which files are trusted, rebuilt, or truncated."""

import pytest

from odradek.log.producer_state import NO_OFFSET
from odradek.model.errors import StartupError
from odradek.record.batch import read_header
from odradek.record.control import ControlType
from odradek.record.message_set import write_messages
from odradek.record.records import Record
from odradek.sim.world.disk import Crash

FIRST = "00000000000000000000"
BATCH = b"x" * 100  # a batch of 170 bytes


def fill(world, count=10, **options):
    """A log of some batches, two in each segment."""
    world.create(**{"segment_bytes": 400, **options})
    for _ in range(count):
        world.append(BATCH)
    world.pass_time()
    return world.log


def close(world):
    world.log.close(lambda _: None)
    world.pass_time()


def last_log(world):
    return world.names(".log")[-1]


# ------------------------------------------------------------------------- the torn tail


def test_after_a_crash_of_the_process_all_records_are_recovered(world):
    fill(world, 9)
    world.disk.crash(Crash.PROCESS)
    log = world.load(clean=False)

    assert log.leo == 9
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4, 6, 8]
    world.append(b"more")
    assert log.leo == 10


@pytest.mark.parametrize("cut", [1, 61, 100, 169])
def test_a_torn_batch_at_the_end_is_truncated(world, cut):
    fill(world)
    name = last_log(world)
    world.disk.file(world.path(name)).truncate(340 - cut)
    log = world.load(clean=False)

    assert log.leo == 9
    assert world.disk.file(world.path(name)).size() == 170


@pytest.mark.parametrize(
    "tail", [bytes(100), b"\xff" * 200, bytes(7), b"\0\0\0\0\0\0\0\x0a\0\0\0\x31" + bytes(49)]
)
def test_garbage_at_the_end_is_truncated(world, tail):
    fill(world)
    world.damage(last_log(world), 340, tail)
    log = world.load(clean=False)

    assert log.leo == 10
    assert log.active_segment.size == 340


def test_the_log_is_truncated_at_a_flipped_bit(world):
    fill(world)
    world.damage("00000000000000000004.log", 300, b"\xff")
    log = world.load(clean=False)
    world.pass_time(61_000)

    assert log.leo == 5
    assert world.names(".log")[-1] == "00000000000000000004.log"
    assert world.names(".deleted") == []
    world.append(b"more")
    assert world.load(clean=False).leo == 6


def test_batches_below_the_recovery_point_are_not_read(world):
    fill(world)
    world.damage("00000000000000000000.log", 300, b"\xff")

    assert world.load(clean=False, recovery_point=2).leo == 10
    assert world.load(clean=False, recovery_point=1).leo == 1


def settled(world, count=4):
    """A log of one segment that was settled, and has as many batches again."""
    world.disk.flush_now(["/", "/data"])
    world.create()
    for number in range(2 * count):
        if number == count:
            world.log.settle(lambda _: None)
            world.pass_time()
        world.append(BATCH, producer_id=7, producer_epoch=0, base_sequence=number)
    world.pass_time()
    return world.log.recovery_point


@pytest.mark.parametrize("mode", list(Crash))
def test_a_settled_log_is_read_from_there_on(world, mode):
    point = settled(world)
    assert point == 4
    world.damage(last_log(world), 300, b"\xff")
    world.log.flush()
    world.pass_time()
    world.disk.crash(mode)
    log = world.load(clean=False, recovery_point=point)

    assert log.leo == 8
    assert [log.read(offset, 1, end_offset=8).position for offset in range(8)] == [
        170 * offset for offset in range(8)
    ]
    (producer,) = log.active_producers()
    assert producer.last_sequence == 7
    assert world.append(BATCH, producer_id=7, producer_epoch=0, base_sequence=7).duplicate


def test_a_settled_log_is_truncated_at_a_damaged_batch_behind_that(world):
    point = settled(world)
    world.damage(last_log(world), 170 * 6 + 100, b"\xff")

    assert world.load(clean=False, recovery_point=point).leo == 6


def test_without_the_indexes_of_that_flush_the_whole_segment_is_read(world):
    point = settled(world)
    world.disk.unlink(world.path(FIRST + ".index"))
    world.damage(last_log(world), 300, b"\xff")

    assert world.load(clean=False, recovery_point=point).leo == 1


def test_a_log_truncated_below_that_is_read_from_its_start(world):
    settled(world)
    world.log.truncate_to(2)
    for number in range(2, 8):
        world.append(b"y" * 90, producer_id=7, producer_epoch=0, base_sequence=number)
    world.log.flush()
    world.pass_time()
    assert world.log.recovery_point == 8
    world.disk.crash(Crash.POWER)
    world.damage(last_log(world), 300, b"\xff")

    assert world.load(clean=False, recovery_point=8).leo == 1


LEADER_EPOCHS = "leader-epoch-checkpoint"


@pytest.mark.parametrize("epochs", [b"0\n0\n", b"0\n1\n3 0\n"], ids=["none", "of a later leader"])
def test_a_settled_log_whose_truncation_was_lost_is_read_from_its_start(world, epochs):
    """The truncation was lost in a power failure, and the leader epochs after it are there."""
    point = settled(world)
    world.disk.replace_now(world.path(LEADER_EPOCHS), epochs)
    world.disk.crash(Crash.PROCESS)
    log = world.load(clean=False, recovery_point=point)

    assert log.epochs.starts() == [(0, 0)]
    assert log.leo == 8
    assert log.read(7, 1, end_offset=8).position == 170 * 7


@pytest.mark.parametrize("epochs", [b"0\n0\n", b"0\n1\n3 0\n"], ids=["none", "of a later leader"])
def test_segments_whose_truncation_was_lost_are_read(world, epochs):
    fill(world)
    world.disk.replace_now(world.path(LEADER_EPOCHS), epochs)
    world.disk.crash(Crash.PROCESS)
    log = world.load(clean=False, recovery_point=6)

    assert log.epochs.starts() == [(0, 0)]
    assert log.leo == 10


def test_leader_epochs_without_a_batch_are_no_reason_to_read_all(world):
    """An empty batch range of a leader: its epoch begins behind the last batch below the point."""
    fill(world)
    world.disk.replace_now(world.path(LEADER_EPOCHS), b"0\n2\n0 0\n4 6\n")
    world.damage(FIRST + ".log", 300, b"\xff")
    world.disk.crash(Crash.PROCESS)

    assert world.load(clean=False, recovery_point=6).leo == 10


def test_settling_again_replaces_the_snapshot(world):
    settled(world)
    world.log.settle(lambda _: None)
    world.pass_time()

    assert world.names(".snapshot") == ["00000000000000000008.snapshot"]


def test_a_segment_that_lost_its_tail_at_a_batch_boundary_leaves_no_hole(world):
    fill(world)
    world.disk.file(world.path("00000000000000000004.log")).truncate(170)

    assert world.load(clean=False).leo == 5


def test_a_compacted_log_may_have_gaps_between_segments(world):
    fill(world, cleanup_policy=frozenset({"compact"}))
    world.disk.file(world.path("00000000000000000004.log")).truncate(170)

    assert world.load(clean=False).leo == 10
    assert world.log.read(5, 1000, end_offset=10).segment.base_offset == 6


def test_a_log_that_was_compacted_before_may_have_gaps_below_the_first_dirty_offset(world):
    fill(world)
    world.disk.file(world.path("00000000000000000004.log")).truncate(170)

    assert world.load(clean=False, first_dirty_offset=6).leo == 10
    world.disk.file(world.path("00000000000000000006.log")).truncate(170)
    assert world.load(clean=False, first_dirty_offset=6).leo == 7


def test_a_follower_of_a_log_that_was_compacted_before_loses_nothing_at_gaps(world):
    """The topic is not compacted any more, and only the leader's log was cleaned."""
    world.create(segment_bytes=400)
    for offset in range(0, 20, 2):
        batch = world.batch(BATCH, base_offset=offset)
        world.log.append_as_follower(memoryview(batch))
    assert len(world.log.segments) > 3

    assert world.load(clean=False).leo == 19
    assert [read_header(world.log.read(offset, 1, end_offset=19).data).base_offset
            for offset in range(1, 18, 2)] == list(range(2, 20, 2))  # fmt: skip


def test_a_segment_that_overlaps_the_one_before_is_removed(world):
    fill(world)
    data = world.disk.read_file(world.path("00000000000000000006.log"))
    world.disk.create(world.path("00000000000000000005.log")).write(0, (data,))

    assert world.load(clean=False).leo == 6


def test_recovery_does_not_raise_the_recovery_point(world):
    fill(world)

    assert world.load(clean=False, recovery_point=4).recovery_point == 4
    assert world.load(clean=False, recovery_point=99).recovery_point == 10


def test_damage_after_a_clean_shutdown_is_truncated(world):
    fill(world)
    close(world)
    world.damage(last_log(world), 180, bytes(100))
    log = world.load(clean=True)

    assert log.leo == 9
    assert log.recovery_point == 8


# ------------------------------------------------------------------------------- indexes


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["missing", "torn", "preallocated"])
def test_indexes_are_rebuilt_from_the_log(world, clean, suffix, damage):
    # The default interval is used for an index found damaged when it is read.
    fill(world, 500, segment_bytes=20_000, index_interval_bytes=4096)
    close(world)
    good = {name: world.disk.read_file(world.path(name)) for name in world.names(suffix)}
    assert len(good) > 2
    for name, data in good.items():
        if damage == "missing":
            world.disk.unlink(world.path(name))
        elif damage == "torn":
            world.damage(name, len(data), b"\1")
        else:
            world.damage(name, len(data), bytes(240))
    world.load(clean=clean)
    for offset in range(0, 500, 7):
        assert world.log.read(offset, 1, end_offset=500).size == 170
    assert world.log.offset_for_timestamp(0).offset == 0
    world.append(b"more")
    close(world)
    found = {name: world.disk.read_file(world.path(name)) for name in good}

    assert found.keys() == good.keys()
    for name in sorted(good)[:-1]:
        assert found[name] == good[name]


def test_indexes_without_a_log_are_removed(world):
    fill(world)
    for suffix in (".index", ".timeindex", ".txnindex"):
        world.disk.create(world.path("00000000000000000099" + suffix))
    world.load()

    assert not any(name.startswith("00000000000000000099") for name in world.names())


# ------------------------------------------------------------------------- unfinished renames


def test_deleted_and_cleaned_files_are_removed(world):
    fill(world)
    world.disk.create(world.path("00000000000000000000.log.deleted"))
    world.disk.create(world.path("00000000000000000002.log.cleaned"))
    world.disk.create(world.path("00000000000000000002.index.cleaned"))
    world.load()

    assert world.names("ed") == []
    assert world.log.leo == 10


def compact_into(world, base, *sources, suffix):
    """The result of compacting some segments: here, all their batches in one."""
    data = b"".join(world.disk.read_file(world.path(f"{n:020d}.log")) for n in sources)
    world.disk.create(world.path(f"{base:020d}.log{suffix}")).write(0, (data,))
    world.disk.create(world.path(f"{base:020d}.index{suffix}"))
    world.disk.create(world.path(f"{base:020d}.timeindex{suffix}"))


def test_a_swap_of_a_finished_compaction_is_completed(world):
    fill(world)
    close(world)
    compact_into(world, 2, 2, 4, suffix=".swap")
    log = world.load(clean=False, recovery_point=10)

    assert [segment.base_offset for segment in log.segments] == [0, 2, 6, 8]
    assert log.segments[1].size == 4 * 170
    assert world.names(".swap") == []
    assert [log.read(offset, 1, end_offset=10).size for offset in range(10)] == [170] * 10


def test_a_swap_whose_compaction_had_not_ended_is_undone(world):
    fill(world)
    compact_into(world, 4, 4, 6, suffix=".swap")
    compact_into(world, 2, 2, suffix=".cleaned")
    log = world.load()

    assert [segment.base_offset for segment in log.segments] == [0, 2, 4, 6, 8]
    assert world.names(".swap") + world.names(".cleaned") == []


# ------------------------------------------------------------------------- epochs and offsets


@pytest.mark.parametrize("damage", [None, b"", b"0\n5\n1 0\n", b"\xff\xfe"])
def test_leader_epochs_are_rebuilt_from_the_batches_if_their_file_is_damaged(world, damage):
    world.create(segment_bytes=400)
    for epoch in (0, 0, 1, 4, 4, 4):
        world.append(BATCH, epoch=epoch)
    close(world)
    path = world.path("leader-epoch-checkpoint")
    if damage is None:
        world.disk.unlink(path)
    else:
        world.disk.replace_now(path, damage)

    assert world.load().epochs.starts() == [(0, 0), (1, 2), (4, 3)]


def test_epochs_beyond_the_log_are_removed(world):
    fill(world)
    world.log.assign_epoch(7, 10)
    close(world)

    assert world.load().epochs.starts() == [(0, 0)]


def test_epochs_that_differ_from_the_batches_are_removed(world):
    fill(world, 3)
    world.disk.replace_now(world.path("leader-epoch-checkpoint"), b"0\n2\n0 0\n9 1\n")

    assert world.load(clean=False).epochs.starts() == [(0, 0)]


def test_a_log_that_ends_below_its_log_start_offset_is_emptied(world):
    fill(world)
    log = world.load(clean=False, log_start_offset=50)

    assert (log.log_start_offset, log.leo, log.recovery_point) == (50, 50, 0)
    assert [segment.base_offset for segment in log.segments] == [50]


def test_the_high_watermark_stays_within_the_log(world):
    fill(world)
    close(world)

    assert world.load(high_watermark=99).high_watermark == 10
    assert world.load(high_watermark=3, log_start_offset=5).high_watermark == 5


def test_an_empty_directory_becomes_an_empty_log(world):
    fill(world)
    for name in world.names():
        world.disk.unlink(world.path(name))

    assert world.load(log_start_offset=0).leo == 0
    assert world.names(".log") == [FIRST + ".log"]


# --------------------------------------------------------------------------------- producers


def write(world, producer_id, sequence, **fields):
    return world.append(producer_id=producer_id, producer_epoch=0, base_sequence=sequence, **fields)


def producers(log):
    return sorted(log.active_producers())


@pytest.mark.parametrize("clean", [True, False])
def test_producer_state_is_recovered(world, clean):
    world.create(segment_bytes=500)
    for sequence in range(12):
        write(world, 9, sequence)
        write(world, 8, sequence, transactional=True)
        if sequence % 3 == 2:
            world.mark(ControlType.ABORT, 8, coordinator_epoch=sequence)
    write(world, 8, 12, transactional=True)
    before = producers(world.log), world.log.aborted_transactions(0, 99)
    if clean:
        close(world)
    log = world.load(clean=clean)

    assert (producers(log), log.aborted_transactions(0, 99)) == before
    assert len(before[1]) == 4
    log.set_high_watermark(log.leo)
    assert log.last_stable_offset == log.leo - 1
    assert write(world, 9, 11).duplicate


@pytest.mark.parametrize("damage", [b"\0\7", b"x"])
def test_a_damaged_transaction_index_is_rebuilt(world, damage):
    world.create(segment_bytes=500)
    for sequence in range(12):
        write(world, 8, sequence, transactional=True)
        world.mark(ControlType.ABORT, 8)
    close(world)
    aborted = world.log.aborted_transactions(0, 99)
    name = world.names(".txnindex")[1]
    size = len(world.disk.read_file(world.path(name)))
    world.damage(name, 0 if len(damage) > 1 else size, damage)

    assert world.load().aborted_transactions(0, 99) == aborted
    assert len(aborted) == 12


@pytest.mark.parametrize("torn", [0, 34, 35])
def test_zeros_behind_the_flushed_part_of_a_transaction_index_are_no_transactions(world, torn):
    """After a power failure the file has its new size, and zeros for what was not written."""
    world.create()
    for sequence in range(6):
        if sequence == 3:
            world.log.settle(lambda _: None)
            world.pass_time()
        write(world, 8, sequence, transactional=True)
        world.mark(ControlType.ABORT, 8)
    aborted = world.log.aborted_transactions(0, 99)
    assert len(aborted) == 6
    world.damage(FIRST + ".txnindex", 3 * 34 + torn, bytes(3 * 34 - torn))
    log = world.load(clean=False, recovery_point=world.log.recovery_point)

    assert log.aborted_transactions(0, 99) == aborted


def test_a_transaction_index_with_zeros_between_its_entries_is_rebuilt(world):
    """As recovery from a settled log left it after a power failure, before it refused zeros."""
    world.create()
    for sequence in range(3):
        write(world, 8, sequence, transactional=True)
        world.mark(ControlType.ABORT, 8)
    aborted = world.log.aborted_transactions(0, 99)
    close(world)
    data = world.disk.read_file(world.path(FIRST + ".txnindex"))
    world.damage(FIRST + ".txnindex", 34, bytes(34) + data[34:])

    assert world.load().aborted_transactions(0, 99) == aborted


def test_a_damaged_snapshot_is_not_used(world):
    world.create(segment_bytes=500)
    for sequence in range(12):
        write(world, 9, sequence)
    close(world)
    before = producers(world.log)
    for name in world.names(".snapshot"):
        world.damage(name, 12, b"\xff")

    assert producers(world.load()) == before
    assert producers(world.load(clean=False)) == before


def test_a_truncated_transaction_is_not_open(world):
    world.create()
    write(world, 9, 0)
    write(world, 9, 1, transactional=True)
    world.disk.file(world.path(FIRST + ".log")).truncate(world.log.active_segment.size - 1)
    log = world.load(clean=False)

    assert log.producers.first_unstable_offset == NO_OFFSET
    assert not write(world, 9, 1).duplicate


def test_snapshots_without_a_segment_are_removed_except_the_newest(world):
    fill(world)
    close(world)
    data = world.disk.read_file(world.path("00000000000000000010.snapshot"))
    for offset in (1, 3, 99):
        world.disk.create(world.path(f"{offset:020d}.snapshot")).write(0, (data,))
    world.load()

    assert [int(name[:20]) for name in world.names(".snapshot")] == [2, 4, 6, 8, 10]


# ------------------------------------------------------------------------- old formats


def test_bytes_that_resemble_an_old_message_are_damage(world):
    world.create()
    message = write_messages([Record(None, b"v" * 50, -1, (), 0)], magic=1)
    message[-1] ^= 1
    world.damage(FIRST + ".log", 0, message)

    assert world.load(clean=False).leo == 0


def test_a_malformed_topic_id_is_refused(world):
    world.create()
    world.pass_time()
    world.disk.replace_now(world.path("partition.metadata"), b"version: 0\ntopic_id: ???")
    with pytest.raises(StartupError, match="partition.metadata"):
        world.load()


def test_an_empty_partition_metadata_is_ignored(world):
    world.create()
    world.pass_time()
    world.disk.replace_now(world.path("partition.metadata"), b"")

    assert world.load().topic_id is None


# --------------------------------------------------------------------------------- costs


def test_a_clean_start_opens_only_files_with_needed_content(world):
    fill(world, 2)
    close(world)
    reads = []
    read_file = world.disk.read_file
    world.disk.read_file = lambda path: reads.append(path) or read_file(path)
    world.load()

    assert [path.rpartition("/")[2] for path in reads] == [
        "partition.metadata",
        "leader-epoch-checkpoint",
    ]
