"""Controllers' requests in versions without topic ids, in the form of later versions.

LeaderAndIsr v0-4, StopReplica v0-2 and UpdateMetadata v0-6 come from controllers with an
`inter.broker.protocol.version` below 2.8. These functions change a request in place.
"""

from collections.abc import Callable, Mapping
from typing import Final

from odradek.model.errors import ErrorCode
from odradek.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
)
from odradek.wire.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from odradek.wire.messages.update_metadata import (
    UpdateMetadataEndpoint,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

# Names of listeners before v3 of UpdateMetadata: those of the security protocols, by their codes.
_LISTENERS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def group_stop_replica(request: StopReplicaRequest) -> None:
    """Name partitions by topic, each with the request's deletion flag and no leader epoch."""
    indexes: dict[str, list[int]] = {}
    for partition in request.ungrouped_partitions:
        indexes.setdefault(partition.topic_name, []).append(partition.partition_index)
    for topic in request.topics:
        indexes.setdefault(topic.name, []).extend(topic.partition_indexes)
    delete = request.delete_partitions
    request.topic_states = [
        StopReplicaTopicState(
            topic_name=name,
            partition_states=[
                StopReplicaPartitionState(partition_index=index, delete_partition=delete)
                for index in partitions
            ],
        )
        for name, partitions in indexes.items()
    ]


def group_update_metadata(request: UpdateMetadataRequest, id_of: Callable[[str], bytes]) -> None:
    """Name partitions by topic, topics by their known ids, and listeners by their protocols."""
    by_topic = {topic.topic_name: topic for topic in request.topic_states}
    for state in request.ungrouped_partition_states:
        name = state.topic_name
        topic = by_topic.setdefault(name, UpdateMetadataTopicState(topic_name=name))
        topic.partition_states.append(state)
    for name, topic in by_topic.items():
        topic.topic_id = id_of(name)
    request.topic_states = list(by_topic.values())
    for broker in request.live_brokers:
        if not broker.endpoints:
            broker.endpoints = [UpdateMetadataEndpoint(host=broker.v0_host, port=broker.v0_port)]
        for point in broker.endpoints:
            if not point.listener and 0 <= point.security_protocol < len(_LISTENERS):
                point.listener = _LISTENERS[point.security_protocol]


def group_leader_and_isr(request: LeaderAndIsrRequest) -> None:
    """Name partitions by topic."""
    by_topic = {topic.topic_name: topic for topic in request.topic_states}
    for state in request.ungrouped_partition_states:
        name = state.topic_name
        topic = by_topic.setdefault(name, LeaderAndIsrTopicState(topic_name=name))
        topic.partition_states.append(state)
    request.topic_states = list(by_topic.values())


def leader_and_isr_by_name(
    response: LeaderAndIsrResponse, asked: LeaderAndIsrRequest, ids: Mapping[str, bytes]
) -> LeaderAndIsrResponse:
    """The response to v0-4: each partition with its topic's name.

    A topic that has no id is UNSUPPORTED_VERSION: followers fetch by topic id.
    """
    if response.error_code:
        return response
    found = {
        (topic.topic_id, each.partition_index): each.error_code
        for topic in response.topics
        for each in topic.partition_errors
    }
    return LeaderAndIsrResponse(
        partition_errors=[
            LeaderAndIsrPartitionError(
                topic_name=topic.topic_name,
                partition_index=state.partition_index,
                error_code=found.get(
                    (ids.get(topic.topic_name, b""), state.partition_index),
                    ErrorCode.UNSUPPORTED_VERSION,
                ),
            )
            for topic in asked.topic_states
            for state in topic.partition_states
        ]
    )
