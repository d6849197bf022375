"""WriteTxnMarkers (27): the transaction coordinator has leaders write commit or abort markers.

Versions:
    v1  flexible
"""

from odradek.wire.schema import Message, array, bool_, int16, int32, int32_array, int64, string


class WritableTxnMarkerTopic(Message):
    """In `markers.topics`."""

    name: str = string()
    partition_indexes: list[int] = int32_array()


class WritableTxnMarker(Message):
    """In `markers`."""

    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_result: bool = bool_()
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic)
    coordinator_epoch: int = int32()


class WriteTxnMarkersRequest(Message, api_key=27, versions="0-1", flexible="1+"):
    """The request."""

    markers: list[WritableTxnMarker] = array(WritableTxnMarker)


class WritableTxnMarkerPartitionResult(Message):
    """In `markers.topics.partitions`."""

    partition_index: int = int32()
    error_code: int = int16()


class WritableTxnMarkerTopicResult(Message):
    """In `markers.topics`."""

    name: str = string()
    partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult)


class WritableTxnMarkerResult(Message):
    """In `markers`."""

    producer_id: int = int64()
    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult)


class WriteTxnMarkersResponse(Message, api_key=27, versions="0-1", flexible="1+"):
    """The response."""

    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult)
