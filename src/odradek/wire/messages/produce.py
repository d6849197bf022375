"""Produce (0): record batches into partitions.

What the broker serves and what clients send does not come through the generic codec but
through `decode_produce` and the other functions at the end of this file: record data stays
a memoryview of the frame, and a request with one partition costs two microseconds.

Versions:
    v0-2  message formats 0 and 1; decoded only to be refused
    v3    transactional id; batches of format 2 only
    v5    the response tells the log start offset
    v8    the response may blame single records
    v9    flexible
    v10   a refusal may name the new leader (KIP-951)
"""

from odradek.wire.schema import (
    Buffer,
    Message,
    array,
    int16,
    int32,
    int64,
    record_data,
    string,
    struct,
)


class PartitionProduceData(Message):
    """In `topic_data.partition_data`."""

    index: int = int32()
    records: Buffer | None = record_data(nullable="0+")


class TopicProduceData(Message):
    """In `topic_data`."""

    name: str = string()
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


class ProduceRequest(Message, api_key=0, versions="0-11", flexible="9+"):
    """The request."""

    transactional_id: str | None = string("3+", nullable="3+", default=None)
    acks: int = int16()  # 0: no response; 1: the leader has it; -1: every replica in sync
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)


class BatchIndexAndErrorMessage(Message):
    """In `responses.partition_responses.record_errors`."""

    batch_index: int = int32("8+")
    batch_index_error_message: str | None = string("8+", nullable="8+", default=None)


class LeaderIdAndEpoch(Message):
    """In `responses.partition_responses.current_leader`."""

    leader_id: int = int32("10+", default=-1)
    leader_epoch: int = int32("10+", default=-1)


class PartitionProduceResponse(Message):
    """In `responses.partition_responses`."""

    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64("2+", default=-1, ignorable=True)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = array(
        BatchIndexAndErrorMessage, "8+", ignorable=True
    )
    error_message: str | None = string("8+", nullable="8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch | None = struct(LeaderIdAndEpoch, "10+", tag=0)


class TopicProduceResponse(Message):
    """In `responses`."""

    name: str = string()
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


class NodeEndpoint(Message):
    """In `node_endpoints`."""

    node_id: int = int32("10+")
    host: str = string("10+")
    port: int = int32("10+")
    rack: str | None = string("10+", nullable="10+", default=None)


class ProduceResponse(Message, api_key=0, versions="0-11", flexible="9+"):
    """The response."""

    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32("1+", ignorable=True)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", tag=0)
