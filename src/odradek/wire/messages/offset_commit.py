"""OffsetCommit (8): commits offsets of a group.

Versions:
    v0  stored in ZooKeeper
    v1  generation, member id; the time of each commit
    v2  no time of the commit; a retention time, removed at v5 (`offsets.retention.minutes` applies)
    v6  the leader epoch of the committed offset
    v7  static members
    v8  flexible
    v9  may be sent by a member of a KIP-848 group
"""

from odradek.wire.schema import Message, array, int16, int32, int64, string


class OffsetCommitRequestPartition(Message):
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("6+", default=-1, ignorable=True)
    commit_timestamp: int = int64("1", default=-1)  # -1: the time of the request
    committed_metadata: str | None = string(nullable="0+")


class OffsetCommitRequestTopic(Message):
    name: str = string()
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


class OffsetCommitRequest(Message, api_key=8, versions="0-9", flexible="8+"):
    group_id: str = string()
    generation_id_or_member_epoch: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string("1+", ignorable=True)
    group_instance_id: str | None = string("7+", nullable="7+", default=None)
    # -1: the broker's configuration applies
    retention_time_ms: int = int64("2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


class OffsetCommitResponsePartition(Message):
    partition_index: int = int32()
    error_code: int = int16()


class OffsetCommitResponseTopic(Message):
    name: str = string()
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


class OffsetCommitResponse(Message, api_key=8, versions="0-9", flexible="8+"):
    throttle_time_ms: int = int32("3+", ignorable=True)
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)
