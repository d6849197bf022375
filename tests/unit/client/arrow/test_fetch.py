"""The Arrow reader's fetches: changes of leaders, stalls, lost offsets, in simulated time."""

import asyncio

import pytest
from tests.unit.client.fakes import FakeCluster

from odradek.client.arrow.fetch import DataLossError, FetchSettings, Range, RangeFetcher
from odradek.model.errors import ApiError, ErrorCode
from odradek.model.partition import TopicPartition
from odradek.record.records import Record, build_batch
from odradek.sim.world.loop import run
from odradek.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

T0 = TopicPartition("t", 0)


def batch_at(offset):
    return build_batch([Record(None, b"v", 0)], base_offset=offset, leader_epoch=0)


class Log:
    """Answers each Fetch with the next of `answers`: an error code, an exception or records."""

    def __init__(self, cluster, answers):
        self.answers = answers
        self.fetches = []
        self.start = 5
        cluster.connection.request = self.request

    async def request(self, message, answer, *, version_max=None, timeout_ms=None):
        await asyncio.sleep(0.001)
        if not isinstance(message, FetchRequest):
            return self.listed(message.topics[0].partitions[0].timestamp)
        asked = message.topics[0].partitions[0]
        self.fetches.append((asked.fetch_offset, asked.current_leader_epoch, message.session_epoch))
        reply = self.answers.pop(0) if self.answers else None
        if isinstance(reply, Exception):
            raise reply
        part = PartitionData(partition_index=0, high_watermark=9)
        if isinstance(reply, ErrorCode):
            part.error_code = reply
        elif reply is None:
            await asyncio.sleep(message.max_wait_ms / 1000)
        else:
            part.records = reply
        topic = FetchableTopicResponse(topic_id=message.topics[0].topic_id, partitions=[part])
        return FetchResponse(responses=[topic])

    def listed(self, timestamp):
        part = ListOffsetsPartitionResponse(
            partition_index=0, offset=self.start if timestamp == -2 else 9
        )
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[part])])


def reading(wanted, then, *answers, **settings):
    """Run `then(fetcher, log)` with a fetcher of `wanted` and a broker that gives these answers."""

    async def play():
        cluster = FakeCluster()
        log = Log(cluster, list(answers))
        fetcher = RangeFetcher(cluster, {T0: wanted}, FetchSettings(**settings))
        try:
            await then(fetcher, log)
        finally:
            await fetcher.close()

    run(play())


@pytest.mark.parametrize(
    "failure",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ConnectionError("closed"),
    ],
)
def test_a_change_of_leaders_is_followed_and_nothing_is_fetched_twice(failure):
    async def then(fetcher, log):
        starts = []
        while (fetched := await fetcher.next()) is not None:
            starts.append(fetched.start)
        assert starts == [0, 1]
        assert log.fetches == [(0, 0, -1), (1, 0, -1), (1, 0, -1)]

    reading(Range(0, 2), then, batch_at(0), failure, batch_at(1))


def test_a_temporary_error_is_raised_after_the_stall_time_out():
    async def then(fetcher, log):
        with pytest.raises(ApiError, match="NOT_LEADER_OR_FOLLOWER: t-0 at offset 0"):
            await fetcher.next()
        assert 3 <= asyncio.get_running_loop().time() < 5

    codes = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 100
    reading(Range(0, 2), then, *codes, stall_timeout_ms=3_000)


def test_an_end_that_is_not_reached_is_an_error_after_the_stall_time_out():
    async def then(fetcher, log):
        with pytest.raises(ApiError, match="offsets before 20, those below 9 can be read"):
            await fetcher.next()

    reading(Range(0, 20), then, stall_timeout_ms=3_000)


def test_a_stream_without_records_survives_a_change_of_leaders():
    """No record for longer than the stall time-out is no stall of a range without an end."""

    async def then(fetcher, log):
        assert (await fetcher.next()).start == 0

    idle = [None] * 10
    answers = [*idle, ErrorCode.NOT_LEADER_OR_FOLLOWER, batch_at(0)]
    reading(Range(0, None), then, *answers, stall_timeout_ms=3_000)


def test_deleted_offsets_are_an_error_or_skipped():
    async def refused(fetcher, log):
        with pytest.raises(DataLossError, match="t-0: offset 1 is out of range; .* 5 to 9"):
            await fetcher.next()

    async def skipped(fetcher, log):
        assert (await fetcher.next()).start == 5
        assert len(fetcher.losses) == 1

    gone = ErrorCode.OFFSET_OUT_OF_RANGE
    reading(Range(1, 9), refused, gone)
    reading(Range(1, 9), skipped, gone, batch_at(5), fail_on_data_loss=False)


def test_a_permanent_error_is_raised():
    async def then(fetcher, log):
        with pytest.raises(ApiError, match="TOPIC_AUTHORIZATION_FAILED: t-0"):
            await fetcher.next()

    reading(Range(0, 2), then, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
