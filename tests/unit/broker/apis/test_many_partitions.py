"""Produce and Fetch requests of thousands of partitions are handled in turns with other work."""

import pytest
from tests.unit.broker.live import Live, fetch, fetched, part_of, play, produce, produced, soon

from odradek.model.errors import ErrorCode
from odradek.record.compression import Codec
from odradek.record.records import Record, build_batch
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.fetch import FetchPartition

MANY = 5_000
LED = 3
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
LARGE = 5 << 20  # when it is decompressed


def to_many(live, **led):
    """A batch for each of many partitions; `led` are the batches for partitions led here."""
    batches = {("t", number): live.batch(b"x") for number in range(MANY)}
    return batches | {("t", int(name[1:])): batch for name, batch in led.items()}


def compressed(live):
    return build_batch([Record(b"k", bytes(LARGE), live.clock.wall_ms())], codec=Codec.ZSTD)


def from_many(offset=0):
    return {
        ("t", number): FetchPartition(fetch_offset=offset, partition_max_bytes=1 << 20)
        for number in range(MANY)
    }


@pytest.mark.parametrize("version", [7, 8, 9, 12])
def test_a_produce_to_many_partitions_lets_others_go_first_and_is_not_overtaken(version):
    async def story(live: Live):
        await live.topic("t", LED)
        peer = live.peer()
        answer = peer.send(produce(to_many(live)), version)
        behind = peer.send(produce(live.batch(b"b")), 9)
        other = live.peer().send(ApiVersionsRequest(), 0)

        assert other.done()
        assert not answer.done()
        found = produced(await soon(answer))
        assert found == {("t", n): UNKNOWN if n >= LED else 0 for n in range(MANY)}
        assert produced(await soon(behind)) == {("t", 0): 1}

    play(story)


def test_a_refused_batch_among_many_is_blamed_in_slices_too():
    async def story(live: Live):
        await live.topic("t", LED)
        bad = bytearray(live.batch(b"x"))
        bad[16] = 9  # its magic
        answer = await soon(live.peer().send(produce(to_many(live, p1=bytes(bad))), 12))
        (topic,) = answer.responses

        assert [part.index for part in topic.partition_responses] == list(range(MANY))
        assert produced(answer)["t", 0] == 0
        assert topic.partition_responses[1].error_code != ErrorCode.NONE

    play(story)


def test_a_produce_with_acks_0_closes_the_connection_if_one_of_many_partitions_fails():
    async def story(live: Live):
        await live.topic("t", LED)
        peer = live.peer()
        peer.send(produce(to_many(live), acks=0), answered=False)
        await live.until(lambda: peer.closed)

        assert live.log().leo == 1

    play(story)


def test_large_records_among_many_partitions_are_looked_into_before_they_are_appended():
    async def story(live: Live):
        await live.topic("t", LED)
        answer = live.peer().send(produce(to_many(live, p1=compressed(live))), 9)

        assert produced(await soon(answer))["t", 1] == 0
        assert live.log("t", 1).leo == 1

    play(story)


def test_a_produce_with_acks_all_to_many_partitions_waits_for_all_replicas():
    async def story(live: Live):
        await live.order(replicas=[0, 1], isr=[0, 1])
        answer = live.peer().send(produce(to_many(live), acks=-1, timeout_ms=500), 9)
        await live.until(lambda: live.log().leo == 1)

        assert not answer.done()
        assert produced(await answer)["t", 0] == ErrorCode.REQUEST_TIMED_OUT

    play(story)


def test_a_client_that_disconnects_leaves_nothing_behind():
    async def story(live: Live):
        await live.order(replicas=[0, 1], isr=[0, 1])
        peer = live.peer()
        peer.send(produce(to_many(live), acks=-1, timeout_ms=500), 9)
        await live.until(lambda: live.log().leo == 1)
        peer.hang_up()
        answer = live.peer().send(produce(live.batch(b"b"), acks=1), 9)

        assert produced(await soon(answer)) == {("t", 0): 1}

    play(story)


@pytest.mark.parametrize("version", [7, 12])
def test_a_damaged_produce_to_many_partitions_ends_the_connection(version):
    async def story(live: Live):
        await live.topic("t", LED)
        batches = to_many(live)
        for number in range(40_000):
            batches["u", number] = b""
        peer = live.peer()
        peer.send(produce(batches), version, answered=False)
        await live.until(lambda: peer.closed)

        assert live.log().leo == 0

    play(story)


@pytest.mark.parametrize("max_wait_ms", [0, 100])
def test_a_fetch_of_many_partitions_lets_others_go_first(max_wait_ms):
    async def story(live: Live):
        await live.topic("t", LED)
        await live.peer().ask(produce(live.batch(b"a")))
        peer = live.peer()
        answer = peer.send(fetch(from_many(), max_wait_ms=max_wait_ms), 12)
        behind = peer.send(fetch({("t", 0): 0}), 12)
        other = live.peer().send(ApiVersionsRequest(), 0)

        assert other.done()
        assert not answer.done()
        found = fetched(await soon(answer))
        assert found["t", 0] == [b"a"]
        assert found["t", LED] == UNKNOWN
        assert len(found) == MANY
        assert part_of(await soon(behind)).records

    play(story)


def test_a_fetch_of_many_partitions_waits_for_records():
    async def story(live: Live):
        await live.topic("t", MANY)
        answer = live.peer().send(fetch(from_many(), max_wait_ms=1_000, min_bytes=1), 12)
        await live.peer().ask(produce(live.batch(b"a"), index=17))

        assert fetched(await soon(answer))["t", 17] == [b"a"]

    play(story)
