"""WriteTxnMarkers (27): the transaction coordinator has leaders append commit or abort markers.

Versions:
    v1  flexible

`transaction_version` is a tagged field of our own, which Apache's brokers skip. Theirs have it from
version 2 of the API on (KIP-1228), which Kafka 3.9 does not have.
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

TRANSACTION_VERSION_TAG: Final = 10_000  # far above any tag that Kafka uses


class WritableTxnMarkerTopic(Message):
    name: str = string()
    partition_indexes: list[int] = int32_array()


class WritableTxnMarker(Message):
    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_result: bool = bool_()
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic)
    coordinator_epoch: int = int32()
    transaction_version: int = int8("1+", default=0, ignorable=True, tag=TRANSACTION_VERSION_TAG)


class WriteTxnMarkersRequest(Message, api_key=27, versions="0-1", flexible="1+"):
    markers: list[WritableTxnMarker] = array(WritableTxnMarker)


class WritableTxnMarkerPartitionResult(Message):
    partition_index: int = int32()
    error_code: int = int16()


class WritableTxnMarkerTopicResult(Message):
    name: str = string()
    partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult)


class WritableTxnMarkerResult(Message):
    producer_id: int = int64()
    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult)


class WriteTxnMarkersResponse(Message, api_key=27, versions="0-1", flexible="1+"):
    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult)
