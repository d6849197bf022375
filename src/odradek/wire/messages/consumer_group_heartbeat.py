"""ConsumerGroupHeartbeat (68): membership in the groups of KIP-848, which only KRaft brokers have.

A broker of the ZooKeeper era advertises it, and answers with UNSUPPORTED_VERSION.
"""

from odradek.wire.schema import (
    Message,
    array,
    int16,
    int32,
    int32_array,
    string,
    string_array,
    struct,
    uuid,
)


class ConsumerGroupHeartbeatTopicPartitions(Message):
    topic_id: bytes = uuid()
    partitions: list[int] = int32_array()


class ConsumerGroupHeartbeatAssignment(Message):
    topic_partitions: list[ConsumerGroupHeartbeatTopicPartitions] = array(
        ConsumerGroupHeartbeatTopicPartitions
    )


class ConsumerGroupHeartbeatRequest(Message, api_key=68, versions="0", flexible="0+"):
    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = string_array(nullable="0+", default=None)
    server_assignor: str | None = string(nullable="0+", default=None)
    topic_partitions: list[ConsumerGroupHeartbeatTopicPartitions] | None = array(
        ConsumerGroupHeartbeatTopicPartitions, nullable="0+", default=None
    )


class ConsumerGroupHeartbeatResponse(Message, api_key=68, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: ConsumerGroupHeartbeatAssignment | None = struct(
        ConsumerGroupHeartbeatAssignment, nullable="0+"
    )
