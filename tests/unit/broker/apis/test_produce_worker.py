"""Produce with records that take long to check: what waits for the worker, and what does not."""

import pytest
from tests.unit.broker.live import Live, fetch, fetched, part_of, play, produce, produced, soon

from odradek.broker.serving.worker import LoopWorker
from odradek.model.errors import ErrorCode
from odradek.model.partition import TopicPartition
from odradek.record.batch import read_header, sign
from odradek.record.compression import Codec
from odradek.record.records import Record, build_batch

T0 = ("t", 0)
LARGE = 5 << 20  # when it is decompressed


def large(live, codec=Codec.ZSTD, **fields):
    record = Record(b"k", bytes(LARGE), live.clock.wall_ms())
    return build_batch([record], codec=codec, **fields)


def damaged(live):
    batch = bytearray(large(live, Codec.GZIP))
    batch[-1] ^= 1
    sign(batch)
    return bytes(batch)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_what_decompresses_to_much_waits_and_other_peers_do_not(codec):
    async def story(live: Live):
        await live.topic("t", 2)
        waiting = live.peer().send(produce({T0: large(live, codec)}))
        at_once = live.peer().send(produce({("t", 1): live.batch(b"a")}))

        assert not waiting.done()
        assert produced(at_once.result()) == {("t", 1): 0}
        assert produced(await soon(waiting)) == {T0: 0}

    play(story)


def test_what_is_small_is_appended_at_once():
    async def story(live: Live):
        await live.topic("t")
        batch = live.batch(*[b"v" * 100] * 500, codec=Codec.GZIP)
        answer = live.peer().send(produce({T0: batch}))

        assert produced(answer.result()) == {T0: 0}

    play(story)


def test_requests_behind_a_large_one_are_appended_behind_it():
    async def story(live: Live):
        await live.topic("t")
        peer = live.peer()
        answers = [
            peer.send(produce({T0: batch}))
            for batch in (live.batch(b"a"), large(live), live.batch(b"b"), large(live))
        ]
        assert [answer.done() for answer in answers] == [True, False, False, False]

        assert [produced(await soon(answer)) for answer in answers] == [{T0: n} for n in range(4)]

    play(story)


def test_batches_of_one_request_for_one_partition_keep_their_order():
    async def story(live: Live):
        await live.topic("t")
        request = produce({T0: large(live)})
        parts = request.topic_data[0].partition_data
        parts.append(type(parts[0])(index=0, records=live.batch(b"b")))
        (topic,) = (await soon(live.peer().send(request))).responses

        assert [part.base_offset for part in topic.partition_responses] == [0, 1]

    play(story)


def test_each_partition_of_a_large_request_succeeds_or_fails_on_its_own():
    async def story(live: Live):
        await live.topic("t", 3)
        answer = await soon(
            live.peer().send(
                produce({T0: large(live), ("t", 1): damaged(live), ("t", 2): live.batch(b"a")})
            )
        )

        assert produced(answer) == {T0: 0, ("t", 1): ErrorCode.INVALID_RECORD, ("t", 2): 0}
        assert live.log("t", 1).leo == 0

    play(story)


def test_more_than_may_come_of_a_batch_is_refused():
    async def story(live: Live):
        await live.topic("t")
        rules = live.partition().rules
        rules.decompressed_bytes_max = LARGE - 1
        answer = await soon(live.peer().send(produce({T0: large(live)})))

        assert produced(answer) == {T0: ErrorCode.INVALID_RECORD}

    play(story)


def test_another_codec_for_much_is_made_by_the_worker():
    async def story(live: Live):
        await live.topic("t", compression_type="gzip")
        values = [b"%d" % n * 20 for n in range(2000)]
        waiting = live.peer().send(produce({T0: live.batch(*values)}))

        assert not waiting.done()
        assert produced(await soon(waiting)) == {T0: 0}
        read = await live.peer().ask(fetch({T0: 0}, max_wait_ms=0), 12)
        assert read_header(part_of(read).records).codec == Codec.GZIP
        assert fetched(read)[T0] == values

    play(story)


def test_acks_0_that_fails_in_the_worker_ends_the_connection():
    async def story(live: Live):
        await live.topic("t")
        peer = live.peer()
        peer.send(produce({T0: large(live)}, acks=0), answered=False)
        peer.send(produce({T0: damaged(live)}, acks=0), answered=False)
        await live.until(lambda: peer.closed)

        assert live.log().leo == 1

    play(story)


def test_acks_all_waits_for_the_worker_and_for_the_replicas():
    async def story(live: Live):
        await live.order()
        begun_ms = live.clock.monotonic_ms()
        answer = live.peer().send(produce({T0: large(live)}, acks=-1, timeout_ms=500))
        await live.until(lambda: live.log().leo == 1)

        assert not answer.done()
        assert produced(await answer) == {T0: ErrorCode.REQUEST_TIMED_OUT}
        assert 500 <= live.clock.monotonic_ms() - begun_ms < 1_000

    play(story)


def test_acks_1_has_no_time_out_in_the_worker():
    async def story(live: Live):
        await live.topic("t")
        answer = live.peer().send(produce({T0: large(live)}, acks=1, timeout_ms=0))

        assert produced(await soon(answer)) == {T0: 0}

    play(story)


def test_leadership_that_is_lost_meanwhile_keeps_it_from_being_appended():
    async def story(live: Live):
        await live.order()
        answer = live.peer().send(produce({T0: large(live)}, acks=1))
        await live.order(leader=2, leader_epoch=1, is_new=False)

        assert produced(await soon(answer)) == {T0: ErrorCode.NOT_LEADER_OR_FOLLOWER}
        assert live.log().leo == 0

    play(story)


def test_a_batch_whose_request_timed_out_is_not_appended():
    async def story(live: Live):
        await live.topic("t")
        peer = live.peer()
        peer.send(produce({T0: large(live)}))
        peer.hang_up()
        await live.peer().ask(produce({T0: large(live)}))

        assert live.log().leo == 1

    play(story)


def test_an_error_that_is_not_foreseen_is_answered_and_the_peer_is_served_on():
    async def story(live: Live):
        await live.topic("t")

        def fails(*_):
            raise MemoryError

        rules = live.partition().rules
        rules.check, check = fails, rules.check
        peer = live.peer()
        answer = peer.send(produce({T0: large(live)}))
        assert produced(await soon(answer)) == {T0: ErrorCode.UNKNOWN_SERVER_ERROR}
        rules.check = check
        assert produced(await soon(peer.send(produce({T0: large(live)})))) == {T0: 0}

    play(story)


def test_a_transactional_batch_is_verified_after_the_worker_and_still_not_overtaken():
    async def story(live: Live):
        await live.topic("t")
        questions = []
        live.broker.produce.verification = questions.append
        fields = {"producer_id": 5, "producer_epoch": 0, "transactional": True}
        peer = live.peer()
        first = peer.send(
            produce({T0: large(live, base_sequence=0, **fields)}, transactional_id="x")
        )
        second = peer.send(
            produce({T0: live.batch(b"b", base_sequence=1, **fields)}, transactional_id="x")
        )
        await live.until(lambda: questions)
        assert (live.log().leo, first.done()) == (0, False)
        questions[0].answered({TopicPartition(*T0): ErrorCode.NONE})

        assert [produced(await soon(answer)) for answer in (first, second)] == [{T0: 0}, {T0: 1}]
        assert len(questions) == 1

    play(story)


def test_the_broker_stops_while_the_worker_works():
    async def story(live: Live):
        await live.topic("t")
        answer = live.peer().send(produce({T0: large(live)}, acks=1))
        await live.broker.stop()

        assert produced(await answer) == {T0: ErrorCode.REQUEST_TIMED_OUT}

    play(story)


def test_a_worker_on_the_loop_works_a_moment_later():
    async def story(live: Live):
        done = []
        LoopWorker(live.loop).run(lambda: 5, done.append)
        assert done == []
        await live.until(lambda: done == [5])

    play(story)


def test_the_header_of_what_the_worker_changed_is_the_one_that_is_appended():
    async def story(live: Live):
        await live.topic("t", message_timestamp_type="LogAppendTime")
        batch = large(live)
        assert produced(await soon(live.peer().send(produce({T0: batch})))) == {T0: 0}
        assert live.log().leo == read_header(batch).next_offset

    play(story)
