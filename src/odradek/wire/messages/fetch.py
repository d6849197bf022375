"""Fetch (1): record batches out of partitions, for consumers and for followers.

A follower identifies itself by `replica_id` up to v14, by `replica_state` from v15; `follower`
reads either. Its fetch offset acknowledges every record before it.

The broker encodes its responses with `encode_fetch_response` at the end of this file, which
does not copy large records. What it sends and gets as a follower is in
`odradek.wire.follower_fetch`. Everything else uses the generic codec.

Versions:
    v0   message sets; v0 and v1 answer format v0, v2 and v3 format v1
    v1   throttle time in the response
    v3   a limit of the response's size, and always a whole first batch (KIP-74)
    v4   isolation level; aborted transactions in the response
    v5   log start offset, both ways
    v7   incremental sessions (KIP-227)
    v9   current leader epoch, for fencing (KIP-320)
    v11  rack, and a preferred read replica in the response (KIP-392)
    v12  flexible; last fetched epoch and diverging epoch replace truncation by
         OffsetForLeaderEpoch
    v13  topics by id only (KIP-516)
    v15  replica state with broker epoch (KIP-903)
    v16  an error may name the current leader (KIP-951)
    v17  directory id of the replica
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final

from odradek.wire.codec import encoder
from odradek.wire.header import encode_response_header
from odradek.wire.primitives import compact_count, encode_unsigned_varint
from odradek.wire.schema import (
    ZERO_UUID,
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
    replica_id: int = int32("15+", default=-1)
    replica_epoch: int = int64("15+", default=-1)


class FetchPartition(Message):
    partition: int = int32()
    # -1: not checked
    current_leader_epoch: int = int32("9+", default=-1, ignorable=True)
    fetch_offset: int = int64()
    # of the last record the follower has; -1: not checked
    last_fetched_epoch: int = int32("12+", default=-1)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)  # a follower's own
    partition_max_bytes: int = int32()
    replica_directory_id: bytes = uuid("17+", ignorable=True, tag=0)


class FetchTopic(Message):
    topic: str = string("0-12", ignorable=True)
    topic_id: bytes = uuid("13+", ignorable=True)
    partitions: list[FetchPartition] = array(FetchPartition)


class ForgottenTopic(Message):
    topic: str = string("7-12", ignorable=True)
    topic_id: bytes = uuid("13+", ignorable=True)
    partitions: list[int] = int32_array("7+")


class FetchRequest(Message, api_key=1, versions="0-17", flexible="12+"):
    cluster_id: str | None = string("12+", nullable="12+", default=None, ignorable=True, tag=0)
    replica_id: int = int32("0-14", default=-1)  # a follower's broker id; -1: a consumer
    replica_state: ReplicaState | None = struct(ReplicaState, "15+", tag=1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32("3+", default=0x7FFFFFFF, ignorable=True)
    # 0: up to the high watermark; 1: up to the last stable offset
    isolation_level: int = int8("4+", ignorable=True)
    session_id: int = int32("7+", ignorable=True)
    # 0: a new session; -1: no session, and close the one named
    session_epoch: int = int32("7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, "7+")
    rack_id: str = string("11+", ignorable=True)


class EpochEndOffset(Message):
    epoch: int = int32("12+", default=-1)
    end_offset: int = int64("12+", default=-1)


class LeaderIdAndEpoch(Message):
    leader_id: int = int32("12+", default=-1)
    leader_epoch: int = int32("12+", default=-1)


class SnapshotId(Message):
    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


class AbortedTransaction(Message):
    producer_id: int = int64("4+")
    first_offset: int = int64("4+")


class PartitionData(Message):
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
    topic: str = string("0-12", ignorable=True)
    topic_id: bytes = uuid("13+", ignorable=True)
    partitions: list[PartitionData] = array(PartitionData)


class NodeEndpoint(Message):
    node_id: int = int32("16+")
    host: str = string("16+")
    port: int = int32("16+")
    rack: str | None = string("16+", nullable="16+", default=None)


class FetchResponse(Message, api_key=1, versions="0-17", flexible="12+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("7+", ignorable=True)
    session_id: int = int32("7+")
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "16+", tag=0)


def follower(request: FetchRequest) -> ReplicaState:
    """The requesting follower's id and broker epoch; replica id -1 for a consumer."""
    return request.replica_state or ReplicaState(replica_id=request.replica_id)


def follower_of(request: FetchRequest) -> int:
    """The id of the follower that fetches, or -1 for a consumer."""
    state = request.replica_state
    return state.replica_id if state is not None else request.replica_id


# -------------------------------------------------------------------- the fast path

FOLLOWER_VERSION: Final = 17  # of the fetches between brokers
FIRST_FLEXIBLE: Final = 12
_THROTTLE_FROM: Final = 1
_ISOLATION_FROM: Final = 4
_LOG_START_FROM: Final = 5
_SESSIONS_FROM: Final = 7
_PREFERRED_REPLICA_FROM: Final = 11
_TOPIC_IDS_FROM: Final = 13

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
# length, correlation id, no tags, throttle time, error, session id
_FLEXIBLE_HEAD: Final = Struct(">iixihi")
# throttle time, error, session id
_HEAD: Final = Struct(">ihi")
# partition, error, high watermark, last stable offset, log start offset
_STATE: Final = Struct(">ihqqq")
_STATE_BEFORE_LOG_START: Final = Struct(">ihqq")
_STATE_BEFORE_ISOLATION: Final = Struct(">ihq")
# The same, aborted transactions (null), preferred replica
_STATE_COMMON: Final = Struct(">ihqqqBi")
_ABORTED: Final = Struct(">qq")
# Records up to this size are copied into one piece: a connection joins small pieces in any case.
JOINED_BYTES: Final = 4096
# tag, size, fields, no tags inside
_DIVERGING_EPOCH: Final = Struct(">BBiqx")
_CURRENT_LEADER: Final = Struct(">BBiix")
_SNAPSHOT_ID: Final = Struct(">BBqix")


def encode_fetch_response(  # noqa: PLR0913 - the fields of the response
    correlation_id: int,
    version: int,
    topics: Sequence[tuple[str | bytes, Sequence[PartitionData]]],
    *,
    throttle_time_ms: int = 0,
    error_code: int = 0,
    session_id: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> list[Buffer]:
    """The frame of a fetch response: one piece if it is small, or pieces with uncopied records.

    A topic is identified by its name up to v12, by its id from v13. The records of a partition
    without any are encoded as empty bytes, not as null, which some clients do not accept.
    """
    flexible = version >= FIRST_FLEXIBLE
    count = compact_count if flexible else _INT32.pack
    tags = b"\0" if flexible else b""
    # The length of the frame is written at the end.
    if flexible:
        head = _FLEXIBLE_HEAD.pack(0, correlation_id, throttle_time_ms, error_code, session_id)
        piece = bytearray(head)
    else:
        piece = _head_plain(correlation_id, version, throttle_time_ms, error_code, session_id)
    piece += count(len(topics))
    pieces: list[Buffer] = [piece]
    for topic, partitions in topics:
        piece += _topic(topic, version) + count(len(partitions))
        for partition in partitions:
            piece += _state_flexible(partition) if flexible else _state_plain(partition, version)
            records = partition.records or b""
            piece += count(len(records))
            if records:
                piece = bytearray()
                pieces += (records, piece)
            if flexible:
                piece += _partition_tags(partition)
        piece += tags
    if node_endpoints:
        piece += _node_endpoints(node_endpoints, version)
    else:
        piece += tags
    if not piece:
        pieces.pop()
    size = sum(map(len, pieces))
    _INT32.pack_into(pieces[0], 0, size - 4)
    return pieces if size > JOINED_BYTES else [b"".join(pieces)]


def _head_plain(
    correlation_id: int, version: int, throttle_time_ms: int, error_code: int, session_id: int
) -> bytearray:
    piece = bytearray(4)
    piece += encode_response_header(1, version, correlation_id)
    if version >= _SESSIONS_FROM:
        piece += _HEAD.pack(throttle_time_ms, error_code, session_id)
        return piece
    assert not session_id, (version, session_id)
    if version >= _THROTTLE_FROM:
        piece += _INT32.pack(throttle_time_ms)
    return piece


def _topic(topic: str | bytes, version: int) -> bytes:
    if isinstance(topic, bytes):
        assert version >= _TOPIC_IDS_FROM, (version, topic)
        assert len(topic) == len(ZERO_UUID), topic
        return topic
    assert version < _TOPIC_IDS_FROM, (version, topic)
    name = topic.encode()
    return (compact_count if version >= FIRST_FLEXIBLE else _INT16.pack)(len(name)) + name


def _state_flexible(partition: PartitionData) -> bytes:
    state = (
        partition.partition_index,
        partition.error_code,
        partition.high_watermark,
        partition.last_stable_offset,
        partition.log_start_offset,
    )
    aborted = partition.aborted_transactions
    if aborted is None:
        return _STATE_COMMON.pack(*state, 0, partition.preferred_read_replica)
    items = b"".join(_ABORTED.pack(a.producer_id, a.first_offset) + b"\0" for a in aborted)
    preferred = _INT32.pack(partition.preferred_read_replica)
    return _STATE.pack(*state) + compact_count(len(aborted)) + items + preferred


def _state_plain(partition: PartitionData, version: int) -> bytes:
    state = (
        partition.partition_index,
        partition.error_code,
        partition.high_watermark,
        partition.last_stable_offset,
        partition.log_start_offset,
    )
    if version >= _LOG_START_FROM:
        piece = _STATE.pack(*state)
    elif version < _ISOLATION_FROM:
        return _STATE_BEFORE_ISOLATION.pack(*state[:3])
    else:
        piece = _STATE_BEFORE_LOG_START.pack(*state[:4])
    aborted = partition.aborted_transactions
    piece += _INT32.pack(-1 if aborted is None else len(aborted))
    piece += b"".join(_ABORTED.pack(a.producer_id, a.first_offset) for a in aborted or ())
    if version >= _PREFERRED_REPLICA_FROM:
        piece += _INT32.pack(partition.preferred_read_replica)
    return piece


def _partition_tags(partition: PartitionData) -> bytes:
    diverging = partition.diverging_epoch
    leader = partition.current_leader
    snapshot = partition.snapshot_id
    if diverging is None and leader is None and snapshot is None:
        return b"\0"
    tags = []
    if diverging is not None:
        tags.append(_DIVERGING_EPOCH.pack(0, 13, diverging.epoch, diverging.end_offset))
    if leader is not None:
        tags.append(_CURRENT_LEADER.pack(1, 9, leader.leader_id, leader.leader_epoch))
    if snapshot is not None:
        tags.append(_SNAPSHOT_ID.pack(2, 13, snapshot.end_offset, snapshot.epoch))
    return encode_unsigned_varint(len(tags)) + b"".join(tags)


def _node_endpoints(node_endpoints: Sequence[NodeEndpoint], version: int) -> bytes:
    """The tagged section of the response, written by the generic codec."""
    response = FetchResponse(node_endpoints=list(node_endpoints))
    return encoder(FetchResponse, version)(response)[_HEAD.size + 1 :]
