"""With flush.messages a produce request is answered after the flush, as in Kafka."""

import pytest
from tests.unit.broker.live import play, produce

from odradek.model.errors import ErrorCode
from odradek.sim.world.disk import DiskFault


def only(response):
    (topic,) = response.responses
    (part,) = topic.partition_responses
    return part


def test_a_produce_that_reaches_flush_messages_is_answered_when_it_is_durable():
    async def story(live):
        await live.topic("t", flush_messages=2)
        peer = live.peer()
        assert peer.send(produce(live.batch(b"a"), acks=1)).done(), "one may be lost"

        second = peer.send(produce(live.batch(b"b"), acks=1))
        assert not second.done()
        assert live.log().recovery_point < 2
        assert only(await second).base_offset == 1
        assert live.log().recovery_point == 2

    play(story)


def test_flush_before_ack_holds_for_every_topic_and_every_acks():
    async def story(live):
        await live.topic("t")
        for acks in (1, -1):
            answer = await live.peer().ask(produce(live.batch(b"a"), acks=acks))
            assert live.log().recovery_point == only(answer).base_offset + 1

    play(story, odradek_flush_before_ack=True)


def test_a_failed_flush_is_answered():
    async def story(live):
        await live.topic("t", flush_messages=1)
        live.disk.faults.append(DiskFault("flush", "t-0"))

        answer = await live.peer().ask(produce(live.batch(b"a"), acks=1))
        assert only(answer).error_code == ErrorCode.KAFKA_STORAGE_ERROR

    play(story)


def test_records_are_not_readable_before_their_flush():
    async def story(live):
        await live.topic("t", flush_messages=2)
        for number, value in enumerate((b"a", b"b", b"c", b"d", b"e", b"f")):
            live.append(value)
            assert live.log().high_watermark <= live.log().recovery_point + 1
            if number == 3:
                await live.until(lambda: live.log().recovery_point)
        assert live.log().high_watermark < 6
        await live.until(lambda: live.log().high_watermark == 6)
        assert live.log().recovery_point >= 5

    play(story)


@pytest.mark.parametrize("begin", ["roll", "overdue"])
def test_a_flush_that_no_append_began_does_not_postpone_the_flush_of_an_append(begin):
    async def story(live):
        await live.topic("t", flush_messages=3, flush_ms=0)
        live.append(b"a")
        live.append(b"b")
        if begin == "roll":
            live.log().roll()
        else:
            live.log().flush_if_overdue(live.clock.monotonic_ms())
        live.append(b"c")
        live.append(b"d")
        # 1. The flush under way began at offset 2. 2. Nothing is appended after offset 3.
        await live.until(lambda: live.log().recovery_point >= 2)
        await live.until(lambda: live.log().high_watermark == 4)

    play(story)


def test_records_that_a_new_leader_has_not_flushed_are_readable_after_their_flush():
    async def story(live):
        await live.order("t", replicas=(0, 2, 3))
        live.append(b"a")
        await live.order("t", replicas=(0, 2, 3), isr=(0,), leader_epoch=1)
        assert (live.log().high_watermark, live.log().recovery_point) == (0, 0)
        await live.until(lambda: live.log().high_watermark)
        assert (live.log().high_watermark, live.log().recovery_point) == (1, 1)

    play(story, odradek_flush_before_ack=True)


def test_the_only_replica_has_its_whole_log_committed_at_once_after_a_restart():
    async def story(live):
        await live.order("t", replicas=(0, 2, 3))
        live.append(b"a")
        await live.order("t", replicas=(0,), leader_epoch=1)
        assert (live.log().high_watermark, live.log().recovery_point) == (1, 0)

    play(story, odradek_flush_before_ack=True)
