"""A follower's fetcher against a leader whose answers are written by hand."""

import asyncio
from types import SimpleNamespace

import pytest
from tests.unit.net.test_connection import FakeTransport

import odradek.sim.world.loop as simulated
from odradek.broker.replication.replica_fetcher import FetchOptions, ReplicaFetcher
from odradek.broker.serving.tasks import Tasks
from odradek.log.log_config import NEVER
from odradek.model.cluster import EndPoint
from odradek.model.errors import ErrorCode
from odradek.model.partition import TopicPartition
from odradek.wire.codec import decoder, encoder
from odradek.wire.header import decode_request_header, encode_response_header
from odradek.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

FETCH, VERSION = 1, 17
TOPIC_ID = b"i" * 16
SESSION = 7


class FakePartition:
    """A partition as a fetcher uses it: its log end offset, and the batches it gets."""

    def __init__(self, index=0):
        self.topic_id = TOPIC_ID
        self.topic_partition = TopicPartition("t", index)
        self.leader_epoch = 0
        self.log = SimpleNamespace(
            leo=10,
            counted_end=10,
            log_start_offset=0,
            epochs=SimpleNamespace(latest_epoch=0),
            config=SimpleNamespace(flush_messages=NEVER),
        )
        self.follower_throttled = False
        self.followed = []

    def follow(self, batches, *, high_watermark, log_start_offset):
        self.followed.append((bytes(batches), high_watermark))
        return bool(batches)


class Wire(FakeTransport):
    """A transport that notifies when something is written."""

    def __init__(self):
        super().__init__()
        self.has_written = asyncio.Event()

    def write(self, data):
        super().write(data)
        self.has_written.set()


class Leader:
    """The other end of the fetcher's connection."""

    def __init__(self):
        self.channel = None
        self.transport = Wire()

    async def connect(self, make_protocol, host, port):
        self.channel = make_protocol()
        self.channel.connection_made(self.transport)
        return self.channel

    async def request(self):
        """The next fetch: its header and body."""
        await self.transport.has_written.wait()
        self.transport.has_written.clear()
        frame = memoryview(b"".join(self.transport.written))[4:]
        self.transport.written.clear()
        header, position = decode_request_header(frame)
        self._correlation_id = header.correlation_id
        body, _ = decoder(FetchRequest, VERSION)(frame, position)
        return body

    def answer(self, *partitions, error=ErrorCode.NONE, cut=0, **fields):
        """Answer the last fetch, without the last `cut` bytes of the response."""
        topics = [FetchableTopicResponse(topic_id=TOPIC_ID, partitions=list(partitions))]
        response = FetchResponse(
            error_code=error, session_id=SESSION, responses=topics if partitions else [], **fields
        )
        body = encode_response_header(FETCH, VERSION, self._correlation_id)
        body += encoder(FetchResponse, VERSION)(response)
        body = body[: len(body) - cut]
        data = len(body).to_bytes(4, "big") + body
        self.channel.get_buffer(-1)[: len(data)] = data
        self.channel.buffer_updated(len(data))


def asked(request):
    """Leader epoch and offset of each partition that a request names."""
    return {
        wanted.partition: (wanted.current_leader_epoch, wanted.fetch_offset)
        for topic in request.topics
        for wanted in topic.partitions
    }


def data(index=0, **fields):
    return PartitionData(partition_index=index, aborted_transactions=None, **fields)


def play(story):
    async def main():
        leader = Leader()
        running = asyncio.get_running_loop()
        failures = []
        fetcher = ReplicaFetcher(
            EndPoint(listener="P", security_protocol="PLAINTEXT", host="leader", port=1),
            broker_id=2,
            broker_epoch=lambda: 5,
            connector=leader,
            loop=running,
            clock=SimpleNamespace(
                monotonic_ms=lambda: int(running.time() * 1000), wall_ms=lambda: 0
            ),
            options=FetchOptions(500, 1, 1 << 20, 10 << 20, 100, 30_000),
            tasks=Tasks(running, lambda name, error: failures.append((name, error))),
            storage_failed=failures.append,
        )
        await story(fetcher, leader)
        fetcher.stop()
        assert failures == []

    simulated.run(main())


def test_a_session_names_a_partition_again_only_when_its_end_has_moved():
    async def story(fetcher, leader):
        partition = FakePartition()
        fetcher.follow(partition)
        assert asked(await leader.request()) == {0: (0, 10)}
        leader.answer(data(high_watermark=10))
        assert asked(await leader.request()) == {}
        partition.log.leo = partition.log.counted_end = 12
        leader.answer(data(high_watermark=10, records=b"batch"))
        assert asked(await leader.request()) == {0: (0, 12)}
        assert partition.followed == [(b"", 10), (b"batch", 10)]

    play(story)


@pytest.mark.parametrize(
    ("part", "response"),
    [
        pytest.param({}, {}, id="usual"),
        pytest.param({"current_leader": LeaderIdAndEpoch()}, {}, id="tagged field of a partition"),
        pytest.param({}, {"node_endpoints": [NodeEndpoint()]}, id="tagged field of the response"),
    ],
)
def test_an_unusual_response_is_handled_as_a_usual_one(part, response):
    async def story(fetcher, leader):
        partitions = [FakePartition(0), FakePartition(1)]
        for each in partitions:
            fetcher.follow(each)
        assert asked(await leader.request()) == {0: (0, 10), 1: (0, 10)}
        leader.answer(
            PartitionData(**{"aborted_transactions": None, "high_watermark": 12} | part),
            data(1, high_watermark=9, records=b"batch"),
            **response,
        )
        assert asked(await leader.request()) == {1: (0, 10)}
        assert [each.followed for each in partitions] == [[(b"", 12)], [(b"batch", 9)]]
        assert [lag for _, lag in fetcher.lags()] == [2, 0]
        assert fetcher.fetched_bytes == len(b"batch")

    play(story)


def test_of_a_malformed_response_nothing_is_taken_and_a_new_connection_names_all(caplog):
    async def story(fetcher, leader):
        partition = FakePartition()
        fetcher.follow(partition)
        await leader.request()
        leader.answer(data(high_watermark=10))
        assert asked(await leader.request()) == {}
        leader.answer(data(high_watermark=11, records=b"batch"), cut=1)
        assert leader.transport.closed
        leader.transport.closed = False
        leader.channel.connection_lost(None)
        request = await leader.request()
        assert (asked(request), request.session_epoch) == ({0: (0, 10)}, 0)
        assert partition.followed == [(b"", 10)]

    play(story)

    assert "FetchResponse" in caplog.text


def test_a_lag_ends_when_the_leaders_high_watermark_is_reached():
    async def story(fetcher, leader):
        fetcher.follow(FakePartition())
        lags = []
        for high_watermark in (12, 10):
            await leader.request()
            leader.answer(data(high_watermark=high_watermark))
            lags += [lag for _, lag in fetcher.lags()]
        assert lags == [2, 0]

    play(story)


def test_a_fetcher_that_follows_nothing_any_more_sends_no_request():
    async def story(fetcher, leader):
        partition = FakePartition()
        fetcher.follow(partition)
        await leader.request()
        fetcher.leave(partition)
        leader.answer(data(high_watermark=10))
        assert leader.transport.written == []

    play(story)


def test_what_is_named_and_removed_goes_into_one_request():
    async def story(fetcher, leader):
        partitions = [FakePartition(index) for index in range(3)]
        for each in partitions:
            fetcher.follow(each)
        await leader.request()
        fetcher.leave(partitions[0])
        leader.answer(*(data(index, high_watermark=10, records=b"batch") for index in range(3)))
        request = await leader.request()
        assert asked(request) == {1: (0, 10), 2: (0, 10)}
        assert [(t.topic_id, t.partitions) for t in request.forgotten_topics_data] == [
            (TOPIC_ID, [0])
        ]
        assert (request.session_id, request.session_epoch) == (SESSION, 1)
        assert (request.max_bytes, request.replica_state.replica_epoch) == (10 << 20, 5)

    play(story)


def test_an_error_for_a_former_leader_epoch_does_not_affect_the_present_one():
    async def story(fetcher, leader):
        partition = FakePartition()
        fetcher.follow(partition)
        await leader.request()
        # While the answer is in flight, the same leader gets another leader epoch.
        partition.leader_epoch = 1
        fetcher.follow(partition)
        leader.answer(data(error_code=ErrorCode.FENCED_LEADER_EPOCH, high_watermark=-1))
        assert asked(await leader.request()) == {0: (1, 10)}
        leader.answer(data(high_watermark=10))
        assert partition.followed == [(b"", 10)]

    play(story)


def test_records_fetched_in_a_former_leader_epoch_are_fetched_again():
    async def story(fetcher, leader):
        partition = FakePartition()
        fetcher.follow(partition)
        await leader.request()
        partition.leader_epoch = 1
        fetcher.follow(partition)
        leader.answer(data(high_watermark=10, records=b"perhaps cut away since"))
        assert asked(await leader.request()) == {0: (1, 10)}
        assert partition.followed == []

    play(story)


def test_a_fenced_partition_is_not_fetched_until_the_next_leader_and_isr():
    async def story(fetcher, leader):
        fenced, other = FakePartition(0), FakePartition(1)
        fetcher.follow(fenced)
        fetcher.follow(other)
        await leader.request()
        leader.answer(data(0, error_code=ErrorCode.FENCED_LEADER_EPOCH), data(1, high_watermark=10))
        request = await leader.request()
        assert [(t.topic_id, t.partitions) for t in request.forgotten_topics_data] == [
            (TOPIC_ID, [0])
        ]
        fenced.leader_epoch = 1
        fetcher.follow(fenced)
        leader.answer()
        assert asked(await leader.request()) == {0: (1, 10)}

    play(story)
