"""DescribeProducers (61): the producers that a partition's leader remembers."""

from odradek.wire.schema import Message, array, int16, int32, int32_array, int64, string


class TopicRequest(Message):
    """In `topics`."""

    name: str = string()
    partition_indexes: list[int] = int32_array()


class DescribeProducersRequest(Message, api_key=61, versions="0", flexible="0+"):
    """The request."""

    topics: list[TopicRequest] = array(TopicRequest)


class ProducerState(Message):
    """In `topics.partitions.active_producers`."""

    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32(default=-1)
    last_timestamp: int = int64(default=-1)
    coordinator_epoch: int = int32()
    current_txn_start_offset: int = int64(default=-1)


class PartitionResponse(Message):
    """In `topics.partitions`."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    active_producers: list[ProducerState] = array(ProducerState)


class TopicResponse(Message):
    """In `topics`."""

    name: str = string()
    partitions: list[PartitionResponse] = array(PartitionResponse)


class DescribeProducersResponse(Message, api_key=61, versions="0", flexible="0+"):
    """The response."""

    throttle_time_ms: int = int32()
    topics: list[TopicResponse] = array(TopicResponse)
