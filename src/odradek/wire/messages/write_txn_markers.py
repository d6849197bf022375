"""WriteTxnMarkers (27): the transaction coordinator has leaders write commit or abort markers.

Versions:
    v1  flexible

`transaction_version` is ours, and Apache's brokers pass over it. Theirs have it from version 2 of
the API on (KIP-1228), which ZooKeeper's Kafka does not have.
"""

from typing import Final

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
)

TRANSACTION_VERSION_TAG: Final = 10_000  # far from what Kafka may number some day


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
    transaction_version: int = int8("1+", default=0, ignorable=True, tag=TRANSACTION_VERSION_TAG)


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
