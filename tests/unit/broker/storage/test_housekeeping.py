"""Recurring work runs by monotonic time; what has expired is decided by wall time."""

import asyncio

import pytest
from tests.unit.broker.live import fetch, play, produce

from odradek.log.checkpoints import (
    HIGH_WATERMARK_FILE,
    LOG_START_OFFSET_FILE,
    RECOVERY_POINT_FILE,
    decode_offsets,
)
from odradek.model.partition import TopicPartition
from odradek.sim.world.disk import DiskFault

T0 = TopicPartition("t", 0)
HOUR_MS = 3_600_000
WORKS = {
    "applying_retention": (30, 300),
    "checkpoint_recovery_points": (60, 60),
    "checkpoint_log_start_offsets": (60, 60),
    "checkpoint_high_watermarks": (5, 5),
    "flush_overdue": (1, 1),
    "expiring_producers": (600, 600),
}


def spied_on(live):
    """When each kind of work was done, in seconds from now."""
    done = {name: [] for name in WORKS}
    started = live.loop.time()

    def spy(name, work):
        def wrapped():
            done[name].append(live.loop.time() - started)
            return work()

        return wrapped

    logs = live.broker.logs
    for name in WORKS:
        setattr(logs, name, spy(name, getattr(logs, name)))
    live.broker.housekeeping.stop()
    live.broker.housekeeping.start(live.broker.config)
    return done


@pytest.mark.parametrize(
    "jumps",
    [
        pytest.param({}, id="an even wall clock"),
        pytest.param({500: HOUR_MS, 1000: -2 * HOUR_MS, 1500: HOUR_MS}, id="one that jumps"),
    ],
)
def test_every_work_keeps_its_interval_whatever_the_wall_clock_does(jumps):
    async def story(live):
        done = spied_on(live)
        for second in range(2000):
            live.clock.skew_ms += jumps.get(second, 0)
            await asyncio.sleep(1)
        await asyncio.sleep(0.5)  # so that the work that is due at the end is done
        for name, (first, interval) in WORKS.items():
            expected = list(range(first, 2001, interval))
            assert done[name] == pytest.approx(expected, abs=0.3), name

    play(story, log_retention_check_interval_ms=300_000)


def test_old_segments_go_by_wall_time_forth_and_back():
    async def story(live):
        await live.topic("t", retention_ms=2 * HOUR_MS, segment_bytes=1024)
        for _ in range(6):
            live.append(b"x" * 500)
        log = live.log()
        segments = len(log.segments)
        assert segments > 2

        live.clock.skew_ms += HOUR_MS
        await asyncio.sleep(301)
        assert len(log.segments) == segments, "an hour too early is not yet too old"
        live.clock.skew_ms -= 2 * HOUR_MS
        live.append(b"y" * 500)
        await asyncio.sleep(301)
        assert len(log.segments) >= segments, "written in the past, and as good as the others"
        live.clock.skew_ms += HOUR_MS
        await asyncio.sleep(2 * 3600 - 1200)
        assert log.log_start_offset == 0
        await asyncio.sleep(1900)

        assert log.log_start_offset == log.leo == 7, "all of it is two hours old now"
        answer = await live.peer().ask(fetch({("t", 0): 7}, max_wait_ms=0), 12)
        assert answer.responses[0].partitions[0].log_start_offset == 7
        await live.peer().ask(produce(live.batch(b"z")))
        assert log.leo == 8

    play(story)


def test_the_checkpoints_have_the_present_offsets():
    async def story(live):
        await live.topic("t", flush_messages=1)
        for _ in range(10):
            live.append(b"a")
        await live.until(lambda: live.log().high_watermark == 10)
        live.log().advance_log_start(4)
        await asyncio.sleep(61)
        path = live.broker.logs.directory_of(live.log())

        def checkpointed(name):
            return decode_offsets(live.disk.read_file(f"{path}/{name}"))[T0]

        assert checkpointed(HIGH_WATERMARK_FILE) == 10
        assert checkpointed(LOG_START_OFFSET_FILE) == 4
        assert checkpointed(RECOVERY_POINT_FILE) == 10

    play(story)


def test_logs_that_are_not_appended_to_any_more_are_settled():
    async def story(live):
        for name in ("t", "busy", "small"):
            await live.topic(name, index_interval_bytes=4096)
        for name, count in (("t", 20), ("busy", 20), ("small", 10)):
            for _ in range(count):
                live.append(b"x" * 10_000, name=name)
        for _ in range(130):
            live.append(b"a", name="busy")
            await asyncio.sleep(1)
        points = {name: live.log(name).recovery_point for name in ("t", "busy", "small")}
        assert points == {"t": 20, "busy": 0, "small": 0}
        await asyncio.sleep(120)

        assert live.log("busy").recovery_point == 150
        assert live.log("small").recovery_point == 0
        path = live.broker.logs.directory_of(live.log())
        assert decode_offsets(live.disk.read_file(f"{path}/{RECOVERY_POINT_FILE}"))[T0] == 20
        names = {entry.name for entry in live.disk.list(live.log().directory)}
        assert {f"{20:020d}.snapshot", f"{0:020d}.index"} <= names

    play(story)


def test_a_log_with_much_that_is_not_flushed_is_settled_while_it_is_appended_to(monkeypatch):
    monkeypatch.setattr("odradek.broker.storage.settling.UNSETTLED_BYTES_MAX", 150_000)

    async def story(live):
        await live.topic("t", index_interval_bytes=4096)
        for _ in range(65):
            live.append(b"x" * 10_000)
            await asyncio.sleep(1)

        assert 50 < live.log().recovery_point < 65

    play(story)


def test_flush_ms_is_kept():
    async def story(live):
        await live.topic("t", flush_ms=5000)
        await live.topic("never")
        for name in ("t", "never"):
            live.append(b"a", name=name)
        await asyncio.sleep(4)
        assert live.log().recovery_point == 0
        await asyncio.sleep(3)

        assert live.log().recovery_point == 1
        assert live.log("never").recovery_point == 0

    play(story)


def test_idle_connections_are_closed_but_not_those_with_a_waiting_request():
    async def story(live):
        await live.topic("t")
        silent, waiting, busy = live.peer(), live.peer(), live.peer()
        waiting.send(fetch({("t", 0): 0}, max_wait_ms=HOUR_MS), 12)
        for _ in range(20):
            await asyncio.sleep(1)
            await busy.ask(fetch({("t", 0): 0}, max_wait_ms=0), 12)

        assert silent.closed
        assert not waiting.closed
        assert not busy.closed

    play(story, connections_max_idle_ms=10_000)


def test_idle_producers_expire_by_wall_time():
    async def story(live):
        await live.topic("t")
        live.append(b"a", producer_id=5, producer_epoch=0, base_sequence=0)
        await asyncio.sleep(601)
        assert len(live.log().producers) == 1
        live.clock.skew_ms += 24 * HOUR_MS
        await asyncio.sleep(601)

        assert len(live.log().producers) == 0

    play(story)


def test_a_disk_that_fails_under_housekeeping_goes_offline_and_the_others_are_kept():
    async def story(live):
        await live.topic("t", 2, retention_ms=HOUR_MS, segment_bytes=1024)
        for index in (0, 1):
            for _ in range(6):
                live.append(b"x" * 500, index=index)
        lost, kept = (live.broker.logs.directory_of(live.log(index=n)) for n in (0, 1))
        assert lost != kept
        live.clock.skew_ms += 2 * HOUR_MS
        log = live.log(index=1)
        live.disk.faults.append(DiskFault("rename", f"{lost}/t-0/", times=1 << 30))
        await asyncio.sleep(301)

        assert live.broker.logs.is_offline(lost)
        assert not live.broker.logs.is_offline(kept)
        assert log.log_start_offset == 6
        live.disk.faults.clear()

    play(story)


def test_retention_of_many_logs_leaves_the_loop_to_others():
    async def story(live):
        await live.topic("t", 200)
        live.clock.ms_per_reading = 1
        turns = 0
        task = asyncio.ensure_future(live.broker.housekeeping._retain())
        while not task.done():
            await asyncio.sleep(0)
            turns += 1
        await task

        assert turns > 200 / 6, "a millisecond for each log here: five at most at once"

    play(story)


def test_work_that_fails_is_logged_counted_and_repeated(caplog):
    async def story(live):
        logs, housekeeping = live.broker.logs, live.broker.housekeeping
        done = []

        def fails_twice():
            done.append(live.loop.time())
            if len(done) <= 2:
                raise ValueError("a bug")

        logs.flush_overdue = fails_twice
        housekeeping.stop()
        housekeeping.start(live.broker.config)
        await asyncio.sleep(4.5)
        assert len(done) == 4
        assert housekeeping.failures == 2
        assert [r.getMessage() for r in caplog.records if r.exc_info] == [
            "flush failed; tried again in 1000 ms"
        ] * 2

    play(story)


def test_all_work_can_be_done_at_once():
    async def story(live):
        done = []
        live.broker.housekeeping.also(3_600_000, lambda: done.append("hourly"))
        live.broker.housekeeping.stop()
        live.broker.housekeeping.start(live.broker.config)
        await live.broker.housekeeping.do_all()
        assert done == ["hourly"]

    play(story)
