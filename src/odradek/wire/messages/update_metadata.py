"""UpdateMetadata (6): the controller tells every broker what clients will ask it for.

Versions:
    v1  end points by security protocol
    v2  racks
    v3  listener names
    v4  offline replicas
    v5  grouped by topic; broker epoch
    v6  flexible
    v7  topic ids
    v8  may come from a KRaft controller; full or incremental (`type`)
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
    """In `ungrouped_partition_states`."""

    topic_name: str = string("0-4", ignorable=True)
    partition_index: int = int32()
    controller_epoch: int = int32()
    leader: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = int32_array()
    zk_version: int = int32()  # the store version of the stored state
    replicas: list[int] = int32_array()
    offline_replicas: list[int] = int32_array("4+", ignorable=True)


class UpdateMetadataTopicState(Message):
    """In `topic_states`."""

    topic_name: str = string("5+")
    topic_id: bytes = uuid("7+", ignorable=True)
    partition_states: list[UpdateMetadataPartitionState] = array(UpdateMetadataPartitionState, "5+")


class UpdateMetadataEndpoint(Message):
    """In `live_brokers.endpoints`."""

    port: int = int32("1+")
    host: str = string("1+")
    listener: str = string("3+", ignorable=True)
    security_protocol: int = int16("1+")


class UpdateMetadataBroker(Message):
    """In `live_brokers`."""

    id: int = int32()
    v0_host: str = string("0", ignorable=True)
    v0_port: int = int32("0", ignorable=True)
    endpoints: list[UpdateMetadataEndpoint] = array(UpdateMetadataEndpoint, "1+", ignorable=True)
    rack: str | None = string("2+", nullable="0+", ignorable=True)


class UpdateMetadataRequest(Message, api_key=6, versions="0-8", flexible="6+"):
    """The request."""

    controller_id: int = int32()
    is_kraft_controller: bool = bool_("8+")
    type: int = int8("8+", tag=0)  # 1: the whole picture; 2: what changed
    controller_epoch: int = int32()
    broker_epoch: int = int64("5+", default=-1, ignorable=True)
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = array(
        UpdateMetadataPartitionState, "0-4"
    )
    topic_states: list[UpdateMetadataTopicState] = array(UpdateMetadataTopicState, "5+")
    live_brokers: list[UpdateMetadataBroker] = array(UpdateMetadataBroker)


class UpdateMetadataResponse(Message, api_key=6, versions="0-8", flexible="6+"):
    """The response."""

    error_code: int = int16()
