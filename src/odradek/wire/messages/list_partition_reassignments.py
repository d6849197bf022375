"""ListPartitionReassignments (46): the reassignments that are under way."""

from odradek.wire.schema import Message, array, int16, int32, int32_array, string


class ListPartitionReassignmentsTopics(Message):
    name: str = string()
    partition_indexes: list[int] = int32_array()


class ListPartitionReassignmentsRequest(Message, api_key=46, versions="0", flexible="0+"):
    timeout_ms: int = int32(default=60000)
    # None: all
    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, nullable="0+", default=None
    )


class OngoingPartitionReassignment(Message):
    partition_index: int = int32()
    replicas: list[int] = int32_array()
    adding_replicas: list[int] = int32_array()
    removing_replicas: list[int] = int32_array()


class OngoingTopicReassignment(Message):
    name: str = string()
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


class ListPartitionReassignmentsResponse(Message, api_key=46, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)
