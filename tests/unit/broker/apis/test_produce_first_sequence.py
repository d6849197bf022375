"""The first sequence of a producer in a partition, in particular after a refusal (KAFKA-15591)."""

import asyncio

from tests.unit.broker.live import play, produce, produced

from odradek.model.errors import ErrorCode
from odradek.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)

T0 = ("t", 0)
UNKNOWN_PRODUCER = ErrorCode.UNKNOWN_PRODUCER_ID
UNKNOWN_TOPIC = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
TOO_FEW = ErrorCode.NOT_ENOUGH_REPLICAS


def sequenced(live, sequence, count=1, producer_id=7):
    return live.batch(
        *[b"x"] * count, producer_id=producer_id, producer_epoch=0, base_sequence=sequence
    )


async def answer_to(live, peer, *batch):
    return produced(await peer.ask(produce(sequenced(live, *batch), acks=-1)))[T0]


def set_min_isr(live, count):
    live.broker.settings.set_topic("t", {"min.insync.replicas": str(count)})


def test_the_second_batch_is_refused_like_the_first_until_the_first_is_appended():
    async def story(live):
        await live.topic("other")
        peer = live.peer()
        assert await answer_to(live, peer, 0, 5) is UNKNOWN_TOPIC
        await live.topic("t")
        assert await answer_to(live, peer, 5, 2) is UNKNOWN_TOPIC
        assert await answer_to(live, peer, 0, 5) == 0
        assert await answer_to(live, peer, 5, 2) == 5

    play(story)


def test_the_first_batch_of_a_log_begins_with_sequence_0():
    async def story(live):
        await live.topic("t")
        peer = live.peer()
        answer = await peer.ask(produce(sequenced(live, 5, 2), acks=-1))
        (part,) = answer.responses[0].partition_responses
        # Java's producer goes on in a new epoch only if it learns where the log begins.
        assert (part.error_code, part.log_start_offset) == (UNKNOWN_PRODUCER, 0)
        assert live.log().leo == 0
        assert await answer_to(live, peer, 0, 5) == 0
        assert await answer_to(live, peer, 5, 2) == 5

    play(story)


def test_a_producer_may_begin_with_any_sequence_where_its_records_may_have_been_deleted():
    async def story(live):
        await live.topic("t")
        peer = live.peer()
        assert await answer_to(live, peer, 0) == 0
        assert await answer_to(live, peer, 30, 1, 8) == 1  # its state may have expired
        partition = DeleteRecordsPartition(partition_index=0, offset=2)
        topic = DeleteRecordsTopic(name="t", partitions=[partition])
        await peer.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=1_000))
        assert live.log().log_start_offset == live.log().leo == 2
        assert await answer_to(live, peer, 40, 1, 9) == 2

    play(story)


def test_a_batch_does_not_overtake_a_refused_one_between_records_of_others():
    async def story(live):
        await live.order(isr=(0,))
        live.append(b"of another")
        peer = live.peer()
        set_min_isr(live, 2)
        assert await answer_to(live, peer, 0, 5) is TOO_FEW
        assert await answer_to(live, peer, 5, 2) is TOO_FEW
        set_min_isr(live, 1)
        assert await answer_to(live, peer, 5, 2) is TOO_FEW
        assert await answer_to(live, peer, 0, 1, 8) == 1  # another producer does not wait for it
        assert await answer_to(live, peer, 5, 2) is TOO_FEW
        assert await answer_to(live, peer, 0, 5) == 2
        assert await answer_to(live, peer, 5, 2) == 7

    play(story)


def test_a_refused_batch_may_be_repeated_if_its_sequence_is_not_0():
    async def story(live):
        await live.order(isr=(0,))
        live.append(b"of another")
        peer = live.peer()
        set_min_isr(live, 2)
        assert await answer_to(live, peer, 30) is TOO_FEW
        set_min_isr(live, 1)
        assert await answer_to(live, peer, 31) is TOO_FEW
        assert await answer_to(live, peer, 30) == 1
        assert await answer_to(live, peer, 31) == 2

    play(story)


def test_a_refused_batch_that_is_not_repeated_holds_the_next_ones_for_10_seconds():
    async def story(live):
        await live.order(isr=(0,))
        live.append(b"of another")
        peer = live.peer()
        set_min_isr(live, 2)
        assert await answer_to(live, peer, 0) is TOO_FEW
        set_min_isr(live, 1)
        await asyncio.sleep(9)
        assert await answer_to(live, peer, 1) is TOO_FEW
        await asyncio.sleep(1)
        assert await answer_to(live, peer, 1) == 1

    play(story)
