"""CreatePartitions (37): more partitions for topics that exist.

Versions:
    v2  flexible
    v3  quotas may refuse
"""

from odradek.wire.schema import Message, array, bool_, int16, int32, int32_array, string


class CreatePartitionsAssignment(Message):
    broker_ids: list[int] = int32_array()


class CreatePartitionsTopic(Message):
    name: str = string()
    count: int = int32()  # after the change
    # None: the broker assigns
    assignments: list[CreatePartitionsAssignment] | None = array(
        CreatePartitionsAssignment, nullable="0+"
    )


class CreatePartitionsRequest(Message, api_key=37, versions="0-3", flexible="2+"):
    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = bool_()


class CreatePartitionsTopicResult(Message):
    name: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


class CreatePartitionsResponse(Message, api_key=37, versions="0-3", flexible="2+"):
    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)
