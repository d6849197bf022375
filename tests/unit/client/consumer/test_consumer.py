"""The consumer: start positions, poll, seek, pause, resets and errors."""

import asyncio

import pytest
from tests.unit.client.fakes import FakeCluster

from odradek.client.consumer.consumer import Consumer
from odradek.client.consumer.settings import ConsumerSettings
from odradek.client.errors import (
    ClosedError,
    IllegalStateError,
    NoOffsetError,
    WakeUpError,
)
from odradek.client.settings import SettingsError
from odradek.model.errors import ApiError, ErrorCode
from odradek.model.partition import TopicPartition
from odradek.record.records import Record, build_batch
from odradek.sim.world.loop import run
from odradek.wire.messages.fetch import (
    EpochEndOffset,
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
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Log:
    """A log for each partition of topic `t`, in memory, which can be fetched from."""

    def __init__(self, cluster, *values):
        self.values = {index: list(each) for index, each in enumerate(values)}
        self.refusals = {}  # error codes by partition, one for each fetch
        self.diverging = {}
        self.fetches = []
        self.start = 0
        cluster.connection.request = self.request
        self.cluster = cluster

    async def request(self, message, answer, *, version_max=None, timeout_ms=None):
        if isinstance(message, FetchRequest):
            return await self.fetch(message)
        return self.ends(message)

    def ends(self, request):
        parts = [
            ListOffsetsPartitionResponse(
                partition_index=part.partition_index,
                offset=self.start
                if part.timestamp == -2
                else self.start + len(self.values[part.partition_index]),
            )
            for part in request.topics[0].partitions
        ]
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=parts)])

    async def fetch(self, request):
        asked = [part for topic in request.topics for part in topic.partitions]
        self.fetches.append([(part.partition, part.fetch_offset) for part in asked])
        parts = [self.part(each) for each in asked]
        if not any(part.records or part.error_code or part.diverging_epoch for part in parts):
            await asyncio.sleep(request.max_wait_ms / 1000)
        topic_id = b"t".ljust(16)
        response = FetchableTopicResponse(topic_id=topic_id, partitions=parts)
        return FetchResponse(responses=[response])

    def part(self, asked):
        index, at = asked.partition, asked.fetch_offset
        made = PartitionData(partition_index=index)
        if self.refusals.get(index):
            made.error_code = self.refusals[index].pop(0)
        elif index in self.diverging:
            made.diverging_epoch = EpochEndOffset(epoch=1, end_offset=self.diverging.pop(index))
        elif not self.start <= at <= self.start + len(self.values[index]):
            made.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        else:
            left = self.values[index][at - self.start :]
            made.high_watermark = self.start + len(self.values[index])
            if left:
                records = [Record(None, value, 0) for value in left]
                made.records = build_batch(records, base_offset=at, leader_epoch=1)
        return made


def consuming(then, *values, **properties):
    """Run `then(consumer, log)`, with a topic that has these values by partition."""

    async def play():
        text = {name.replace("_", "."): str(value) for name, value in properties.items()}
        settings = ConsumerSettings.from_properties({"auto.offset.reset": "earliest", **text})
        cluster = FakeCluster(max(1, len(values)), settings=settings.client)
        log = Log(cluster, *values)
        consumer = Consumer(cluster, settings)
        try:
            await asyncio.wait_for(then(consumer, log), 1000)
        finally:
            await consumer.close()

    run(play())


async def values_of(consumer, count):
    found = []
    while len(found) < count:
        found += [record.value for record in await consumer.poll(10_000)]
    return found


def test_the_start_position_follows_seek_and_reset_policy():
    async def then(consumer, log):
        consumer.assign([T0])
        assert await values_of(consumer, 3) == [b"a", b"b", b"c"]
        consumer.seek(T0, 1)
        assert await values_of(consumer, 2) == [b"b", b"c"]
        consumer.seek_to_beginning()
        assert await consumer.position(T0) == 0
        consumer.seek_to_end([T0])
        assert await consumer.position(T0) == 3
        log.values[0].append(b"d")
        assert await values_of(consumer, 1) == [b"d"]

    consuming(then, [b"a", b"b", b"c"])


def test_a_poll_respects_max_poll_records_and_fetches_nothing_twice():
    async def then(consumer, log):
        consumer.assign([T0])
        assert len(await consumer.poll(1000)) == 2
        assert len(await consumer.poll(1000)) == 2
        assert await consumer.position(T0) == 4
        await asyncio.sleep(0.1)
        assert log.fetches == [[(0, 0)]]

    consuming(then, [b"v"] * 5, max_poll_records=2)


def test_a_poll_waits_until_its_time_out():
    async def then(consumer, log):
        loop = asyncio.get_running_loop()
        consumer.assign([T0])
        begun = loop.time()
        assert await consumer.poll(3000) == []
        assert 3.0 <= loop.time() - begun < 3.2
        assert await consumer.poll(0) == []

    consuming(then, [])


def test_records_fetched_before_a_seek_are_dropped():
    async def then(consumer, log):
        consumer.assign([T0])
        await consumer.poll(1000)
        consumer.seek(T0, 4)
        assert await values_of(consumer, 1) == [b"4"]

    consuming(then, [b"0", b"1", b"2", b"3", b"4"], max_poll_records=1)


def test_records_of_a_paused_partition_come_after_resume():
    async def then(consumer, log):
        consumer.assign([T0, T1])
        consumer.pause([T0])
        assert consumer.paused() == [T0]
        assert await values_of(consumer, 1) == [b"b"]
        consumer.resume([T0])
        assert await values_of(consumer, 1) == [b"a"]

    consuming(then, [b"a"], [b"b"])


def test_records_fetched_before_the_pause_come_after_resume():
    async def then(consumer, log):
        consumer.assign([T0])
        assert len(await consumer.poll(1000)) == 1
        consumer.pause([T0])
        assert await consumer.poll(1000) == []
        consumer.resume([T0])
        assert await values_of(consumer, 1) == [b"b"]
        assert log.fetches == [[(0, 0)]]

    consuming(then, [b"a", b"b"], max_poll_records=1)


def test_an_offset_out_of_range_is_reset_by_the_policy():
    async def then(consumer, log):
        log.start = 10
        consumer.assign([T0])
        consumer.seek(T0, 3)
        assert [(r.offset, r.value) for r in await consumer.poll(10_000)] == [(10, b"a")]

    consuming(then, [b"a"])


@pytest.mark.parametrize("seeks", [True, False])
def test_a_partition_without_valid_position_and_reset_policy_is_an_error(seeks):
    async def then(consumer, log):
        log.start = 10
        consumer.assign([T0])
        if seeks:
            consumer.seek(T0, 3)
        with pytest.raises(NoOffsetError, match="t-0"):
            await consumer.poll(10_000)

    consuming(then, [b"a"], auto_offset_reset="none")


def test_a_log_truncated_below_the_position_is_read_from_the_divergence():
    async def then(consumer, log):
        consumer.assign([T0])
        await values_of(consumer, 3)
        log.values[0][1:] = [b"B", b"C", b"D"]
        log.diverging[0] = 1
        assert await values_of(consumer, 3) == [b"B", b"C", b"D"]

    consuming(then, [b"a", b"b", b"c"])


def test_a_temporary_error_is_retried_with_new_metadata():
    async def then(consumer, log):
        log.refusals[0] = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH]
        consumer.assign([T0])
        assert await values_of(consumer, 1) == [b"a"]
        assert log.cluster.refreshed >= 2

    consuming(then, [b"a"])


def test_a_partition_is_in_one_fetch_at_a_time_also_when_its_leader_changes():
    """Otherwise both brokers return the records, and the position moves back."""

    async def then(consumer, log):
        read, held = log.request, asyncio.Event()

        async def request(message, answer, **options):
            first = isinstance(message, FetchRequest) and not log.fetches
            found = await read(message, answer, **options)
            if first:
                await held.wait()
            return found

        log.cluster.connection.request = request
        consumer.assign([T0])
        await consumer.poll(100)
        log.cluster.leader = 2
        await log.cluster.refresh(["t"])
        records = await consumer.poll(100)
        held.set()
        records += await consumer.poll(1000)
        records += await consumer.poll(1000)
        assert [record.value for record in records] == [b"a", b"b"]

    consuming(then, [b"a", b"b"])


def test_a_permanent_error_is_raised():
    async def then(consumer, log):
        log.refusals[0] = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        consumer.assign([T0])
        with pytest.raises(ApiError, match="TOPIC_AUTHORIZATION_FAILED: t-0"):
            await consumer.poll(10_000)

    consuming(then, [b"a"])


def test_an_iteration_ends_after_consumer_timeout_ms_without_records():
    async def then(consumer, log):
        consumer.assign([T0])
        assert [record.value async for record in consumer] == [b"a", b"b"]
        assert asyncio.get_running_loop().time() >= 2

    consuming(then, [b"a", b"b"], consumer_timeout_ms=2000)


def test_wake_up_interrupts_a_waiting_poll():
    async def then(consumer, log):
        consumer.assign([T0])
        asyncio.get_running_loop().call_later(5, consumer.wake_up)
        with pytest.raises(WakeUpError):
            await consumer.poll(60_000)
        assert 5 <= asyncio.get_running_loop().time() < 6

    consuming(then, [])


def test_calls_that_contradict_each_other_are_refused():
    async def then(consumer, log):
        with pytest.raises(IllegalStateError, match="not subscribed to any topics or assigned"):
            await consumer.poll(0)
        with pytest.raises(IllegalStateError, match=r"provide a valid group.id"):
            consumer.subscribe(["t"])
        consumer.assign([T0])
        with pytest.raises(IllegalStateError, match="mutually exclusive"):
            consumer.subscribe(["t"])
        with pytest.raises(IllegalStateError, match="No current assignment for partition t-1"):
            consumer.seek(T1, 0)
        with pytest.raises(IllegalStateError, match="must not be a negative number"):
            consumer.seek(T0, -1)
        await consumer.close()
        with pytest.raises(ClosedError):
            await consumer.poll(0)

    consuming(then, [])


def test_beginning_and_end_offsets_are_returned():
    async def then(consumer, log):
        assert await consumer.beginning_offsets([T0]) == {T0: 0}
        assert await consumer.end_offsets([T0]) == {T0: 2}

    consuming(then, [b"a", b"b"])


def test_auto_commit_needs_a_group_id():
    with pytest.raises(SettingsError, match="enable.auto.commit cannot be set to true"):
        ConsumerSettings.from_properties({"enable.auto.commit": "true"})
    assert not ConsumerSettings.from_properties({}).commits_by_itself


def test_a_committed_offset_fetched_in_a_former_assignment_is_not_used():
    """The owner in between may have committed a later offset."""

    async def then(consumer, log):
        read, answers = log.request, [asyncio.Event(), None]

        async def request(message, answer, **options):
            if not isinstance(message, OffsetFetchRequest):
                return await read(message, answer, **options)
            hold = answers.pop(0)
            if hold is None:
                return committed(3)
            await hold.wait()
            return committed(1)

        log.cluster.connection.request = request
        held = answers[0]
        consumer.assign([T0])
        await consumer.poll(10)
        consumer.assign([])
        consumer.assign([T0])
        held.set()
        assert await values_of(consumer, 1) == [b"d"]

    consuming(then, [b"a", b"b", b"c", b"d"], group_id="g", enable_auto_commit="false")


def committed(offset):
    part = OffsetFetchResponsePartitions(partition_index=0, committed_offset=offset)
    topic = OffsetFetchResponseTopics(name="t", partitions=[part])
    return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=[topic])])
