"""LeaderAndIsr v0-4, StopReplica v0-2 and UpdateMetadata v0-6: requests without topic ids."""

import pytest
from tests.unit.broker.live import play

from odradek.model.cluster import EndPoint
from odradek.model.errors import ErrorCode
from odradek.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from odradek.wire.messages.stop_replica import (
    StopReplicaPartitionV0,
    StopReplicaRequest,
    StopReplicaTopicV1,
)
from odradek.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

NO_ID = bytes(16)


def next_controller(live):
    return {"controller_epoch": live.broker.controller_requests.controller_epoch + 1}


def lead(live, version, *topics):
    """Lead partition 0 of each topic in leader epoch 9."""
    states = [
        LeaderAndIsrPartitionState(
            topic_name=topic if version < 2 else "",
            leader=0, leader_epoch=9, isr=[0], replicas=[0], partition_epoch=9,
        )
        for topic in topics
    ]  # fmt: skip
    request = LeaderAndIsrRequest(**next_controller(live))
    if version < 2:
        request.ungrouped_partition_states = states
    else:
        request.topic_states = [
            LeaderAndIsrTopicState(topic_name=topic, partition_states=[state])
            for topic, state in zip(topics, states, strict=True)
        ]
    return request


def errors_by_name(response):
    return {
        (each.topic_name, each.partition_index): ErrorCode(each.error_code)
        for each in response.partition_errors
    }


@pytest.mark.parametrize("version", range(5))
def test_leader_and_isr_finds_the_topic_id_in_the_store(version):
    async def story(live):
        partition = await live.topic("t")
        live.append(b"a")
        topic_id = partition.topic_id
        response = await live.peer().ask(lead(live, version, "t"), version)

        assert response.error_code == ErrorCode.NONE
        assert errors_by_name(response) == {("t", 0): ErrorCode.NONE}
        assert live.partition().leader_epoch == 9
        assert live.partition().topic_id == live.log().topic_id == topic_id
        assert live.log().leo == 1

    play(story)


def test_a_topic_without_an_id_in_the_store_is_refused_and_the_others_are_not():
    async def story(live):
        await live.topic("t")
        response = await live.peer().ask(lead(live, 4, "nowhere", "t"), 4)

        assert errors_by_name(response) == {
            ("nowhere", 0): ErrorCode.UNSUPPORTED_VERSION,
            ("t", 0): ErrorCode.NONE,
        }
        assert live.partition("nowhere") is None

    play(story)


@pytest.mark.parametrize("delete", [False, True])
@pytest.mark.parametrize("version", range(3))
def test_stop_replica_names_partitions_in_three_ways(version, delete):
    async def story(live):
        await live.topic("t", 2)
        request = StopReplicaRequest(delete_partitions=delete, **next_controller(live))
        if version == 0:
            request.ungrouped_partitions = [
                StopReplicaPartitionV0(topic_name="t", partition_index=1)
            ]
        else:
            request.topics = [StopReplicaTopicV1(name="t", partition_indexes=[1])]
        response = await live.peer().ask(request, version)

        assert errors_by_name(response) == {("t", 1): ErrorCode.NONE}
        assert (live.partition("t", 1) is None) is delete
        assert live.partition("t", 0).leader is not None

    play(story)


@pytest.mark.parametrize("version", range(7))
def test_update_metadata_keeps_the_ids_of_topics(version):
    async def story(live):
        partition = await live.topic("t")
        states = {
            name: UpdateMetadataPartitionState(
                topic_name=name if version < 5 else "",
                leader=0, leader_epoch=9, isr=[0], replicas=[0],
            )
            for name in ("t", "new")
        }  # fmt: skip
        request = UpdateMetadataRequest(**next_controller(live))
        if version < 5:
            request.ungrouped_partition_states = list(states.values())
        else:
            request.topic_states = [
                UpdateMetadataTopicState(topic_name=name, partition_states=[state])
                for name, state in states.items()
            ]
        if version == 0:
            broker = UpdateMetadataBroker(id=0, v0_host="h", v0_port=1)
        else:
            name = "PLAINTEXT" if version >= 3 else ""
            point = UpdateMetadataEndpoint(host="h", port=1, listener=name)
            broker = UpdateMetadataBroker(id=0, endpoints=[point])
        request.live_brokers = [broker]
        response = await live.peer().ask(request, version)

        cache = live.broker.metadata
        assert response.error_code == ErrorCode.NONE
        assert cache.topic("t").topic_id == partition.topic_id
        assert cache.topic("new").topic_id == NO_ID
        assert [cache.partition(name, 0).leader_epoch for name in ("t", "new")] == [9, 9]
        (point,) = cache.brokers[0].end_points
        assert point == EndPoint(
            listener="PLAINTEXT", security_protocol="PLAINTEXT", host="h", port=1
        )

    play(story)
