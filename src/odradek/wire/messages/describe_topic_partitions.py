"""DescribeTopicPartitions (75): topics with the ELR, which only KRaft has (KIP-966), paged.

Our brokers do not serve it, as Kafka's in ZooKeeper mode do not; our tools send it to KRaft ones.
"""

from odradek.wire.schema import (
    Message,
    array,
    bool_,
    int16,
    int32,
    int32_array,
    string,
    struct,
    uuid,
)


class TopicRequest(Message):
    name: str = string()


class Cursor(Message):
    """The topic and partition at which the next page begins."""

    topic_name: str = string()
    partition_index: int = int32()


class DescribeTopicPartitionsRequest(Message, api_key=75, versions="0", flexible="0+"):
    topics: list[TopicRequest] = array(TopicRequest)
    response_partition_limit: int = int32(default=2000)
    cursor: Cursor | None = struct(Cursor)


class PartitionResponse(Message):
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(default=-1)
    replica_nodes: list[int] = int32_array()
    isr_nodes: list[int] = int32_array()
    eligible_leader_replicas: list[int] | None = int32_array(nullable="0+", default=None)
    last_known_elr: list[int] | None = int32_array(nullable="0+", default=None)
    offline_replicas: list[int] = int32_array()


class TopicResponse(Message):
    error_code: int = int16()
    name: str | None = string(nullable="0+")
    topic_id: bytes = uuid()
    is_internal: bool = bool_()
    partitions: list[PartitionResponse] = array(PartitionResponse)
    topic_authorized_operations: int = int32(default=-2147483648)


class DescribeTopicPartitionsResponse(Message, api_key=75, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    topics: list[TopicResponse] = array(TopicResponse)
    next_cursor: Cursor | None = struct(Cursor)
