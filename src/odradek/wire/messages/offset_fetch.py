"""OffsetFetch (9): the committed offsets of groups.

Up to v7 a request has one group, from v8 any number; the message has the fields of both.

Versions:
    v0  read from ZooKeeper
    v1  from the group coordinator
    v2  None for all topics; an error for the whole group
    v5  leader epochs
    v6  flexible
    v7  `require_stable`: an offset of an open transaction is an error (KIP-447)
    v8  many groups
    v9  may be sent by a member of a KIP-848 group
"""

from odradek.wire.schema import Message, array, bool_, int16, int32, int32_array, int64, string


class OffsetFetchRequestTopic(Message):
    name: str = string("0-7")
    partition_indexes: list[int] = int32_array("0-7")


class OffsetFetchRequestTopics(Message):
    name: str = string("8+")
    partition_indexes: list[int] = int32_array("8+")


class OffsetFetchRequestGroup(Message):
    group_id: str = string("8+")
    member_id: str | None = string("9+", nullable="9+", default=None, ignorable=True)
    member_epoch: int = int32("9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = array(
        OffsetFetchRequestTopics, "8+", nullable="8+"
    )


class OffsetFetchRequest(Message, api_key=9, versions="0-9", flexible="6+"):
    group_id: str = string("0-7")
    topics: list[OffsetFetchRequestTopic] | None = array(
        OffsetFetchRequestTopic, "0-7", nullable="2-7"
    )
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, "8+")
    require_stable: bool = bool_("7+")


class OffsetFetchResponsePartition(Message):
    partition_index: int = int32("0-7")
    committed_offset: int = int64("0-7")
    committed_leader_epoch: int = int32("5-7", default=-1, ignorable=True)
    metadata: str | None = string("0-7", nullable="0-7")
    error_code: int = int16("0-7")


class OffsetFetchResponseTopic(Message):
    name: str = string("0-7")
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition, "0-7")


class OffsetFetchResponsePartitions(Message):
    partition_index: int = int32("8+")
    committed_offset: int = int64("8+")
    committed_leader_epoch: int = int32("8+", default=-1, ignorable=True)
    metadata: str | None = string("8+", nullable="8+")
    error_code: int = int16("8+")


class OffsetFetchResponseTopics(Message):
    name: str = string("8+")
    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions, "8+")


class OffsetFetchResponseGroup(Message):
    group_id: str = string("8+")
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics, "8+")
    error_code: int = int16("8+")


class OffsetFetchResponse(Message, api_key=9, versions="0-9", flexible="6+"):
    throttle_time_ms: int = int32("3+", ignorable=True)
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, "0-7")
    error_code: int = int16("2-7", ignorable=True)
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, "8+")
