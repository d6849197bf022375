"""Compares what the cleaner of Apache Kafka 3.9.2 left of a log with what ours leaves.

`kafka_3_9_cleaned.zip` has a partition's directory four times: before and after Kafka's first
cleaning, and before and after its second, with as many records written in between. All codecs,
tombstones, headers, an idempotent producer, three transactional ones with commits and aborts. The
topic: cleanup.policy=compact, segment.bytes=5000, index.interval.bytes=400,
delete.retention.ms=1500; Kafka was stopped for each copy, so one round lies between two copies.
"""

import pathlib
import zipfile

import pytest
from tests.unit.log.conftest import DIRECTORY, World

from odradek.log.cleaning.cleaner import cleanable, job_for, make_durable, replace, still_fits
from odradek.log.cleaning.round import cleaning
from odradek.log.log_config import LogConfig
from odradek.record.batch import iter_batches
from odradek.record.records import iter_records

RECORDED = pathlib.Path(__file__).parent / "kafka_3_9_cleaned.zip"
NOW_MS = {1: 1_795_294_770_000, 2: 1_795_294_814_000}
FIRST_DIRTY = {1: 0, 2: 415}
CONFIG = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    segment_bytes=5000,
    index_interval_bytes=400,
    delete_retention_ms=1500,
)


def files(stage):
    with zipfile.ZipFile(RECORDED) as archive:
        names = [name for name in archive.namelist() if name.startswith(f"{stage}/")]
        return {name.partition("/")[2]: archive.read(name) for name in names}


def loaded(stage, wall_ms):
    world = World()
    world.now_ms = wall_ms
    world.config = CONFIG
    world.disk.mkdir(DIRECTORY)
    for name, data in files(stage).items():
        world.disk.create(f"{DIRECTORY}/{name}").write(0, (data,))
    world.load(clean=True)
    world.log.set_high_watermark(world.log.leo)
    return world


def contents(world):
    """Every segment with its batches: header fields without timestamps, and records."""
    found = {}
    for segment in world.log.segments:
        data = bytes(segment.read(0, segment.size, wait=True)) if segment.size else b""
        batches = found[segment.base_offset] = []
        for position, header in iter_batches(data):
            batch = data[position : position + header.size_bytes]
            fields = header._replace(length=0, crc=0, base_timestamp=0)
            batches.append((fields, header.delete_horizon_ms is None, list(iter_records(batch))))
    return found


def clean(world, first_dirty_offset):
    log = world.log
    log.first_dirty_offset = first_dirty_offset
    found = cleanable(log, wall_ms=world.now_ms)
    job = job_for(found, wall_ms=world.now_ms, map_bytes=1 << 24, read_bytes=1 << 20)
    steps = cleaning(job, world.disk)
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            outcome = stop.value
            break
    assert still_fits(log, job, outcome)
    for cleaned in outcome.segments:
        assert replace(log, cleaned)
    make_durable(log, outcome, lambda error: None)
    world.pass_time()
    return outcome


@pytest.mark.parametrize("stage", [1, 2])
def test_our_cleaner_leaves_what_kafkas_leaves(stage):
    ours = loaded(f"before{stage}", NOW_MS[stage])
    outcome = clean(ours, FIRST_DIRTY[stage])
    kafkas = loaded(f"after{stage}", NOW_MS[stage])

    assert outcome.counts.records_kept < outcome.counts.records_read / 2
    assert contents(ours) == contents(kafkas)


@pytest.mark.parametrize("stage", [1, 2])
def test_the_transaction_indexes_are_the_same_as_kafkas(stage):
    ours = loaded(f"before{stage}", NOW_MS[stage])
    clean(ours, FIRST_DIRTY[stage])
    entries = {
        segment.base_offset: [transaction.encode() for transaction in segment.aborted()]
        for segment in ours.log.segments
    }
    kafkas = {
        int(name.partition(".")[0]): [data[at : at + 34] for at in range(0, len(data), 34)]
        for name, data in files(f"after{stage}").items()
        if name.endswith(".txnindex")
    }

    assert {base: found for base, found in entries.items() if found} == {
        base: found for base, found in kafkas.items() if found
    }


def test_the_recorded_cleanings_have_every_case():
    """Tombstones with a delete horizon, removed ones, empty batches."""
    batches = [b for segment in contents(loaded("after2", NOW_MS[2])).values() for b in segment]
    headers = [header for header, _, _ in batches]

    assert any(not horizonless for _, horizonless, _ in batches)
    assert any(header.is_control and not h for header, h, _ in batches)
    assert any(not header.record_count for header in headers)
    assert {header.codec for header in headers} == {0, 1, 2, 3, 4}
    kept = {record.offset for _, _, records in batches for record in records}
    before = [b for segment in contents(loaded("before2", NOW_MS[2])).values() for b in segment]
    deleted = [
        record
        for _, horizonless, records in before
        for record in records
        if not horizonless and record.value is None and record.offset not in kept
    ]
    assert deleted
