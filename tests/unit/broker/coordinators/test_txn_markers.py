"""Markers find their leaders, wherever they are, and come back until they are written."""

import asyncio
from types import SimpleNamespace

import pytest

from odradek.broker.cluster.metadata_cache import MetadataCache
from odradek.broker.cluster.peers import PeerError
from odradek.broker.coordinators.txn_markers import MARKERS_AT_ONCE, TransactionMarkers
from odradek.broker.serving.tasks import Tasks
from odradek.model.errors import ErrorCode
from odradek.model.partition import LEADER_DURING_DELETE, TopicPartition
from odradek.sim.world.clock import SimulatedClock
from odradek.sim.world.loop import run
from odradek.txn.effects import WriteMarkers
from odradek.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from odradek.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)

OWN, OTHER, NOBODY = 0, 1, -1
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Stage:
    """Leaders with scripted answers, and a coordinator that gets the results."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.failures, self.written, self.asked = [], [], []
        self.answers = {}  # (broker, partition): errors, the last of them for ever
        self.unreachable = 0
        self.deleted = frozenset()
        self.tasks = Tasks(loop, lambda name, error: self.failures.append((name, error)))
        self.cache = MetadataCache(loop, lambda: 0)
        self.coordinator = SimpleNamespace(is_over=False, coordinator_epoch=4)
        self.markers = TransactionMarkers(
            broker_id=OWN,
            cache=self.cache,
            peers=self,
            own=lambda request: self.answer(OWN, request),
            written=lambda _coordinator, event: self.written.append(event),
            deleted_among=self.deleted_among,
            tasks=self.tasks,
            clock=SimulatedClock(loop.time),
        )

    async def deleted_among(self, partitions):
        await asyncio.sleep(0.01)
        return self.deleted & partitions

    def to(self, broker_id):
        if self.unreachable:
            self.unreachable -= 1
            raise PeerError("no broker listens")

        async def ask(request, kind):
            assert kind is WriteTxnMarkersResponse
            return await self.answer(broker_id, request)

        return SimpleNamespace(ask=ask)

    async def answer(self, broker_id, request):
        self.asked.append((broker_id, request))
        await asyncio.sleep(0.01)
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(
                                    partition_index=index,
                                    error_code=self.error(broker_id, topic.name, index),
                                )
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in request.markers
            ]
        )

    def error(self, broker_id, topic, index):
        errors = self.answers.get((broker_id, TopicPartition(topic, index)), [ErrorCode.NONE])
        return errors.pop(0) if len(errors) > 1 else errors[0]

    def leaders(self, **leaders):
        """`t0=1`: broker 1 leads t-0."""
        self.cache.update(
            UpdateMetadataRequest(
                live_brokers=[UpdateMetadataBroker(id=OWN), UpdateMetadataBroker(id=OTHER)],
                topic_states=[
                    UpdateMetadataTopicState(
                        topic_name="__transaction_state" if name == "state" else name[0],
                        partition_states=[
                            UpdateMetadataPartitionState(
                                partition_index=0 if name == "state" else int(name[1:]),
                                leader=leader,
                            )
                        ],
                    )
                    for name, leader in leaders.items()
                ],
            )
        )

    def write(self, *partitions, producer_id=7, commit=True):
        order = WriteMarkers(
            f"x{producer_id}", producer_id, 3, commit, frozenset(partitions), client_version=2
        )
        self.markers.write(self.coordinator, order)

    @property
    def done(self):
        return sorted(partition for event in self.written for partition in event.partitions)


def play(story):
    async def main():
        stage = Stage()
        await story(stage)
        await stage.tasks.cancel_all()
        assert stage.failures == []

    run(main())


def test_each_leader_gets_its_own():
    async def story(stage):
        stage.leaders(t0=OWN, t1=OTHER)
        stage.write(T0, T1)
        await asyncio.sleep(1)
        assert {broker for broker, _ in stage.asked} == {OWN, OTHER}
        (marker,) = stage.asked[0][1].markers
        assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 3, 4)
        assert (marker.transaction_result, marker.transaction_version) == (True, 2)
        assert stage.done == [T0, T1]
        assert stage.markers.waiting == 0

    play(story)


def test_while_one_request_is_under_way_the_next_ones_gather():
    async def story(stage):
        stage.leaders(t0=OTHER)
        for producer_id in range(10):
            stage.write(T0, producer_id=producer_id)
            await asyncio.sleep(0)
        await asyncio.sleep(1)
        assert [len(request.markers) for _, request in stage.asked] == [1, 9]
        assert len(stage.written) == 10

    play(story)


def test_a_request_has_a_limit():
    async def story(stage):
        stage.leaders(t0=OTHER)
        for producer_id in range(MARKERS_AT_ONCE + 5):
            stage.write(T0, producer_id=producer_id)
        await asyncio.sleep(1)
        assert max(len(request.markers) for _, request in stage.asked) == MARKERS_AT_ONCE
        assert len(stage.written) == MARKERS_AT_ONCE + 5

    play(story)


def test_a_former_leader_gets_no_more_markers():
    async def story(stage):
        stage.leaders(t0=OTHER)
        stage.answers[OTHER, T0] = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        stage.write(T0)
        await asyncio.sleep(0.05)
        stage.leaders(t0=OWN)
        await asyncio.sleep(1)
        assert stage.done == [T0]
        assert stage.asked[-1][0] == OWN

    play(story)


def test_without_a_leader_they_wait_for_one():
    async def story(stage):
        stage.leaders(t0=NOBODY)
        stage.write(T0)
        await asyncio.sleep(1)
        assert stage.asked == []
        stage.leaders(t0=OTHER)
        await asyncio.sleep(1)
        assert stage.done == [T0]

    play(story)


def test_what_gets_no_answer_is_sent_again():
    async def story(stage):
        stage.leaders(t0=OTHER)
        stage.unreachable = 3
        stage.write(T0)
        await asyncio.sleep(2)
        assert stage.done == [T0]

    play(story)


def test_written_markers_are_reported_while_the_others_are_sent_again():
    async def story(stage):
        stage.leaders(t0=OTHER, t1=OTHER)
        stage.answers[OTHER, T1] = [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NONE]
        stage.write(T0, T1)
        await asyncio.sleep(0.05)
        assert stage.done == [T0]
        await asyncio.sleep(1)
        assert stage.done == [T0, T1]

    play(story)


@pytest.mark.parametrize(
    "error", [ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH]
)
def test_a_fenced_coordinator_gives_up(error):
    async def story(stage):
        stage.leaders(t0=OTHER, t1=OTHER)
        stage.answers[OTHER, T0] = [error]
        stage.answers[OTHER, T1] = [ErrorCode.REQUEST_TIMED_OUT]
        stage.write(T0, T1)
        await asyncio.sleep(2)
        assert stage.done == []
        assert len(stage.asked) == 1

    play(story)


def test_a_former_coordinator_sends_no_more_markers():
    async def story(stage):
        stage.leaders(t0=OTHER)
        stage.answers[OTHER, T0] = [ErrorCode.REQUEST_TIMED_OUT]
        stage.write(T0)
        await asyncio.sleep(0.05)
        stage.coordinator.is_over = True
        await asyncio.sleep(2)
        assert len(stage.asked) == 1

    play(story)


def test_a_partition_that_the_cache_lacks_is_waited_for():
    async def story(stage):
        stage.leaders(t0=OTHER)
        stage.write(T0, T1)
        await asyncio.sleep(1)
        assert stage.done == [T0]
        stage.leaders(t1=OWN)
        await asyncio.sleep(1)
        assert stage.done == [T0, T1]

    play(story)


def test_a_deleted_partition_needs_none():
    async def story(stage):
        stage.leaders(t0=OTHER)
        stage.leaders(t0=LEADER_DURING_DELETE)
        stage.write(T0)
        await asyncio.sleep(1)
        assert stage.done == []
        stage.deleted = frozenset({T0})
        await asyncio.sleep(1)
        assert stage.done == [T0]
        assert stage.asked == []

    play(story)


def test_one_that_the_cache_goes_on_showing_needs_none_if_it_is_deleted():
    """The controller crashed before this broker got UpdateMetadata for the deletion."""

    async def story(stage):
        stage.leaders(t0=OTHER)
        stage.answers[OTHER, T0] = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        stage.write(T0)
        await asyncio.sleep(1)
        assert stage.done == []
        assert len(stage.asked) > 2
        stage.deleted = frozenset({T0})
        await asyncio.sleep(1)
        assert stage.done == [T0]
        assert stage.markers.waiting == 0

    play(story)


def test_markers_are_sent_again_to_a_leader_without_the_partition():
    async def story(stage):
        stage.leaders(t0=OTHER)
        stage.answers[OTHER, T0] = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 3 + [ErrorCode.NONE]
        stage.write(T0)
        await asyncio.sleep(2)
        assert stage.done == [T0]
        assert len(stage.asked) == 4

    play(story)
