"""A coordinator's log: loaded in slices, served when committed, given up with the leadership."""

import asyncio
import errno
import gc
import itertools
import weakref

import pytest
from tests.unit.broker.live import play

from odradek.broker.coordinators.coordinator_log import CoordinatorTopic
from odradek.log.disk import StorageError
from odradek.model.errors import ErrorCode
from odradek.record.compression import Codec
from odradek.record.control import ControlType
from odradek.record.coordinator import MarkerReplayed, RecordSkipped, Replayed
from odradek.record.records import Record, build_batch
from odradek.sim.world.disk import DiskFault

LEADER, FOLLOWER = 0, 2


class Recorder:
    """A machine that keeps what is replayed."""

    def __init__(self) -> None:
        self.taken = []

    def handle(self, event, now):
        effects = []
        match event:
            case MarkerReplayed(producer_id, committed):
                self.taken.append((committed, producer_id))
            case Replayed(records, producer_id):
                for record in records:
                    if record.value == b"damaged":
                        effects.append(RecordSkipped(record.offset, "the value is damaged"))
                    else:
                        self.taken.append((record.key, record.value, producer_id))
        return effects


class FailsOnce(Recorder):
    """A machine that fails at the first event, once."""

    def handle(self, event, now):
        if not self.taken:
            self.taken.append(None)
            raise ZeroDivisionError
        return super().handle(event, now)


class Stage:
    def __init__(self, live, **options) -> None:
        broker = live.broker
        self.live = live
        self.loaded, self.unloaded = [], []
        self.topic = CoordinatorTopic(
            "t",
            replicas=broker.replicas,
            purgatory=broker.purgatory,
            clock=live.clock,
            tasks=broker.tasks,
            **{"make": Recorder, "partition_count": lambda: 1, **options},
        )
        self.topic.loaded = self.loaded.append
        self.topic.unloaded = self.unloaded.append
        broker.replicas.role_changed = self.topic.role_changed

    async def led(self):
        await self.live.until(lambda: self.topic.serving)
        return self.topic.serving[0]

    async def taken(self):
        return (await self.led()).machine.taken

    def lead(self):
        """What is there already, as if it had just been given to us."""
        self.topic.role_changed(self.live.partition())

    def callback(self):
        """A caller that waits for an append, and the results that it got."""
        self.results = []
        return self.results.append


def record(key, value=b"v"):
    return Record(key, value, 1_000)


def follower_fetched(live, offset):
    partition = live.partition()
    live.broker.replicas.follower_fetched(
        partition, FOLLOWER, offset, live.clock.monotonic_ms(), -1
    )


def test_what_the_log_holds_is_replayed_in_its_order():
    async def story(live):
        await live.topic("t")
        live.append_batch(build_batch([record(b"a"), record(b"b", None)]))
        live.append_batch(
            build_batch([record(b"c")], producer_id=7, producer_epoch=0, transactional=True)
        )
        live.mark(ControlType.COMMIT, 7)
        live.append_batch(
            build_batch([record(b"d")], producer_id=8, producer_epoch=0, transactional=True)
        )
        live.mark(ControlType.ABORT, 8)
        live.append_batch(build_batch([record(b"e")], producer_id=9, producer_epoch=0))
        stage = Stage(live)
        stage.lead()

        assert await stage.taken() == [
            (b"a", b"v", -1),
            (b"b", None, -1),
            (b"c", b"v", 7),
            (True, 7),
            (b"d", b"v", 8),
            (False, 8),
            (b"e", b"v", -1),
        ]
        assert [led.machine.taken for led in stage.loaded] == [await stage.taken()]

    play(story)


def test_while_it_loads_it_answers_load_in_progress_and_otherwise_not_coordinator():
    async def story(live):
        await live.topic("t")
        live.append_batch(build_batch([record(b"a")]))
        stage = Stage(live)
        assert stage.topic.find("g") is ErrorCode.NOT_COORDINATOR
        stage.lead()
        assert stage.topic.find("g") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert stage.topic.is_loading
        led = await stage.led()
        assert stage.topic.find("g") is led
        assert not stage.topic.is_loading
        live.partition().stop_serving(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        stage.lead()

        assert stage.topic.find("g") is ErrorCode.NOT_COORDINATOR
        assert stage.unloaded == [led]
        assert led.is_over

    play(story)


def test_a_topic_that_is_not_known_has_no_coordinator_here():
    async def story(live):
        stage = Stage(live, partition_count=lambda: 0)

        assert stage.topic.find("g") is ErrorCode.NOT_COORDINATOR

    play(story)


def test_other_topics_are_not_our_affair():
    async def story(live):
        stage = Stage(live)
        await live.topic("other")

        assert not stage.topic.serving
        assert not stage.topic.is_loading

    play(story)


def test_an_append_is_done_when_all_in_sync_have_it():
    async def story(live):
        stage = Stage(live)
        await live.order("t", replicas=(LEADER, FOLLOWER))
        led = await stage.led()
        led.append([(b"k", b"v")], stage.callback(), timeout_ms=1_000)
        await asyncio.sleep(0.5)
        assert stage.results == []
        follower_fetched(live, 1)
        await asyncio.sleep(0.001)  # a timer of 0 s wakes what waits

        assert stage.results == [ErrorCode.NONE]
        stage.lead()  # nothing new

    play(story)


def test_an_append_that_no_other_replica_has_to_have_is_done_at_once():
    async def story(live):
        stage = Stage(live)
        await live.topic("t")
        led = await stage.led()
        led.append([(b"k", b"v"), (b"l", None)], stage.callback(), timeout_ms=1_000)

        assert stage.results == [ErrorCode.NONE]
        assert live.log().leo == 2

    play(story)


def test_an_append_that_is_not_committed_in_time_is_timed_out_once():
    async def story(live):
        stage = Stage(live)
        await live.order("t", replicas=(LEADER, FOLLOWER))
        led = await stage.led()
        led.append([(b"k", b"v")], stage.callback(), timeout_ms=1_000)
        await asyncio.sleep(1.1)
        assert stage.results == [ErrorCode.REQUEST_TIMED_OUT]
        follower_fetched(live, 1)
        await asyncio.sleep(1)

        assert stage.results == [ErrorCode.REQUEST_TIMED_OUT]

    play(story)


def test_an_append_that_waits_when_leadership_is_lost_gets_not_coordinator():
    async def story(live):
        stage = Stage(live)
        await live.order("t", replicas=(LEADER, FOLLOWER))
        led = await stage.led()
        led.append([(b"k", b"v")], stage.callback(), timeout_ms=60_000)
        await live.order("t", leader=FOLLOWER, leader_epoch=1, replicas=(LEADER, FOLLOWER))
        await asyncio.sleep(0.001)

        assert stage.results == [ErrorCode.NOT_COORDINATOR]
        led.append([(b"k", b"v")], stage.callback(), timeout_ms=60_000)
        assert stage.results == [ErrorCode.NOT_COORDINATOR]
        assert led.write([(b"k", None)]) is ErrorCode.NOT_COORDINATOR

    play(story)


def test_too_few_in_sync_are_no_coordinator_and_nothing_is_appended():
    async def story(live):
        stage = Stage(live)
        await live.order("t", replicas=(LEADER, FOLLOWER), isr=(LEADER,))
        led = await stage.led()
        live.partition().config_changed(live.partition().rules, isr_min=2, monotonic_ms=0)
        led.append([(b"k", b"v")], stage.callback(), timeout_ms=1_000)

        assert stage.results == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        assert live.log().leo == 0

    play(story)


def test_what_is_too_large_for_the_topic_is_refused():
    async def story(live):
        await live.topic("t", max_message_bytes=1_000)
        stage = Stage(live)
        stage.lead()
        led = await stage.led()
        led.append([(b"k", bytes(2_000))], stage.callback(), timeout_ms=1_000)

        assert stage.results == [ErrorCode.MESSAGE_TOO_LARGE]

    play(story)


def test_a_producer_of_an_older_epoch_is_fenced():
    async def story(live):
        stage = Stage(live)
        await live.topic("t")
        led = await stage.led()
        for epoch in (1, 1, 0):
            led.append(
                [(b"k", b"v")],
                stage.callback(),
                timeout_ms=1_000,
                producer_id=7,
                producer_epoch=epoch,
            )
            assert stage.results == [ErrorCode.NONE if epoch else ErrorCode.INVALID_PRODUCER_EPOCH]
        assert live.log().leo == 2

    play(story)


def test_a_coordinator_without_descriptors_stays_the_coordinator():
    """A prepared transaction waits for another attempt, which only a coordinator makes."""

    async def story(live):
        stage = Stage(live)
        await live.topic("t")
        led = await stage.led()
        live.log().rest()
        live.disk.faults.append(DiskFault("open", live.log().directory, errno.EMFILE))
        led.append([(b"k", b"v")], stage.callback(), timeout_ms=1_000)

        assert stage.results == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        assert not live.broker.logs.has_offline_dir
        assert stage.topic.find("g") is led
        led.append([(b"k", b"v")], stage.callback(), timeout_ms=1_000)
        assert live.log().leo == 1

    play(story)


def test_a_disk_that_fails_takes_the_coordinator_along(monkeypatch):
    async def story(live):
        stage = Stage(live)
        await live.topic("t")
        led = await stage.led()

        directory = live.log().directory

        def fail(*_, **__):
            raise StorageError(directory, 5)

        monkeypatch.setattr(type(live.partition()), "append", fail)
        led.append([(b"k", b"v")], stage.callback(), timeout_ms=1_000)

        assert stage.results == [ErrorCode.NOT_COORDINATOR]
        assert stage.topic.find("g") is ErrorCode.NOT_COORDINATOR

    play(story)


@pytest.mark.parametrize("is_cold", [True, False])
def test_a_load_that_fails_because_descriptors_are_exhausted_continues_where_it_failed(is_cold):
    async def story(live):
        await live.topic("t", **{"segment.bytes": "200"})
        values = [b"%d" % number for number in range(9)]
        for value in values:
            live.append_batch(build_batch([record(b"k", value)]))
        assert len(live.log().segments) > 3
        live.disk.cold_share = float(is_cold)
        fault = DiskFault("read", "t-0", errno.EMFILE, after=2, times=3)
        live.disk.faults.append(fault)
        stage = Stage(live)
        stage.lead()
        assert stage.topic.find("g") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

        assert [value for _, value, _ in await stage.taken()] == values
        assert fault.times == 0
        assert not live.broker.logs.has_offline_dir

    play(story)


@pytest.mark.parametrize("is_cold", [True, False])
def test_a_disk_that_fails_while_the_log_is_loaded_is_taken_offline(is_cold):
    async def story(live):
        await live.topic("t")
        live.append_batch(build_batch([record(b"a")]))
        live.disk.cold_share = float(is_cold)
        live.disk.faults.append(DiskFault("read", "t-0"))
        stage = Stage(live)
        stage.lead()
        await live.until(lambda: live.broker.logs.has_offline_dir)

        assert stage.topic.find("g") is ErrorCode.NOT_COORDINATOR
        assert stage.loaded == []

    play(story)


def test_an_error_of_ours_does_not_leave_a_partition_loading_for_ever():
    async def story(live):
        await live.topic("t")
        live.append_batch(build_batch([record(b"a"), record(b"b")]))
        stage = Stage(live, make=FailsOnce)
        stage.lead()

        assert (await stage.taken())[-2:] == [(b"a", b"v", -1), (b"b", b"v", -1)]

    play(story)


def test_it_serves_only_after_all_replayed_records_are_committed():
    async def story(live):
        await live.order("t", replicas=(LEADER, FOLLOWER))
        live.append_batch(build_batch([record(b"a")]))
        stage = Stage(live)
        stage.lead()
        await asyncio.sleep(1)
        assert stage.topic.find("g") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        live.append_batch(build_batch([record(b"b")]))  # as a marker may be, meanwhile
        follower_fetched(live, 1)

        assert await stage.taken() == [(b"a", b"v", -1), (b"b", b"v", -1)]

    play(story)


def test_leadership_that_is_lost_while_loading_leaves_nothing_behind():
    async def story(live):
        await live.order("t", replicas=(LEADER, FOLLOWER))
        live.append_batch(build_batch([record(b"a")]))
        stage = Stage(live)
        stage.lead()
        await asyncio.sleep(1)
        await live.order("t", leader=FOLLOWER, leader_epoch=1, replicas=(LEADER, FOLLOWER))
        await asyncio.sleep(1)

        assert stage.topic.find("g") is ErrorCode.NOT_COORDINATOR
        assert stage.loaded == []
        assert len(stage.unloaded) == 1

    play(story)


def test_another_leader_epoch_begins_with_a_new_machine():
    async def story(live):
        stage = Stage(live)
        await live.order("t", replicas=(LEADER,))
        first = await stage.led()
        first.append([(b"k", b"v")], stage.callback(), timeout_ms=1_000)
        await live.order("t", leader_epoch=1, partition_epoch=1, replicas=(LEADER,))
        second = await stage.led()

        assert stage.unloaded == [first]
        assert (first.coordinator_epoch, second.coordinator_epoch) == (0, 1)
        assert second.machine.taken == [(b"k", b"v", -1)]

    play(story)


def test_others_have_their_turn_while_it_loads():
    async def story(live):
        await live.topic("t")
        for _ in range(50):
            live.append_batch(build_batch([record(b"a")] * 100))
        taken_at = []

        class Slow(Recorder):
            def handle(self, event, now):
                live.loop.spend(0.0005 * len(event.records))  # half a millisecond each
                return super().handle(event, now)

        stage = Stage(live, make=Slow)

        stage.lead()

        async def others():
            while not stage.topic.serving:
                await asyncio.sleep(0)
                taken_at.append(live.clock.monotonic_ms())

        await others()
        gaps = [later - sooner for sooner, later in itertools.pairwise(taken_at)]
        assert len((await stage.led()).machine.taken) == 5_000
        assert max(gaps) <= 5 + 16  # a slice, and what is taken at a step

    play(story)


@pytest.mark.parametrize("codec", Codec)
def test_appended_batches_are_compressed_as_the_option_says(codec):
    async def story(live):
        stage = Stage(live, codec=lambda: codec)
        await live.topic("t")
        led = await stage.led()
        led.append([(b"k", bytes(500))], stage.callback(), timeout_ms=1_000)
        live.partition().stop_serving(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        stage.lead()
        await live.order("t", leader_epoch=5, topic_id=live.partition().topic_id, replicas=(0,))

        assert await stage.taken() == [(b"k", bytes(500), -1)]
        assert (live.log().size_bytes > 500) is (codec is Codec.NONE)

    play(story)


# ------------------------------------------------------------------------------- damage


def test_a_record_that_the_machine_skips_is_reported_with_its_offset(caplog):
    async def story(live):
        await live.topic("t")
        live.append_batch(build_batch([record(b"a"), record(b"b", b"damaged"), record(b"c")]))
        stage = Stage(live)
        stage.lead()

        assert [key for key, *_ in await stage.taken()] == [b"a", b"c"]
        assert stage.topic.corrupt_records == 1
        assert (
            "t-0 in leader epoch 0: skipped a corrupt record at offset 1: the value is damaged"
            in caplog.text
        )

    play(story)


def damage(live, at):
    """Turn a byte of the log over."""
    file = live.log().segments[0].file
    data = bytearray(file.read(0, live.log().size_bytes))
    data[at] ^= 0xFF
    file.write(0, (bytes(data),))


def test_a_batch_with_a_wrong_checksum_is_reported_with_its_offset(caplog):
    async def story(live):
        await live.topic("t")
        first = build_batch([record(b"a"), record(b"b")])
        for batch in (first, first, build_batch([record(b"c")])):
            live.append_batch(batch)
        damage(live, len(first) + 70)
        stage = Stage(live)
        stage.lead()

        assert [key for key, *_ in await stage.taken()] == [b"a", b"b", b"c"]
        assert "skipped a corrupt record at offset 2: the checksum is wrong" in caplog.text

    play(story)


def test_after_a_damaged_length_the_next_segment_is_replayed(caplog):
    async def story(live):
        await live.topic("t")
        first = build_batch([record(b"a")])
        live.append_batch(first)
        live.append_batch(build_batch([record(b"b")]))
        live.append_batch(build_batch([record(b"c")]))
        damage(live, len(first) + 16)  # the magic
        live.log().roll()
        live.append_batch(build_batch([record(b"d")]))
        stage = Stage(live)
        stage.lead()

        assert [key for key, *_ in await stage.taken()] == [b"a", b"d"]
        assert "at offset 1:" in caplog.text
        assert "the rest of its segment is skipped" in caplog.text

    play(story)


def test_the_machine_of_an_earlier_leader_epoch_is_freed_without_a_garbage_collection():
    async def story(live):
        await live.order("t", replicas=(LEADER,))
        stage = Stage(live)
        stage.lead()
        freed = weakref.ref((await stage.led()).machine)
        stage.loaded.clear()
        gc.disable()
        try:
            await live.order("t", leader_epoch=1, partition_epoch=1, replicas=(LEADER,))
            stage.unloaded.clear()
            await live.until(lambda: freed() is None)
        finally:
            gc.enable()

    play(story)
