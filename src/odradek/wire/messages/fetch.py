"""Fetch (1): record batches out of partitions, for consumers and for followers.

A follower says who it is: `replica_id` up to v14, `replica_state` from v15. `follower` reads
either. Its fetch offset is its acknowledgement of everything before.

Versions:
    v4   isolation level; aborted transactions in the response
    v5   log start offset, both ways
    v7   incremental sessions (KIP-227)
    v9   the asker's leader epoch, for fencing
    v11  rack, and a preferred read replica in the response (KIP-392)
    v12  flexible; last fetched epoch and diverging epoch replace truncation by
         OffsetForLeaderEpoch
    v13  topics by id only (KIP-516)
    v15  replica state with broker epoch (KIP-903)
    v16  a refusal may name the new leader (KIP-951)
    v17  directory id of the replica
"""

from odradek.wire.schema import (
    Buffer,
    Message,
    array,
    int8,
    int16,
    int32,
    int32_array,
    int64,
    record_data,
    string,
    struct,
    uuid,
)


class ReplicaState(Message):
    """In `replica_state`."""

    replica_id: int = int32("15+", default=-1)
    replica_epoch: int = int64("15+", default=-1)


class FetchPartition(Message):
    """In `topics.partitions`."""

    partition: int = int32()
    # -1: the asker does not check
    current_leader_epoch: int = int32("9+", default=-1, ignorable=True)
    fetch_offset: int = int64()
    # of the last record it has; -1: does not check
    last_fetched_epoch: int = int32("12+", default=-1)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)  # a follower's own
    partition_max_bytes: int = int32()
    replica_directory_id: bytes = uuid("17+", ignorable=True, tag=0)


class FetchTopic(Message):
    """In `topics`."""

    topic: str = string("0-12", ignorable=True)
    topic_id: bytes = uuid("13+", ignorable=True)
    partitions: list[FetchPartition] = array(FetchPartition)


class ForgottenTopic(Message):
    """In `forgotten_topics_data`."""

    topic: str = string("7-12", ignorable=True)
    topic_id: bytes = uuid("13+", ignorable=True)
    partitions: list[int] = int32_array("7+")


class FetchRequest(Message, api_key=1, versions="4-17", flexible="12+"):
    """The request."""

    cluster_id: str | None = string("12+", nullable="12+", default=None, ignorable=True, tag=0)
    replica_id: int = int32("0-14", default=-1)  # a follower's broker id; -1: a consumer
    replica_state: ReplicaState | None = struct(ReplicaState, "15+", tag=1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32("3+", default=0x7FFFFFFF, ignorable=True)
    # 0: up to the high watermark; 1: up to the last stable offset
    isolation_level: int = int8("4+", ignorable=True)
    session_id: int = int32("7+", ignorable=True)
    # 0: a new session; -1: none, close what was
    session_epoch: int = int32("7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, "7+")
    rack_id: str = string("11+", ignorable=True)


class EpochEndOffset(Message):
    """In `responses.partitions.diverging_epoch`."""

    epoch: int = int32("12+", default=-1)
    end_offset: int = int64("12+", default=-1)


class LeaderIdAndEpoch(Message):
    """In `responses.partitions.current_leader`."""

    leader_id: int = int32("12+", default=-1)
    leader_epoch: int = int32("12+", default=-1)


class SnapshotId(Message):
    """In `responses.partitions.snapshot_id`."""

    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


class AbortedTransaction(Message):
    """In `responses.partitions.aborted_transactions`."""

    producer_id: int = int64("4+")
    first_offset: int = int64("4+")


class PartitionData(Message):
    """In `responses.partitions`."""

    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64("4+", default=-1, ignorable=True)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset | None = struct(EpochEndOffset, "12+", tag=0)
    current_leader: LeaderIdAndEpoch | None = struct(LeaderIdAndEpoch, "12+", tag=1)
    snapshot_id: SnapshotId | None = struct(SnapshotId, "12+", tag=2)
    aborted_transactions: list[AbortedTransaction] | None = array(
        AbortedTransaction, "4+", nullable="4+", ignorable=True
    )
    preferred_read_replica: int = int32("11+", default=-1)
    records: Buffer | None = record_data(nullable="0+")


class FetchableTopicResponse(Message):
    """In `responses`."""

    topic: str = string("0-12", ignorable=True)
    topic_id: bytes = uuid("13+", ignorable=True)
    partitions: list[PartitionData] = array(PartitionData)


class NodeEndpoint(Message):
    """In `node_endpoints`."""

    node_id: int = int32("16+")
    host: str = string("16+")
    port: int = int32("16+")
    rack: str | None = string("16+", nullable="16+", default=None)


class FetchResponse(Message, api_key=1, versions="4-17", flexible="12+"):
    """The response."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("7+", ignorable=True)
    session_id: int = int32("7+")
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "16+", tag=0)
