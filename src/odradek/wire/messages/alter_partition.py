"""AlterPartition (56): a leader proposes an ISR to the controller (KIP-497).

Versions:
    v1  leader recovery state
    v2  topic ids instead of names
    v3  the ISR with broker epochs (KIP-903)
"""

from odradek.wire.schema import Message, array, int8, int16, int32, int32_array, int64, string, uuid


class BrokerState(Message):
    broker_id: int = int32("3+")
    broker_epoch: int = int64("3+", default=-1)


class AlterPartitionPartition(Message):
    partition_index: int = int32()
    leader_epoch: int = int32()
    new_isr: list[int] = int32_array("0-2")
    new_isr_with_epochs: list[BrokerState] = array(BrokerState, "3+")
    leader_recovery_state: int = int8("1+")
    partition_epoch: int = int32()


class AlterPartitionTopic(Message):
    topic_name: str = string("0-1", ignorable=True)
    topic_id: bytes = uuid("2+", ignorable=True)
    partitions: list[AlterPartitionPartition] = array(AlterPartitionPartition)


class AlterPartitionRequest(Message, api_key=56, versions="0-3", flexible="0+"):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    topics: list[AlterPartitionTopic] = array(AlterPartitionTopic)


class AlteredPartition(Message):
    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = int32_array()
    leader_recovery_state: int = int8("1+", ignorable=True)
    partition_epoch: int = int32()


class AlteredTopic(Message):
    topic_name: str = string("0-1", ignorable=True)
    topic_id: bytes = uuid("2+", ignorable=True)
    partitions: list[AlteredPartition] = array(AlteredPartition)


class AlterPartitionResponse(Message, api_key=56, versions="0-3", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    topics: list[AlteredTopic] = array(AlteredTopic)
