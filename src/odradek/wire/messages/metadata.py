"""Metadata (3): brokers, the controller, topics and the leaders of their partitions.

In v0 an empty list of topics means all topics; from v1 None means all and an empty list no topic.

Versions:
    v1   controller, racks, internal topics
    v4   may forbid automatic topic creation
    v5   offline replicas
    v7   leader epochs
    v8   authorized operations; those of the cluster are removed at v11 (DescribeCluster)
    v9   flexible
    v10  topic ids in the response
    v12  topics may be requested by id, the name being None
"""

from odradek.wire.schema import Message, array, bool_, int16, int32, int32_array, string, uuid


class MetadataRequestTopic(Message):
    topic_id: bytes = uuid("10+", ignorable=True)
    name: str | None = string(nullable="10+")


class MetadataRequest(Message, api_key=3, versions="0-12", flexible="9+"):
    # None: all; in v0 an empty list is all
    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable="1+")
    allow_auto_topic_creation: bool = bool_("4+", default=True)
    include_cluster_authorized_operations: bool = bool_("8-10")
    include_topic_authorized_operations: bool = bool_("8+")


class MetadataResponseBroker(Message):
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string("1+", nullable="1+", default=None, ignorable=True)


class MetadataResponsePartition(Message):
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32("7+", default=-1, ignorable=True)
    replica_nodes: list[int] = int32_array()
    isr_nodes: list[int] = int32_array()
    offline_replicas: list[int] = int32_array("5+", ignorable=True)


class MetadataResponseTopic(Message):
    error_code: int = int16()
    name: str | None = string(nullable="12+")
    topic_id: bytes = uuid("10+", ignorable=True)
    is_internal: bool = bool_("1+", ignorable=True)
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
    topic_authorized_operations: int = int32("8+", default=-2147483648)


class MetadataResponse(Message, api_key=3, versions="0-12", flexible="9+"):
    throttle_time_ms: int = int32("3+", ignorable=True)
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = string("2+", nullable="2+", default=None, ignorable=True)
    controller_id: int = int32("1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = int32("8-10", default=-2147483648)
