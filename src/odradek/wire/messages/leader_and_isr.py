"""LeaderAndIsr (4): the controller sends a broker the leader and ISR of partitions it holds.

Versions:
    v2  grouped by topic; broker epoch (KIP-380)
    v3  replicas being added and removed
    v4  flexible
    v5  topic ids; full or incremental (`type`)
    v6  leader recovery state (KIP-704)
    v7  may be sent by a KRaft controller
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


class LeaderAndIsrPartitionState(Message):
    topic_name: str = string("0-1", ignorable=True)
    partition_index: int = int32()
    controller_epoch: int = int32()
    leader: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = int32_array()
    partition_epoch: int = int32()  # the version of the partition's state znode
    replicas: list[int] = int32_array()
    adding_replicas: list[int] = int32_array("3+", ignorable=True)
    removing_replicas: list[int] = int32_array("3+", ignorable=True)
    is_new: bool = bool_("1+", ignorable=True)
    leader_recovery_state: int = int8("6+")


class LeaderAndIsrTopicState(Message):
    topic_name: str = string("2+")
    topic_id: bytes = uuid("5+", ignorable=True)
    partition_states: list[LeaderAndIsrPartitionState] = array(LeaderAndIsrPartitionState, "2+")


class LeaderAndIsrLiveLeader(Message):
    broker_id: int = int32()
    host_name: str = string()
    port: int = int32()


class LeaderAndIsrRequest(Message, api_key=4, versions="0-7", flexible="4+"):
    controller_id: int = int32()
    is_kraft_controller: bool = bool_("7+")
    controller_epoch: int = int32()
    broker_epoch: int = int64("2+", default=-1, ignorable=True)
    type: int = int8("5+")  # 1: every partition of this broker; 2: only those that changed
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = array(
        LeaderAndIsrPartitionState, "0-1"
    )
    topic_states: list[LeaderAndIsrTopicState] = array(LeaderAndIsrTopicState, "2+")
    live_leaders: list[LeaderAndIsrLiveLeader] = array(LeaderAndIsrLiveLeader)


class LeaderAndIsrPartitionError(Message):
    topic_name: str = string("0-4", ignorable=True)
    partition_index: int = int32()
    error_code: int = int16()


class LeaderAndIsrTopicError(Message):
    topic_id: bytes = uuid("5+")
    partition_errors: list[LeaderAndIsrPartitionError] = array(LeaderAndIsrPartitionError, "5+")


class LeaderAndIsrResponse(Message, api_key=4, versions="0-7", flexible="4+"):
    error_code: int = int16()
    partition_errors: list[LeaderAndIsrPartitionError] = array(LeaderAndIsrPartitionError, "0-4")
    topics: list[LeaderAndIsrTopicError] = array(LeaderAndIsrTopicError, "5+")
