"""Which log is cleaned, how far, what stays, and what happens if the log has changed."""

import json

import pytest

from odradek.log.cleaning.cleaner import (
    Stamp,
    cleanable,
    dirtiest,
    job_for,
    make_durable,
    replace,
    still_fits,
)
from odradek.log.cleaning.round import (
    CleaningJob,
    CleaningOutcome,
    cleaning,
    grouped,
    remove_cleaned,
)
from odradek.model.partition import TopicPartition
from odradek.record.batch import CorruptBatchError, iter_batches, read_header
from odradek.record.compression import Codec
from odradek.record.control import ControlType
from odradek.record.records import (
    InvalidRecordError,
    Record,
    assemble,
    build_batch,
    iter_records,
)

COMPACT = frozenset({"compact"})
MANY = 1 << 20


def keyed(world, *pairs, **fields):
    """Append one batch of keys and values."""
    records = [Record(key, value, world.now_ms) for key, value in pairs]
    appended = world.append_batch(bytes(build_batch(records, **fields)))
    world.log.set_high_watermark(world.log.leo)
    return appended


def create(world, **options):
    return world.create(**{"cleanup_policy": COMPACT, "segment_bytes": 100_000, **options})


def job_of(world, map_bytes=MANY):
    found = cleanable(world.log, wall_ms=world.now_ms)
    return job_for(found, wall_ms=world.now_ms, map_bytes=map_bytes, read_bytes=1 << 16)


def run(job, disk):
    steps = cleaning(CleaningJob.from_json(job.to_json()), disk)
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return CleaningOutcome.from_json(stop.value.to_json())


def clean(world, map_bytes=MANY):
    """Roll, and run one whole round of cleaning."""
    world.log.roll()
    job = job_of(world, map_bytes)
    outcome = run(job, world.disk)
    assert still_fits(world.log, job, outcome)
    for cleaned in outcome.segments:
        assert replace(world.log, cleaned)
    make_durable(world.log, outcome, lambda error: None)
    world.pass_time()
    return outcome


def batches(world):
    found = []
    for segment in world.log.segments:
        data = bytes(segment.read(0, segment.size, wait=True)) if segment.size else b""
        found += [(header, data[at : at + header.size_bytes]) for at, header in iter_batches(data)]
    return found


def records(world):
    return [
        (record.offset, record.key, record.value)
        for header, data in batches(world)
        if not header.is_control
        for record in iter_records(data)
    ]


# --------------------------------------------------------------------------------- what stays


def test_the_last_record_of_each_key_stays_at_its_offset(world):
    create(world)
    keyed(world, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    keyed(world, (b"c", b"1"), (b"b", b"2"))
    clean(world)

    assert records(world) == [(2, b"a", b"2"), (3, b"c", b"1"), (4, b"b", b"2")]
    assert [(h.base_offset, h.last_offset) for h, _ in batches(world)] == [(0, 2), (3, 4)]
    assert world.log.leo == 5
    assert world.log.first_dirty_offset == 5


def test_a_batch_without_removed_records_keeps_its_bytes(world):
    create(world)
    keyed(world, (b"a", b"1"), (b"b", b"1"), codec=Codec.GZIP)
    before = batches(world)
    clean(world)

    assert batches(world) == before


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_with_removed_records_keeps_its_codec_and_timestamps(world, codec):
    create(world)
    keyed(world, (b"a", b"1" * 50), (b"b", b"2" * 50), (b"a", b"3" * 50), codec=codec)
    clean(world)
    ((header, data),) = batches(world)

    assert header.codec == codec
    assert [(r.key, r.value, r.timestamp) for r in iter_records(data)] == [
        (b"b", b"2" * 50, world.now_ms - 1000),
        (b"a", b"3" * 50, world.now_ms - 1000),
    ]


def test_the_max_timestamp_is_that_of_the_remaining_records(world):
    create(world)
    built = [Record(b"a", b"x", 900), Record(b"b", b"y", 500), Record(b"a", b"z", 100)]
    world.append_batch(bytes(build_batch(built)))
    world.log.set_high_watermark(3)
    clean(world)
    ((header, data),) = batches(world)

    assert header.max_timestamp == 500
    assert [record.timestamp for record in iter_records(data)] == [500, 100]
    assert world.log.segments[0].max_timestamp == 500


def test_a_record_in_the_clean_part_is_removed_for_a_later_one_with_its_key(world):
    create(world)
    keyed(world, (b"a", b"1"), (b"b", b"1"))
    clean(world)
    keyed(world, (b"a", b"2"))
    clean(world)

    assert records(world) == [(1, b"b", b"1"), (2, b"a", b"2")]


def test_a_tombstone_is_removed_after_delete_retention_ms(world):
    create(world, delete_retention_ms=5000)
    keyed(world, (b"a", b"1"), (b"b", b"1"))
    keyed(world, (b"a", None))
    cleaned_ms = world.now_ms
    clean(world)

    assert records(world) == [(1, b"b", b"1"), (2, b"a", None)]
    header, data = batches(world)[1]
    assert header.delete_horizon_ms == cleaned_ms + 5000
    assert next(iter_records(data)).timestamp == cleaned_ms
    keyed(world, (b"c", b"1"))
    world.now_ms = cleaned_ms + 4999
    clean(world)
    assert (2, b"a", None) in records(world)
    keyed(world, (b"d", b"1"))
    world.now_ms = cleaned_ms + 5000
    clean(world)
    assert records(world) == [(1, b"b", b"1"), (3, b"c", b"1"), (4, b"d", b"1")]


def test_the_last_batch_of_a_round_stays_even_if_it_is_empty(world):
    create(world)
    keyed(world, (b"a", b"1"), producer_id=7, producer_epoch=0, base_sequence=0,
          transactional=True)  # fmt: skip
    world.mark(ControlType.ABORT, 7)
    keyed(world, (None, b"of no key"))
    clean(world)

    header, _ = batches(world)[-1]
    assert (header.base_offset, header.record_count) == (2, 0)


def test_the_last_batch_of_a_producer_stays_for_its_sequence(world):
    create(world)
    fields = {"producer_id": 7, "producer_epoch": 3}
    keyed(world, (b"a", b"1"), base_sequence=0, **fields)
    keyed(world, (b"a", b"2"), (b"a", b"3"), base_sequence=1, **fields)
    keyed(world, (b"a", b"4"))
    clean(world)

    (first, _), (second, _) = batches(world)
    assert (first.base_offset, first.last_sequence, first.record_count) == (1, 2, 0)
    assert first.producer_epoch == 3
    assert second.base_offset == 3
    (known,) = world.load(clean=False).active_producers()
    assert (known.last_sequence, known.last_offset) == (2, 2)


def test_aborted_records_are_removed_and_their_marker_after_them(world):
    create(world, delete_retention_ms=1000)
    fields = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    keyed(world, (b"a", b"aborted"), base_sequence=0, **fields)
    world.mark(ControlType.ABORT, 7)
    keyed(world, (b"a", b"committed"), base_sequence=1, **fields)
    world.mark(ControlType.COMMIT, 7)
    keyed(world, (b"b", b"1"))
    clean(world)

    assert records(world) == [(2, b"a", b"committed"), (4, b"b", b"1")]
    kinds = [(h.base_offset, h.is_control, h.delete_horizon_ms) for h, _ in batches(world)]
    assert kinds[0] == (1, True, None)  # there is data of its transaction
    assert world.log.aborted_transactions(0, 5)
    keyed(world, (b"c", b"1"))
    clean(world)
    assert next(h.delete_horizon_ms is None for h, _ in batches(world)) is False
    assert not world.log.aborted_transactions(0, 5)
    world.pass_time(2000)
    keyed(world, (b"d", b"1"))
    clean(world)
    assert [h.base_offset for h, _ in batches(world)] == [2, 3, 4, 5, 6]


def test_a_commit_marker_stays_while_records_of_its_transaction_do(world):
    create(world, delete_retention_ms=0)
    keyed(world, (b"a", b"1"), producer_id=7, producer_epoch=0, base_sequence=0,
          transactional=True)  # fmt: skip
    world.mark(ControlType.COMMIT, 7)
    for n in range(4):
        keyed(world, (b"b", b"%d" % n))
        clean(world)

    assert [(h.base_offset, h.delete_horizon_ms) for h, _ in batches(world)][:2] == [
        (0, None),
        (1, None),
    ]


def test_records_without_a_key_are_removed_and_counted(world):
    create(world)
    keyed(world, (None, b"x"), (b"a", b"1"))
    outcome = clean(world)

    assert records(world) == [(1, b"a", b"1")]
    assert outcome.counts.keyless == 1


# ------------------------------------------------------------------------------ how far, and when


def test_records_above_the_last_stable_offset_are_not_cleaned(world):
    create(world)
    keyed(world, (b"a", b"1"))
    world.log.roll()
    keyed(world, (b"a", b"2"), producer_id=7, producer_epoch=0, base_sequence=0,
          transactional=True)  # fmt: skip
    world.log.roll()
    found = cleanable(world.log, wall_ms=world.now_ms)

    assert found.end_offset == 1
    world.mark(ControlType.COMMIT, 7)
    world.log.set_high_watermark(world.log.leo)
    assert cleanable(world.log, wall_ms=world.now_ms).end_offset == 2


def test_records_above_the_high_watermark_are_not_cleaned(world):
    create(world)
    keyed(world, (b"a", b"1"))
    world.log.roll()
    world.append_batch(bytes(build_batch([Record(b"a", b"2", world.now_ms)])))
    world.log.roll()

    assert cleanable(world.log, wall_ms=world.now_ms).end_offset == 1


def test_records_younger_than_the_compaction_lag_are_not_cleaned(world):
    create(world, min_compaction_lag_ms=10_000)
    keyed(world, (b"a", b"1"))
    world.log.roll()
    world.pass_time(10_000)
    keyed(world, (b"a", b"2"))
    world.log.roll()

    assert cleanable(world.log, wall_ms=world.now_ms).end_offset == 1
    assert cleanable(world.log, wall_ms=world.now_ms + 10_000).end_offset == 2


def test_a_log_is_due_by_its_dirty_ratio(world):
    create(world, min_cleanable_dirty_ratio=0.5)
    keyed(world, (b"a", b"1"))
    clean(world)
    assert not cleanable(world.log, wall_ms=world.now_ms).is_due
    keyed(world, (b"b", b"1"))
    world.log.roll()
    assert cleanable(world.log, wall_ms=world.now_ms).ratio == 0.5
    assert not cleanable(world.log, wall_ms=world.now_ms).is_due
    keyed(world, (b"c", b"1"))
    world.log.roll()
    found = cleanable(world.log, wall_ms=world.now_ms)
    assert found.is_due
    assert dirtiest([found]) == found


def test_a_log_is_due_when_its_oldest_dirty_record_is_too_old(world):
    create(world, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=5000)
    keyed(world, (b"a", b"1"))
    world.log.roll()
    assert not cleanable(world.log, wall_ms=world.now_ms + 5000).is_due
    found = cleanable(world.log, wall_ms=world.now_ms + 5001)
    assert found.is_due
    assert found.overdue_ms == 1


def test_the_active_segment_is_rolled_after_the_max_compaction_lag(world):
    create(world, max_compaction_lag_ms=5000)
    keyed(world, (b"a", b"1"))
    world.pass_time(5001)
    keyed(world, (b"a", b"2"))

    assert [segment.base_offset for segment in world.log.segments] == [0, 1]


def test_several_rounds_clean_what_does_not_fit_into_the_offset_map(world):
    create(world)
    for n in range(6):
        keyed(world, (b"key%d" % (n % 3), b"%d" % n))
    rounds = 0
    while cleanable(world.log, wall_ms=world.now_ms).cleanable_bytes or not rounds:
        clean(world, map_bytes=1)
        rounds += 1

    assert rounds == 6  # a batch at a time
    assert records(world) == [(3, b"key0", b"3"), (4, b"key1", b"4"), (5, b"key2", b"5")]


# --------------------------------------------------------------------------------- its segments


def test_small_segments_are_merged(world):
    create(world, segment_bytes=500)
    for n in range(12):
        keyed(world, (b"k%d" % (n % 2), b"x" * 80))
    assert len(world.log.segments) >= 4
    clean(world)
    keyed(world, (b"k9", b"x" * 80))
    clean(world)

    assert [segment.base_offset for segment in world.log.segments] == [0, 13]
    assert [record[0] for record in records(world)] == [10, 11, 12]
    assert world.names(".snapshot")[0] > "00000000000000000000.snapshot"


def test_segments_with_distant_offsets_are_not_merged(world):
    create(world)
    log = world.log
    keyed(world, (b"a", b"1"))
    log.roll((1 << 31) + 5)
    keyed(world, (b"b", b"1"))
    log.roll()
    job = job_of(world)

    assert [[s.base_offset for s in group] for group in grouped(job.segments, job, world.disk)] == [
        [0],
        [(1 << 31) + 5],
    ]


def test_the_indexes_of_the_cleaned_segment_point_to_its_batches(world):
    create(world)
    for n in range(60):
        keyed(world, (b"key%d" % (n % 50), b"x" * 30))
    clean(world)
    segment = world.log.segments[0]
    offset_index, time_index = segment.indexes()

    assert len(offset_index) > 10
    assert time_index.last().timestamp == segment.max_timestamp
    for header, _ in batches(world):
        found = world.log.read(header.last_offset, 1, end_offset=world.log.leo)
        assert read_header(found.data) == header


# ------------------------------------------------------------- what has changed meanwhile


def prepared(world):
    create(world)
    keyed(world, (b"a", b"1"))
    world.log.roll()
    keyed(world, (b"a", b"2"))
    world.log.roll()
    keyed(world, (b"b", b"1"))
    stamp, job = Stamp.of(world.log), job_of(world)
    return stamp, job, run(job, world.disk)


def test_an_unchanged_log_has_the_same_stamp(world):
    stamp, job, outcome = prepared(world)
    keyed(world, (b"c", b"1"))  # an append does not change that

    assert Stamp.of(world.log) == stamp
    assert still_fits(world.log, job, outcome)


def test_a_truncated_log_has_another_stamp(world):
    stamp, *_ = prepared(world)
    world.log.truncate_to(2)

    assert Stamp.of(world.log) != stamp


def test_a_log_with_another_leader_epoch_has_another_stamp(world):
    stamp, *_ = prepared(world)
    world.log.assign_epoch(4, world.log.leo)

    assert Stamp.of(world.log) != stamp


def test_a_deleted_log_has_no_stamp(world):
    prepared(world)
    world.log.removed = True

    assert Stamp.of(world.log) is None


def test_a_log_with_deleted_segments_does_not_fit(world):
    _, job, outcome = prepared(world)
    world.log.advance_log_start(1)
    world.log.delete_old_segments(world.now_ms)

    assert not still_fits(world.log, job, outcome)
    assert not replace(world.log, outcome.segments[0])


def test_the_cleaned_files_have_to_exist(world):
    _, job, outcome = prepared(world)
    remove_cleaned(job, world.disk)

    assert not still_fits(world.log, job, outcome)
    assert world.names(".cleaned") == []


def test_a_truncation_in_the_clean_part_lowers_the_first_dirty_offset(world):
    create(world)
    for n in range(4):
        keyed(world, (b"a", b"%d" % n))
    clean(world)
    assert world.log.first_dirty_offset == 4
    world.log.truncate_to(3)

    assert world.log.first_dirty_offset == world.log.leo == 0  # the log is empty
    world.log.truncate_fully_and_start_at(9)
    assert world.log.first_dirty_offset == 9


def test_a_first_dirty_offset_beyond_the_log_is_ignored(world):
    create(world)
    keyed(world, (b"a", b"1"))
    world.log.roll()
    world.log.first_dirty_offset = 99

    assert cleanable(world.log, wall_ms=world.now_ms).first_dirty_offset == 0


# ------------------------------------------------------------------------------------- damage


def test_a_flipped_bit_is_reported_and_all_files_are_removed(world):
    create(world)
    keyed(world, (b"a", b"1"))
    world.log.roll()
    world.damage("00000000000000000000.log", 65, b"\xff")

    with pytest.raises(CorruptBatchError, match="checksum"):
        run(job_of(world), world.disk)
    assert world.names(".cleaned") == []


def test_an_incomplete_batch_is_reported(world):
    create(world)
    keyed(world, (b"a", b"1"))
    world.log.roll()
    job = job_of(world)
    world.disk.file(world.path("00000000000000000000.log")).truncate(40)

    with pytest.raises(CorruptBatchError):
        run(job, world.disk)


def test_corrupt_records_are_reported(world):
    create(world)
    batch = bytearray(build_batch([Record(b"a", b"1", 5)]))
    header = read_header(batch)
    world.append_batch(bytes(assemble(header, b"\xff" * 9)))
    world.log.set_high_watermark(1)
    world.log.roll()

    with pytest.raises(InvalidRecordError):
        run(job_of(world), world.disk)


def test_a_job_survives_json(world):
    create(world)
    keyed(world, (b"a", b"x"), producer_id=7, producer_epoch=0, base_sequence=0,
          transactional=True)  # fmt: skip
    world.mark(ControlType.ABORT, 7)
    world.log.set_high_watermark(2)
    world.log.roll()
    job = job_of(world)
    assert job.aborted
    assert job.producers
    assert CleaningJob.from_json(json.loads(json.dumps(job.to_json()))) == job
    outcome = run(job, world.disk)
    assert CleaningOutcome.from_json(json.loads(json.dumps(outcome.to_json()))) == outcome
    assert world.log.partition == TopicPartition("t", 0)
