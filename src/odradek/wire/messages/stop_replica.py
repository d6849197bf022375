"""StopReplica (5): the controller has a broker stop replicas, and delete their data or keep it.

Versions:
    v1  grouped by topic; broker epoch
    v2  flexible
    v3  leader epochs, and deletion by partition instead of by request
    v4  may be sent by a KRaft controller
"""

from odradek.wire.schema import Message, array, bool_, int16, int32, int32_array, int64, string


class StopReplicaPartitionV0(Message):
    topic_name: str = string("0")
    partition_index: int = int32("0")


class StopReplicaTopicV1(Message):
    name: str = string("1-2")
    partition_indexes: list[int] = int32_array("1-2")


class StopReplicaPartitionState(Message):
    partition_index: int = int32("3+")
    leader_epoch: int = int32("3+", default=-1)  # -2: the topic is being deleted
    delete_partition: bool = bool_("3+")


class StopReplicaTopicState(Message):
    topic_name: str = string("3+")
    partition_states: list[StopReplicaPartitionState] = array(StopReplicaPartitionState, "3+")


class StopReplicaRequest(Message, api_key=5, versions="0-4", flexible="2+"):
    controller_id: int = int32()
    is_kraft_controller: bool = bool_("4+")
    controller_epoch: int = int32()
    broker_epoch: int = int64("1+", default=-1, ignorable=True)
    delete_partitions: bool = bool_("0-2")
    ungrouped_partitions: list[StopReplicaPartitionV0] = array(StopReplicaPartitionV0, "0")
    topics: list[StopReplicaTopicV1] = array(StopReplicaTopicV1, "1-2")
    topic_states: list[StopReplicaTopicState] = array(StopReplicaTopicState, "3+")


class StopReplicaPartitionError(Message):
    topic_name: str = string()
    partition_index: int = int32()
    error_code: int = int16()


class StopReplicaResponse(Message, api_key=5, versions="0-4", flexible="2+"):
    error_code: int = int16()
    partition_errors: list[StopReplicaPartitionError] = array(StopReplicaPartitionError)
