"""Requests of the controller: epochs fence, and options come before logs."""

import asyncio

import pytest
from tests.unit.broker.live import play

from odradek.coord.layout_config import encode_config, topic_entity
from odradek.model.errors import ErrorCode
from odradek.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from odradek.wire.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from odradek.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

ID = b"i" * 16


def lead(**epochs):
    state = LeaderAndIsrPartitionState(leader=0, leader_epoch=0, isr=[0], replicas=[0], is_new=True)
    topic = LeaderAndIsrTopicState(topic_name="t", topic_id=ID, partition_states=[state])
    return LeaderAndIsrRequest(topic_states=[topic], **epochs)


def know(**epochs):
    state = UpdateMetadataPartitionState(leader=0, isr=[0], replicas=[0])
    topic = UpdateMetadataTopicState(topic_name="t", topic_id=ID, partition_states=[state])
    return UpdateMetadataRequest(
        topic_states=[topic], live_brokers=[UpdateMetadataBroker(id=0)], **epochs
    )


def stop(**epochs):
    state = StopReplicaPartitionState(leader_epoch=-2, delete_partition=True)
    topic = StopReplicaTopicState(topic_name="t", partition_states=[state])
    return StopReplicaRequest(topic_states=[topic], **epochs)


KINDS = {"leader_and_isr": lead, "update_metadata": know, "stop_replica": stop}
every_kind = pytest.mark.parametrize("kind", KINDS)


async def give(live, kind, controller_epoch=0, broker_epoch=0):
    """Send a request with epochs relative to the present ones."""
    requests = live.broker.controller_requests
    request = KINDS[kind](
        controller_epoch=requests.controller_epoch + controller_epoch,
        broker_epoch=-1 if broker_epoch is None else requests.broker_epoch + broker_epoch,
    )
    return ErrorCode((await getattr(requests, kind)(request)).error_code)


def has_happened(live, kind):
    return {
        "leader_and_isr": live.partition() is not None,
        "update_metadata": live.broker.metadata.topic("t") is not None,
        "stop_replica": live.partition() is None,
    }[kind]


async def prepared(live, kind):
    if kind == "stop_replica":
        await give(live, "leader_and_isr")
    assert not has_happened(live, kind)


@every_kind
def test_a_request_of_an_older_controller_is_refused_as_a_whole(kind):
    async def story(live):
        await prepared(live, kind)
        refused = live.broker.controller_requests.refused
        assert await give(live, kind, controller_epoch=-1) == ErrorCode.STALE_CONTROLLER_EPOCH
        assert not has_happened(live, kind)
        assert live.broker.controller_requests.refused == refused + 1

    play(story)


@every_kind
def test_a_newer_controller_fences_the_older_ones_from_then_on(kind):
    async def story(live):
        await prepared(live, kind)
        epoch = live.broker.controller_requests.controller_epoch
        assert await give(live, kind, controller_epoch=3) == ErrorCode.NONE
        assert has_happened(live, kind)
        assert live.broker.controller_requests.controller_epoch == epoch + 3
        for other in KINDS:
            assert await give(live, other, controller_epoch=-1) == ErrorCode.STALE_CONTROLLER_EPOCH

    play(story)


@every_kind
@pytest.mark.parametrize(
    ("broker_epoch", "error"),
    [
        pytest.param(-1, ErrorCode.STALE_BROKER_EPOCH, id="for an earlier registration"),
        pytest.param(0, ErrorCode.NONE, id="for this one"),
        pytest.param(5, ErrorCode.NONE, id="for a later registration"),
        pytest.param(None, ErrorCode.NONE, id="of a controller that does not know epochs"),
    ],
)
def test_a_request_is_for_one_registration_of_the_broker(kind, broker_epoch, error):
    async def story(live):
        await prepared(live, kind)
        assert await give(live, kind, broker_epoch=broker_epoch) == error
        assert has_happened(live, kind) is (error is ErrorCode.NONE)

    play(story)


def test_a_stale_request_does_not_raise_the_controller_epoch():
    async def story(live):
        epoch = live.broker.controller_requests.controller_epoch
        await give(live, "leader_and_isr", controller_epoch=9, broker_epoch=-1)

        assert live.broker.controller_requests.controller_epoch == epoch

    play(story)


@every_kind
def test_over_the_network_the_same_gate_is_passed(kind):
    async def story(live):
        await prepared(live, kind)
        requests = live.broker.controller_requests
        stale = KINDS[kind](controller_epoch=requests.controller_epoch - 1)
        assert (await live.peer().ask(stale)).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
        fresh = KINDS[kind](controller_epoch=requests.controller_epoch)
        assert (await live.peer().ask(fresh)).error_code == ErrorCode.NONE
        assert has_happened(live, kind)

    play(story)


def test_a_new_topics_options_are_known_before_its_log_is_made():
    async def story(live):
        entity = topic_entity("t")
        await live.store.create(entity.path, encode_config({"segment.bytes": "4321"}))
        await give(live, "leader_and_isr")

        assert live.log().config.segment_bytes == 4321

    play(story)


def test_a_deleted_topics_options_and_metrics_are_removed():
    async def story(live):
        await live.topic("t", retention_ms=1234)
        live.broker.metrics.topics["t"].produced(1, 1)
        own = live.broker.settings.topic("t")
        removed = UpdateMetadataRequest(
            controller_epoch=live.broker.controller_requests.controller_epoch,
            topic_states=[
                UpdateMetadataTopicState(
                    topic_name="t",
                    topic_id=live.partition().topic_id,
                    partition_states=[UpdateMetadataPartitionState(leader=-2)],
                )
            ],
        )
        await live.broker.controller_requests.update_metadata(removed)

        assert live.broker.settings.topic("t") is not own
        assert live.broker.settings.topic("t").log_config.retention_ms != 1234

    play(story)


def test_one_request_after_the_other():
    async def story(live):
        request = lead(controller_epoch=live.broker.controller_requests.controller_epoch)
        state = request.topic_states[0].partition_states[0]
        request.topic_states[0].partition_states = [
            LeaderAndIsrPartitionState(
                partition_index=n, leader=0, isr=[0], replicas=[0], is_new=True
            )
            for n in range(50)
        ]
        assert state.partition_index == 0
        first, second = await asyncio.gather(
            live.broker.controller_requests.leader_and_isr(request),
            live.broker.controller_requests.leader_and_isr(request),
        )
        errors = [
            {error.error_code for topic in answer.topics for error in topic.partition_errors}
            for answer in (first, second)
        ]

        assert errors == [{ErrorCode.NONE}, {ErrorCode.STALE_CONTROLLER_EPOCH}]

    play(story)
