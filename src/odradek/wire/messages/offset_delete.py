"""OffsetDelete (47): committed offsets of a group go. Never became flexible."""

from odradek.wire.schema import Message, array, int16, int32, string


class OffsetDeleteRequestPartition(Message):
    """In `topics.partitions`."""

    partition_index: int = int32()


class OffsetDeleteRequestTopic(Message):
    """In `topics`."""

    name: str = string()
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition)


class OffsetDeleteRequest(Message, api_key=47, versions="0"):
    """The request."""

    group_id: str = string()
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic)


class OffsetDeleteResponsePartition(Message):
    """In `topics.partitions`."""

    partition_index: int = int32()
    error_code: int = int16()


class OffsetDeleteResponseTopic(Message):
    """In `topics`."""

    name: str = string()
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition)


class OffsetDeleteResponse(Message, api_key=47, versions="0"):
    """The response."""

    error_code: int = int16()
    throttle_time_ms: int = int32(ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic)
