"""The log cleaner in a broker: which logs it cleans, gives up and cleans again."""

import asyncio
import json

from tests.unit.broker.live import play
from tests.unit.log.conftest import World

from odradek.broker.storage.cleaner_process import CleanerDiedError
from odradek.broker.storage.cleaner_shell import InlineCleaner
from odradek.broker.storage.cleaner_worker import paced, serve
from odradek.log.cleaning.cleaner import cleanable, job_for
from odradek.log.cleaning.round import CleaningOutcome
from odradek.log.system.disk import RealDisk
from odradek.record.batch import read_header
from odradek.record.records import Record, build_batch, iter_records

OPTIONS = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0, "segment_bytes": 1000}


def write(live, log, *pairs):
    batch = bytes(build_batch([Record(k, v, live.clock.wall_ms()) for k, v in pairs]))
    log.append_as_leader(batch, read_header(batch), leader_epoch=0)
    log.set_high_watermark(log.leo)


def values(log):
    found = {}
    for segment in log.segments:
        for position, header in segment.walk(0):
            data = segment.read(position, header.size_bytes, wait=True)
            for record in iter_records(data):
                found[record.offset] = (record.key, record.value)
    return found


def gauge(live, name):
    return live.broker.metrics.read_gauge[f"kafka_log_{name}"]()


def test_a_dirty_log_is_cleaned_and_the_checkpoint_has_the_offset():
    async def story(live):
        await live.topic("t", **OPTIONS)
        log = live.log()
        for n in range(5):
            write(live, log, (b"a", b"%d" % n))
        log.roll()
        await live.until(lambda: log.first_dirty_offset == 5)

        assert values(log) == {4: (b"a", b"4")}
        path = f"{log.directory.rpartition('/')[0]}/cleaner-offset-checkpoint"
        await live.until(lambda: live.disk.read_file(path) == b"0\n1\nt 0 5\n")
        assert gauge(live, "logcleaner_max_buffer_utilization_percent") > 0
        assert 0 < gauge(live, "logcleaner_cleaner_recopy_percent") < 100
        assert gauge(live, "logcleanermanager_time_since_last_run_ms") < 20_000
        await live.restart()
        assert live.log().first_dirty_offset == 5

    play(story)


def test_where_a_log_was_cleaned_is_known_when_its_topic_is_not_compacted_any_more():
    """After a crash, recovery accepts a gap between segments below the first dirty offset."""

    async def story(live):
        await live.topic("t", **OPTIONS)
        log = live.log()
        for n in range(5):
            write(live, log, (b"a", b"%d" % n))
        log.roll()
        await live.until(lambda: log.first_dirty_offset == 5)
        live.broker.settings.set_topic("t", {**OPTIONS, "cleanup.policy": "delete"})
        live.broker.replicas.topic_config_changed("t")
        assert not log.config.is_compacted
        live.broker.logs.checkpoint_first_dirty_offsets()  # as when another log is cleaned
        await live.restart()
        assert live.log().first_dirty_offset == 5

    play(story)


def test_a_topic_that_is_not_compacted_is_left():
    async def story(live):
        await live.topic("t", segment_bytes=1000)
        log = live.log()
        write(live, log, (b"a", b"1"), (b"a", b"2"))
        log.roll()
        await asyncio.sleep(60)

        assert len(values(log)) == 2

    play(story)


def test_a_cleaner_that_is_off_does_nothing():
    async def story(live):
        await live.topic("t", **OPTIONS)
        log = live.log()
        write(live, log, (b"a", b"1"), (b"a", b"2"))
        log.roll()
        await asyncio.sleep(60)

        assert len(values(log)) == 2

    play(story, log_cleaner_enable="false")


def test_a_damaged_log_is_given_up_and_counted_and_others_are_cleaned():
    async def story(live):
        await live.topic("t", 2, **OPTIONS)
        damaged, sound = live.log("t", 0), live.log("t", 1)
        for log in (damaged, sound):
            write(live, log, (b"a", b"1"), (b"a", b"2"))
            log.roll()
        live.disk.file(damaged.segments[0].file.path).write(65, (b"\xff\xff",))
        await live.until(lambda: sound.first_dirty_offset == 2)
        await live.until(lambda: live.broker.cleaner.uncleanable)

        assert list(live.broker.cleaner.uncleanable) == [damaged.partition]
        rows = live.broker.metrics.read_gauges[
            "kafka_log_logcleanermanager_uncleanable_partitions_count"
        ]()
        assert sum(count for _, count in rows) == 1
        assert not live.failures

    play(story)


def meanwhile(monkeypatch, happens):
    """After the first round, before the shell gets its outcome, something happens to the log."""
    rounds = []
    whole = InlineCleaner.run

    async def run(self, job, *, bytes_per_second):
        outcome = await whole(self, job, bytes_per_second=bytes_per_second)
        rounds.append(outcome)
        if len(rounds) == 1:
            happens()
        return outcome

    monkeypatch.setattr(InlineCleaner, "run", run)
    return rounds


def test_a_round_is_repeated_when_the_log_was_cut_meanwhile(monkeypatch):
    async def story(live):
        await live.topic("t", **OPTIONS)
        log = live.log()
        write(live, log, (b"a", b"1"), (b"b", b"1"))
        log.roll()
        write(live, log, (b"a", b"2"))
        log.roll()
        rounds = meanwhile(monkeypatch, lambda: log.truncate_to(2))
        await live.until(lambda: rounds)
        await asyncio.sleep(0.1)

        assert values(log)[0] == (b"a", b"1")  # for what replaced it is not there any more
        assert not [e for e in live.disk.list(log.directory) if e.name.endswith(".cleaned")]
        write(live, log, (b"a", b"3"))
        log.roll()
        await live.until(lambda: log.first_dirty_offset == 3)
        assert values(log) == {1: (b"b", b"1"), 2: (b"a", b"3")}

    play(story)


def test_a_topic_that_was_deleted_meanwhile_is_no_failure(monkeypatch):
    async def story(live):
        await live.topic("t", **OPTIONS)
        log = live.log()
        write(live, log, (b"a", b"1"), (b"a", b"2"))
        log.roll()
        rounds = meanwhile(monkeypatch, lambda: live.broker.logs.delete(log.partition))
        await live.until(lambda: rounds)
        await asyncio.sleep(0.1)

        assert not live.broker.cleaner.uncleanable
        assert not live.failures
        assert not live.broker.logs.has_offline_dir

    play(story)


def test_a_cleaner_that_crashes_is_replaced_and_only_many_crashes_mark_the_log_uncleanable(
    monkeypatch,
):
    async def story(live, deaths):
        await live.topic("t", **OPTIONS)
        log = live.log()
        write(live, log, (b"a", b"1"), (b"a", b"2"))
        log.roll()
        whole = InlineCleaner.run
        tried = []

        async def run(self, job, *, bytes_per_second):
            tried.append(job)
            if len(tried) <= deaths:
                raise CleanerDiedError("killed")
            return await whole(self, job, bytes_per_second=bytes_per_second)

        monkeypatch.setattr(InlineCleaner, "run", run)
        await live.until(lambda: log.first_dirty_offset == 2 or live.broker.cleaner.uncleanable)
        return log.first_dirty_offset, len(tried)

    async def twice(live):
        assert await story(live, 2) == (2, 3)

    async def for_ever(live):
        assert await story(live, 99) == (0, 3)

    play(twice, log_cleaner_backoff_ms=100)
    monkeypatch.undo()
    play(for_ever, log_cleaner_backoff_ms=100)


def test_the_worker_does_a_job_and_reports_damage_and_missing_files(tmp_path):
    directory = tmp_path / "t-0"
    directory.mkdir()
    disk = RealDisk(call_soon=lambda callback, *arguments: callback(*arguments))
    request = _request(disk, str(directory))

    answer = json.loads(json.dumps(serve(request, disk)))
    outcome = CleaningOutcome.from_json(answer["outcome"])
    assert (outcome.end_offset, outcome.counts.records_kept) == (3, 2)
    assert (directory / f"{0:020d}.log.cleaned").stat().st_size == outcome.segments[0].size

    log = directory / f"{0:020d}.log"
    log.write_bytes(log.read_bytes()[:-1] + b"\xff")
    assert "checksum" in serve(request, disk)["damage"]
    log.unlink()
    assert serve(request, disk)["storage"][1] == 2


def _request(disk, directory):
    world = World()
    log = world.create(cleanup_policy=frozenset({"compact"}))
    built = [Record(b"a", b"1"), Record(b"b", b"2"), Record(b"a", b"3")]
    world.append_batch(bytes(build_batch(built)))
    log.set_high_watermark(3)
    log.roll()
    for name in world.names():
        file = disk.create(f"{directory}/{name}")
        file.write(0, (world.disk.read_file(world.path(name)),))
        file.rest()
    found = cleanable(log, wall_ms=world.now_ms)
    job = job_for(found, wall_ms=world.now_ms, map_bytes=1 << 20, read_bytes=1 << 20)
    return {"job": {**job.to_json(), "directory": directory}, "bytes_per_second": 1e18}


def test_a_round_takes_no_more_than_it_may_read_and_write():
    now_s = 0.0
    waits = []

    def wait(seconds):
        nonlocal now_s
        waits.append(seconds)
        now_s += seconds

    def steps():
        for _ in range(100):
            yield 1000
        return CleaningOutcome(end_offset=7)

    assert paced(steps(), 10_000, lambda: now_s, wait).end_offset == 7
    assert round(sum(waits), 6) == 10.0
