"""A follower against a leader whose answers the test writes."""

import asyncio
import errno
import logging

import pytest
from tests.unit.broker.live import play
from tests.unit.broker.other_broker import OtherBroker
from tests.unit.broker.test_reports import report

from odradek.model.errors import ErrorCode
from odradek.record.message_set import write_messages
from odradek.record.records import Record, build_batch
from odradek.replica.failures import LASTING_MS
from odradek.sim.world.disk import DiskFault
from odradek.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

TOPIC_ID = b"t".ljust(16, b".")
BACKOFF_S = 1.0


def batch(offset, *values, leader_epoch=0):
    """A batch as it is in a leader's log."""
    made = bytearray(build_batch([Record(None, value, 1) for value in values]))
    made[0:8] = offset.to_bytes(8, "big")
    made[12:16] = leader_epoch.to_bytes(4, "big")
    return bytes(made)


def part(index=0, records=b"", error=0, high_watermark=0, log_start=0, diverging=None):
    return PartitionData(
        partition_index=index,
        error_code=error,
        high_watermark=high_watermark,
        last_stable_offset=high_watermark,
        log_start_offset=log_start,
        aborted_transactions=None,
        diverging_epoch=diverging,
        records=records,
    )


def answer(*parts, session_id=7, error=0):
    topics = [FetchableTopicResponse(topic_id=TOPIC_ID, partitions=list(parts))] if parts else []
    return FetchResponse(error_code=error, session_id=session_id, responses=topics)


def named(request):
    """The fields of each partition in a request."""
    return {part.partition: part for topic in request.topics for part in topic.partitions}


def forgotten(request):
    return [index for topic in request.forgotten_topics_data for index in topic.partitions]


class Leader(OtherBroker):
    """Broker 2. Fetches are answered from `script`, one after the other; then they wait."""

    def __init__(self, *script, start=0, end=0) -> None:
        super().__init__(self.serve)
        self.script = list(script)
        self.start, self.end = start, end

    def serve(self, request):
        if isinstance(request, ListOffsetsRequest):
            (topic,) = request.topics
            (asked,) = topic.partitions
            offset = self.start if asked.timestamp == -2 else self.end
            result = ListOffsetsPartitionResponse(
                partition_index=asked.partition_index, offset=offset, leader_epoch=0
            )
            return ListOffsetsResponse(
                topics=[ListOffsetsTopicResponse(name=topic.name, partitions=[result])]
            )
        return self.script.pop(0) if self.script else None

    @property
    def fetches(self):
        return self.of(FetchRequest)


def follow(story, *script, partitions=1, flushes=False, **leader):
    """Play a story in which the broker follows broker 2."""

    async def main(live):
        other = live.other = Leader(*script, **leader)
        live.network.connect = other.connect
        await live.order("t", leader=2, partitions=partitions)
        await live.until(lambda: other.fetches or other.refuses or other.gate)
        await story(live, other)

    options = {"odradek_flush_before_ack": True} if flushes else {}
    play(main, replica_fetch_backoff_ms=int(BACKOFF_S * 1000), **options)


def test_what_the_leader_sends_is_appended_and_acknowledged_by_the_next_fetch():
    async def story(live, leader):
        await live.until(lambda: len(leader.fetches) == 2)
        assert live.log().leo == 2
        assert live.log().high_watermark == 1
        first, second = (named(request)[0] for request in leader.fetches)
        assert (first.fetch_offset, first.last_fetched_epoch, first.current_leader_epoch) == (
            0,
            -1,
            0,
        )
        assert (second.fetch_offset, second.last_fetched_epoch) == (2, 0)

    follow(story, answer(part(records=batch(0, b"a", b"b"), high_watermark=1)))


def test_messages_of_an_old_format_in_the_leaders_log_are_appended_as_batches():
    records = [Record(b"k", value, 5, (), number) for number, value in enumerate((b"a", b"b"))]

    async def story(live, leader):
        await live.until(lambda: len(leader.fetches) == 2)
        (header,) = (header for _, header in live.log().segments[0].walk(0))
        assert (header.magic, header.base_offset, header.record_count) == (2, 0, 2)
        assert named(leader.fetches[1])[0].fetch_offset == 2

    follow(story, answer(part(records=bytes(write_messages(records, magic=1)), high_watermark=1)))


@pytest.mark.parametrize("cut", [0, 5])
def test_messages_of_an_old_format_behind_batches_are_appended_as_batches(cut):
    """`cut`: the response ends within the last message."""
    records = [Record(b"k", value, 5, (), number) for number, value in enumerate((b"a", b"b"))]
    sent = batch(0, b"a") + bytes(write_messages(records[1:], magic=1))

    async def story(live, leader):
        await live.until(lambda: len(leader.fetches) == 2)
        headers = [header for _, header in live.log().segments[0].walk(0)]
        expected = [(2, 0), (2, 1)] if not cut else [(2, 0)]
        assert [(header.magic, header.base_offset) for header in headers] == expected

    follow(story, answer(part(records=sent[: len(sent) - cut], high_watermark=1)))


def test_what_has_to_be_flushed_first_is_acknowledged_when_it_is_on_the_disk():
    async def story(live, leader):
        def acknowledged():
            return max(part.fetch_offset for f in leader.fetches for part in named(f).values())

        for end in 2, 3:
            await live.until(lambda end=end: live.log().leo == end)
            assert acknowledged() < end
            await live.until(lambda end=end: acknowledged() == end)
            assert live.log().recovery_point == end

    parts = part(records=batch(0, b"a", b"b")), part(1)
    more = answer(part(records=batch(2, b"c")))
    follow(story, answer(*parts), more, partitions=2, flushes=True)


def test_a_flush_that_fails_acknowledges_nothing():
    async def story(live, leader):
        live.disk.faults.append(DiskFault("flush", "t-0"))
        await live.until(lambda: live.log() is None)
        assert [part.fetch_offset for f in leader.fetches for part in named(f).values()] == [0]

    follow(story, answer(part(records=batch(0, b"a", b"b"))), flushes=True)


def test_a_partition_that_is_left_while_it_is_flushed_does_not_delay_the_others():
    async def story(live, leader):
        await live.until(lambda: live.log().leo == 2)
        live.broker.replicas.leave(live.partition())
        await live.until(lambda: len(leader.fetches) == 2)
        assert forgotten(leader.fetches[1]) == [0]

    parts = part(records=batch(0, b"a", b"b")), part(1)
    follow(story, answer(*parts), partitions=2, flushes=True)


def test_the_high_watermark_is_never_beyond_what_is_there():
    async def story(live, leader):
        await live.until(lambda: len(leader.fetches) == 2)
        assert live.log().high_watermark == live.log().leo == 1

    follow(story, answer(part(records=batch(0, b"a"), high_watermark=9)))


def test_only_what_has_moved_is_named_again():
    async def story(live, leader):
        await live.until(lambda: len(leader.fetches) == 2)
        first, second = leader.fetches
        assert sorted(named(first)) == [0, 1, 2]
        assert (first.session_id, first.session_epoch) == (0, 0)
        assert sorted(named(second)) == [1]
        assert (second.session_id, second.session_epoch) == (7, 1)

    follow(story, answer(part(1, batch(0, b"a"))), partitions=3)


def test_without_a_session_all_are_named_each_time():
    async def story(live, leader):
        await live.until(lambda: len(leader.fetches) == 2)
        assert sorted(named(leader.fetches[1])) == [0, 1]
        assert leader.fetches[1].session_epoch == 0

    follow(story, answer(part(1, batch(0, b"a")), session_id=0), partitions=2)


def test_a_log_that_diverges_is_cut_by_epoch_and_asked_for_again():
    async def story(live, leader):
        log = live.log()
        await live.until(lambda: len(leader.fetches) == 3)
        assert [named(request)[0].fetch_offset for request in leader.fetches] == [0, 3, 1]
        assert log.leo == 1

    diverging = EpochEndOffset(epoch=0, end_offset=1)
    records = batch(0, b"a") + batch(1, b"b") + batch(2, b"c")
    follow(story, answer(part(records=records)), answer(part(diverging=diverging)))


def test_the_rest_of_a_log_below_the_leaders_log_start_is_deleted():
    """The leader has no epoch before its log start, so it cannot be compared with this log."""

    async def story(live, leader):
        await live.until(lambda: len(leader.fetches) == 3)
        assert [named(request)[0].fetch_offset for request in leader.fetches] == [0, 3, 2]
        assert (live.log().log_start_offset, live.log().leo) == (2, 2)

    diverging = EpochEndOffset(epoch=0, end_offset=2)
    records = batch(0, b"a") + batch(1, b"b") + batch(2, b"c")
    follow(story, answer(part(records=records)), answer(part(diverging=diverging, log_start=2)))


def test_an_epoch_without_records_that_the_leader_does_not_have_is_removed():
    async def story(live, leader):
        await live.until(lambda: len(leader.fetches) == 2)
        await live.order("t", leader=0, leader_epoch=1, is_new=False)
        assert live.log().epochs.latest_epoch == 1
        leader.script = [answer(part(diverging=EpochEndOffset(epoch=0, end_offset=1)))]
        before = len(leader.fetches)
        await live.order("t", leader=2, leader_epoch=2, is_new=False)
        await live.until(lambda: len(leader.fetches) == before + 2)
        asked = [named(request)[0].last_fetched_epoch for request in leader.fetches[before:]]
        assert asked == [1, 0]
        assert live.log().leo == 1

    follow(story, answer(part(records=batch(0, b"a"))))


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param(part(error=ErrorCode.NOT_LEADER_OR_FOLLOWER), id="refused"),
        pytest.param(part(records=batch(0, b"a")[:-1] + b"!"), id="damaged"),
        pytest.param(part(records=batch(5, b"a") + batch(1, b"b")), id="out of order"),
    ],
)
def test_a_partition_with_an_error_leaves_the_session_and_does_not_delay_the_others(trouble):
    async def story(live, leader):
        await live.until(lambda: len(leader.fetches) == 2)
        assert forgotten(leader.fetches[1]) == [0]
        assert sorted(named(leader.fetches[1])) == [1]
        leader.reply(answer(part(1, batch(1, b"b"))))
        await live.until(lambda: len(leader.fetches) == 3)
        assert sorted(named(leader.fetches[2])) == [1]
        await asyncio.sleep(BACKOFF_S)
        leader.reply(answer())
        await live.until(lambda: len(leader.fetches) == 4)
        assert sorted(named(leader.fetches[3])) == [0]
        assert live.log(index=1).leo == 2

    trouble.partition_index = 0
    follow(story, answer(trouble, part(1, batch(0, b"a"))), partitions=2)


def test_while_all_are_in_trouble_nothing_is_fetched():
    async def story(live, leader):
        await asyncio.sleep(BACKOFF_S / 2)
        assert len(leader.fetches) == 1
        await live.until(lambda: len(leader.fetches) == 2)
        assert sorted(named(leader.fetches[1])) == [0]

    follow(story, answer(part(records=batch(0, b"a")[:-1] + b"!")))


def test_after_errors_the_pause_doubles_and_a_new_leader_epoch_resets_it():
    async def pause_s(live, leader, refusals):
        asked = len(leader.fetches)
        begun_s = live.loop.time()
        if refusals:
            leader.reply(answer(part(error=ErrorCode.UNKNOWN_LEADER_EPOCH)))
        await live.until(lambda: len(leader.fetches) > asked)
        return live.loop.time() - begun_s

    async def story(live, leader):
        pauses = [await pause_s(live, leader, refusals) for refusals in range(12)]
        assert pauses[:3] == pytest.approx([0.01, 0.02, 0.04], abs=0.003)
        assert pauses[-2:] == pytest.approx([BACKOFF_S, BACKOFF_S], abs=0.003)
        await live.order("t", leader=2, leader_epoch=1, is_new=False)
        leader.reply(answer())
        await live.until(lambda: named(leader.fetches[-1])[0].current_leader_epoch == 1)
        assert await pause_s(live, leader, 1) == pytest.approx(0.01, abs=0.003)

    follow(story, answer(part(error=ErrorCode.UNKNOWN_LEADER_EPOCH)))


def test_a_fenced_leader_epoch_is_not_fetched_again_until_the_next_leader_and_isr():
    async def story(live, leader):
        await asyncio.sleep(5 * BACKOFF_S)
        assert len(leader.fetches) == 1
        await live.order("t", leader=2, leader_epoch=1, is_new=False)
        await live.until(lambda: len(leader.fetches) == 2)
        assert named(leader.fetches[1])[0].current_leader_epoch == 1

    follow(story, answer(part(error=ErrorCode.FENCED_LEADER_EPOCH)))


def test_an_answer_to_a_former_leader_epoch_does_not_affect_the_present_one():
    async def story(live, leader):
        await live.order("t", leader=2, leader_epoch=1, partitions=2, is_new=False)
        leader.reply(answer(part(error=ErrorCode.FENCED_LEADER_EPOCH), part(1, batch(0, b"old"))))
        await live.until(lambda: len(leader.fetches) == 2)
        wanted = named(leader.fetches[1])
        assert sorted(wanted) == [0, 1]
        assert {part.current_leader_epoch for part in wanted.values()} == {1}
        assert live.log(index=1).leo == 0

    follow(story, partitions=2)


def test_a_log_below_the_leaders_log_start_restarts_there():
    async def story(live, leader):
        await live.until(lambda: len(leader.fetches) >= 2 and named(leader.fetches[-1]))
        assert live.log().log_start_offset == live.log().leo == 40
        assert named(leader.fetches[-1])[0].fetch_offset == 40

    follow(story, answer(part(error=ErrorCode.OFFSET_OUT_OF_RANGE)), start=40, end=50)


def test_a_log_that_reaches_beyond_the_leaders_end_is_cut_there():
    async def story(live, leader):
        await live.until(lambda: len(leader.fetches) >= 3 and named(leader.fetches[-1]))
        assert live.log().leo == 1

    follow(
        story,
        answer(part(records=batch(0, b"a") + batch(1, b"b"))),
        answer(part(error=ErrorCode.OFFSET_OUT_OF_RANGE)),
        start=0,
        end=1,
    )


@pytest.mark.parametrize(
    "cut",
    [
        pytest.param(lambda: part(error=ErrorCode.OFFSET_OUT_OF_RANGE), id="the leader ends there"),
        pytest.param(
            lambda: part(diverging=EpochEndOffset(epoch=0, end_offset=1)), id="it diverges there"
        ),
    ],
)
@pytest.mark.parametrize(
    ("high_watermark", "warnings"), [(1, 0), (2, 1)], ids=["tail", "committed"]
)
def test_committed_records_that_are_cut_are_warned_of(caplog, cut, high_watermark, warnings):
    async def story(live, leader):
        await live.until(lambda: len(leader.fetches) >= 3 and named(leader.fetches[-1]))
        (text,) = [r for r in caplog.records if "t-0 is cut from 2 to 1" in r.message]
        assert "broker 2 in leader epoch 0" in text.message
        reported = live.broker.incidents.cuts.as_json()
        assert [(each["kind"], each["offset"], each["end_offset"]) for each in reported] == [
            ("truncation", 1, 2)
        ] * warnings
        warned = [r for r in caplog.records if r.levelno == logging.WARNING]
        of_cuts = [r.message for r in warned if "t-0: the records from offset 1 to 1" in r.message]
        assert len(of_cuts) == warnings
        assert all("below the high watermark 2 were committed" in text for text in of_cuts)

    caplog.set_level(logging.INFO)
    records = batch(0, b"a") + batch(1, b"b")
    follow(
        story, answer(part(records=records, high_watermark=high_watermark)), answer(cut()), end=1
    )


def test_a_leaders_log_that_starts_within_a_batch_is_taken_from_the_batch_on():
    async def story(live, leader):
        await live.until(lambda: live.log().leo == 43)
        assert [segment.base_offset for segment in live.log().segments] == [39]
        assert live.log().log_start_offset == 40, "and the records before are as deleted as there"

    follow(
        story,
        answer(part(error=ErrorCode.OFFSET_OUT_OF_RANGE)),
        answer(part(records=batch(39, b"a", b"b", b"c", b"d"), high_watermark=43, log_start=40)),
        start=40,
        end=43,
    )


def test_the_local_log_is_dropped_if_the_leader_has_deleted_all_of_it():
    """Truncate at the leader's log start, within a batch; the rest is of another leader epoch."""

    async def story(live, leader):
        await live.until(lambda: live.log().leo == 21)
        assert [segment.base_offset for segment in live.log().segments] == [1]
        assert live.log().log_start_offset == 10

    follow(
        story,
        answer(part(records=batch(0, *[b"x"] * 10))),
        answer(part(records=batch(1, *[b"y"] * 20), high_watermark=21, log_start=10)),
    )


def test_a_lost_connection_is_made_again_and_all_is_named():
    async def story(live, leader):
        await live.until(lambda: len(leader.fetches) == 2)
        leader.open_connections[0].abort()
        lost_at = live.loop.time()
        await live.until(lambda: len(leader.fetches) == 3)
        assert live.loop.time() - lost_at >= BACKOFF_S - 0.1
        assert sorted(named(leader.fetches[2])) == [0, 1]
        assert leader.fetches[2].session_epoch == 0

    follow(story, answer(part(0, batch(0, b"a"))), partitions=2)


def test_a_leader_that_does_not_answer_is_hung_up_on():
    async def story(live, leader):
        (first,) = leader.open_connections
        await live.until(lambda: first.closed)
        await live.until(lambda: len(leader.fetches) == 2)
        assert len(leader.connections) == 2

    async def impatient(live):
        leader = live.other = Leader()
        live.network.connect = leader.connect
        await live.order("t", leader=2)
        await live.until(lambda: leader.fetches)
        await story(live, leader)

    play(impatient, replica_socket_timeout_ms=2000)


def test_an_invalid_answer_closes_the_connection():
    async def story(live, leader):
        leader.reply((12).to_bytes(4, "big") + (1).to_bytes(4, "big") + b"\0" + b"\xff" * 7)
        await live.until(lambda: len(leader.fetches) == 2)
        assert len(leader.connections) == 2

    follow(story)


def test_a_session_that_the_leader_has_dropped_is_replaced_at_once():
    async def story(live, leader):
        await live.until(lambda: len(leader.fetches) == 3)
        assert live.loop.time() < BACKOFF_S
        assert [request.session_epoch for request in leader.fetches] == [0, 1, 0]
        assert sorted(named(leader.fetches[2])) == [0]

    follow(
        story,
        answer(part(records=batch(0, b"a"))),
        answer(session_id=0, error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
    )


def test_a_fetch_that_is_refused_whole_is_tried_again_later():
    async def story(live, leader):
        refused_at = live.loop.time()
        await live.until(lambda: len(leader.fetches) == 2)
        assert live.loop.time() - refused_at >= BACKOFF_S - 0.1

    follow(story, answer(session_id=0, error=ErrorCode.UNKNOWN_SERVER_ERROR))


def test_a_disk_that_fails_takes_the_partition_off_and_the_others_go_on():
    async def story(live, leader):
        directory = live.log().directory.rpartition("/")[0]
        other = next(n for n in (1, 2) if not live.log(index=n).directory.startswith(directory))
        live.disk.faults.append(DiskFault("write", directory, times=1 << 60))
        leader.reply(answer(part(0, batch(0, b"a")), part(other, batch(0, b"b"))))
        await live.until(lambda: len(leader.fetches) == 2)
        assert live.partition().log is None
        assert live.partition().error is ErrorCode.KAFKA_STORAGE_ERROR
        assert live.log(index=other).leo == 1
        assert sorted(named(leader.fetches[1])) == [other]
        live.disk.faults.clear()

    follow(story, partitions=3)


def test_a_follower_that_ran_out_of_file_descriptors_fetches_again():
    """The log directory stays online, and no LeaderAndIsr request follows."""

    async def story(live, leader):
        live.log().rest()
        live.disk.faults.append(DiskFault("open", live.log().directory, errno.EMFILE))
        leader.reply(answer(part(records=batch(0, b"a"))))
        await live.until(lambda: len(leader.fetches) == 2)
        assert live.log().leo == 0
        leader.reply(answer(part(records=batch(0, b"a"))))
        await live.until(lambda: live.log().leo == 1)

    follow(story)


def test_a_truncation_that_ran_out_of_file_descriptors_half_way_takes_the_directory_offline():
    """Its old segments are removed: an append would go into a deleted file."""

    async def story(live, leader):
        live.disk.faults.append(DiskFault("create", live.log().directory, errno.EMFILE))
        leader.reply(answer(part(error=ErrorCode.OFFSET_OUT_OF_RANGE)))
        await live.until(lambda: live.broker.logs.has_offline_dir)

        assert live.partition().log is None

    follow(story, start=40, end=43)


def test_a_connection_that_is_made_after_the_stop_is_closed():
    async def main(live):
        leader = Leader()
        leader.gate = live.loop.create_future()
        live.network.connect = leader.connect
        await live.order("t", leader=2)
        await asyncio.sleep(0)
        await live.order("t", leader=0, leader_epoch=1, is_new=False)
        leader.gate.set_result(None)
        await live.until(lambda: leader.connections)
        await asyncio.sleep(0.01)
        assert leader.open_connections == []
        assert leader.fetches == []

    play(main)


def test_an_unreachable_leader_is_dialled_again_and_again():
    async def main(live):
        leader = Leader()
        leader.refuses = True
        live.network.connect = leader.connect
        await live.order("t", leader=2)
        await asyncio.sleep(3 * BACKOFF_S)
        leader.refuses = False
        await live.until(lambda: leader.fetches)

    play(main, replica_fetch_backoff_ms=int(BACKOFF_S * 1000))


# --------------------------------------------------------------- fetches that make no progress

LASTS_S = LASTING_MS / 1000


def lines(caplog, text):
    return [record.getMessage() for record in caplog.records if text in record.getMessage()]


def problems(live):
    return [
        (leader, subject and str(subject), failure.reason)
        for leader, subject, failure in live.broker.fetchers.failures()
    ]


def always(*parts):
    """A script whose answer never ends."""

    class Same(list):
        def pop(self, _index):
            return answer(*parts)

        def __bool__(self):
            return True

    return Same()


@pytest.mark.parametrize(
    "stuck",
    [
        pytest.param(part(error=ErrorCode.OFFSET_OUT_OF_RANGE), id="the log end is in its log"),
        pytest.param(part(error=ErrorCode.UNKNOWN_LEADER_EPOCH), id="an unknown epoch"),
        pytest.param(
            part(diverging=EpochEndOffset(epoch=0, end_offset=1)), id="it diverges where it ends"
        ),
    ],
)
def test_a_fetch_that_changes_nothing_is_repeated_with_pauses_and_said_once(caplog, stuck):
    """A leader in an epoch below that of the follower's log, of a store from a backup."""

    async def story(live, leader):
        await live.until(lambda: live.log().leo == 1)
        leader.script = always(stuck)
        leader.reply(answer(stuck))
        await asyncio.sleep(LASTS_S + 1)
        asked = len(leader.fetches)
        assert asked < 20, "7 with pauses that double, then one a second"
        await asyncio.sleep(3 * BACKOFF_S)
        assert len(leader.fetches) - asked == pytest.approx(3, abs=1)
        (line,) = lines(caplog, "has made no progress for 10 s")
        assert line.startswith("t-0: replication from ")
        assert [found[:2] for found in problems(live)] == [(2, "t-0")]

        leader.script = []
        await live.until(lambda: leader.waiting)
        leader.reply(answer(part(records=batch(1, b"b"))))
        await live.until(lambda: not problems(live))
        assert len(lines(caplog, "t-0: replication from")) == 2
        assert lines(caplog, "makes progress again, after 1")
        assert live.log().leo == 2

    caplog.set_level(logging.INFO)
    follow(story, answer(part(records=batch(0, b"a"))), end=1)


def test_progress_without_a_record_ends_a_failure_too():
    async def story(live, leader):
        await live.until(lambda: problems(live))
        (entry,) = (await report(live, "replicas", topic="t"))["fetch_problems"]
        assert entry["is_lasting"] is False
        assert (await report(live, "broker"))["fetch_problems"] == []
        await live.until(lambda: leader.waiting)
        leader.reply(answer())
        await live.until(lambda: not problems(live))

    follow(story, answer(part(error=ErrorCode.UNKNOWN_LEADER_EPOCH)))


def test_a_fenced_partition_is_reported_until_the_next_leader_and_isr(caplog):
    async def story(live, leader):
        await asyncio.sleep(LASTS_S + 1)
        assert problems(live) == [(2, "t-0", "FENCED_LEADER_EPOCH")]
        assert lines(caplog, "no progress for 10 s: FENCED_LEADER_EPOCH")
        (entry,) = (await report(live, "broker"))["fetch_problems"]
        assert (await report(live, "replicas", topic="t"))["fetch_problems"] == [entry]
        assert (await report(live, "replicas", topic="u"))["fetch_problems"] == []
        since_ms = entry.pop("since_ms")
        assert since_ms == pytest.approx(live.clock.wall_ms() - 1000 * LASTS_S - 1000, abs=100)
        assert entry == {
            "leader": 2, "topic": "t", "partition": 0, "problem": "FENCED_LEADER_EPOCH",
            "is_lasting": True,
        }  # fmt: skip
        await live.order("t", leader=2, leader_epoch=1, is_new=False)
        assert problems(live) == []

    follow(story, answer(part(error=ErrorCode.FENCED_LEADER_EPOCH)))


def test_a_leader_that_does_not_answer_is_a_problem_of_all_its_partitions(caplog):
    async def story(live, leader):
        assert problems(live) == []
        await asyncio.sleep(LASTS_S + 1)
        assert problems(live) == [(2, None, "the leader does not answer")]
        (line,) = lines(caplog, "has made no progress")
        assert line.startswith("all partitions: replication from ")
        leader.reply(answer())
        await live.until(lambda: not problems(live))
        assert lines(caplog, "all partitions: ")[-1].endswith("s (the leader does not answer)")

    caplog.set_level(logging.INFO)
    follow(story, partitions=2)


def test_a_session_that_is_refused_although_it_is_new_is_not_asked_for_without_a_pause():
    async def story(live, leader):
        leader.script = always()
        leader.script.pop = lambda _: answer(error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        leader.reply(answer(error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
        await asyncio.sleep(5 * BACKOFF_S)
        assert len(leader.fetches) < 10
        assert problems(live) == [(2, None, "FETCH_SESSION_ID_NOT_FOUND")]

    follow(story)
