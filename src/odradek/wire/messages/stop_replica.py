"""StopReplica (5): the controller takes replicas away from a broker, with or without their data.

Versions:
    v1  grouped by topic; broker epoch
    v2  flexible
    v3  leader epochs, and deletion for each partition instead of for all
    v4  may come from a KRaft controller
"""

from odradek.wire.schema import Message, array, bool_, int16, int32, int32_array, int64, string


class StopReplicaPartitionV0(Message):
    """In `ungrouped_partitions`."""

    topic_name: str = string("0")
    partition_index: int = int32("0")


class StopReplicaTopicV1(Message):
    """In `topics`."""

    name: str = string("1-2")
    partition_indexes: list[int] = int32_array("1-2")


class StopReplicaPartitionState(Message):
    """In `topic_states.partition_states`."""

    partition_index: int = int32("3+")
    leader_epoch: int = int32("3+", default=-1)  # -2: the topic is being deleted
    delete_partition: bool = bool_("3+")


class StopReplicaTopicState(Message):
    """In `topic_states`."""

    topic_name: str = string("3+")
    partition_states: list[StopReplicaPartitionState] = array(StopReplicaPartitionState, "3+")


class StopReplicaRequest(Message, api_key=5, versions="0-4", flexible="2+"):
    """The request."""

    controller_id: int = int32()
    is_kraft_controller: bool = bool_("4+")
    controller_epoch: int = int32()
    broker_epoch: int = int64("1+", default=-1, ignorable=True)
    delete_partitions: bool = bool_("0-2")
    ungrouped_partitions: list[StopReplicaPartitionV0] = array(StopReplicaPartitionV0, "0")
    topics: list[StopReplicaTopicV1] = array(StopReplicaTopicV1, "1-2")
    topic_states: list[StopReplicaTopicState] = array(StopReplicaTopicState, "3+")


class StopReplicaPartitionError(Message):
    """In `partition_errors`."""

    topic_name: str = string()
    partition_index: int = int32()
    error_code: int = int16()


class StopReplicaResponse(Message, api_key=5, versions="0-4", flexible="2+"):
    """The response."""

    error_code: int = int16()
    partition_errors: list[StopReplicaPartitionError] = array(StopReplicaPartitionError)
