"""UpdateMetadata (6): the controller sends every broker the metadata that clients request.

Versions:
    v1  end points by security protocol
    v2  racks
    v3  listener names
    v4  offline replicas
    v5  grouped by topic; broker epoch
    v6  flexible
    v7  topic ids
    v8  may be sent by a KRaft controller; full or incremental (`type`)
"""

from odradek.wire.schema import (
    Message,
    array,
    bool_,
    int8,
    int16,
    int32,
    int32_array,
    int64,
    string,
    uuid,
)


class UpdateMetadataPartitionState(Message):
    topic_name: str = string("0-4", ignorable=True)
    partition_index: int = int32()
    controller_epoch: int = int32()
    leader: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = int32_array()
    zk_version: int = int32()  # the version of the partition's state znode
    replicas: list[int] = int32_array()
    offline_replicas: list[int] = int32_array("4+", ignorable=True)


class UpdateMetadataTopicState(Message):
    topic_name: str = string("5+")
    topic_id: bytes = uuid("7+", ignorable=True)
    partition_states: list[UpdateMetadataPartitionState] = array(UpdateMetadataPartitionState, "5+")


class UpdateMetadataEndpoint(Message):
    port: int = int32("1+")
    host: str = string("1+")
    listener: str = string("3+", ignorable=True)
    security_protocol: int = int16("1+")


class UpdateMetadataBroker(Message):
    id: int = int32()
    v0_host: str = string("0", ignorable=True)
    v0_port: int = int32("0", ignorable=True)
    endpoints: list[UpdateMetadataEndpoint] = array(UpdateMetadataEndpoint, "1+", ignorable=True)
    rack: str | None = string("2+", nullable="0+", ignorable=True)


class UpdateMetadataRequest(Message, api_key=6, versions="0-8", flexible="6+"):
    controller_id: int = int32()
    is_kraft_controller: bool = bool_("8+")
    type: int = int8("8+", tag=0)  # 1: the full metadata; 2: only what changed
    controller_epoch: int = int32()
    broker_epoch: int = int64("5+", default=-1, ignorable=True)
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = array(
        UpdateMetadataPartitionState, "0-4"
    )
    topic_states: list[UpdateMetadataTopicState] = array(UpdateMetadataTopicState, "5+")
    live_brokers: list[UpdateMetadataBroker] = array(UpdateMetadataBroker)


class UpdateMetadataResponse(Message, api_key=6, versions="0-8", flexible="6+"):
    error_code: int = int16()
