"""ListOffsets (2): the offset for a timestamp, or for one of the special ones.

Versions:
    v0  the offsets at which segments begin, before a time
    v1  one offset instead of a list
    v2  isolation level
    v4  current leader epoch in the request, leader epoch of the offset in the response
    v6  flexible
    v7  timestamp -3: the record with the largest timestamp
    v8  timestamp -4: the earliest offset in the local log
    v9  timestamp -5: the last offset in tiered storage
"""

from odradek.wire.schema import Message, array, int8, int16, int32, int64, int64_array, string


class ListOffsetsPartition(Message):
    partition_index: int = int32()
    # -1: not checked
    current_leader_epoch: int = int32("4+", default=-1, ignorable=True)
    timestamp: int = int64()  # -1: latest; -2: earliest; the others are listed above
    max_num_offsets: int = int32("0", default=1)


class ListOffsetsTopic(Message):
    name: str = string()
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


class ListOffsetsRequest(Message, api_key=2, versions="0-9", flexible="6+"):
    replica_id: int = int32()  # a follower's broker id; -1: a consumer
    isolation_level: int = int8("2+")
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)


class ListOffsetsPartitionResponse(Message):
    partition_index: int = int32()
    error_code: int = int16()
    old_style_offsets: list[int] = int64_array("0")
    timestamp: int = int64("1+", default=-1)
    offset: int = int64("1+", default=-1)
    leader_epoch: int = int32("4+", default=-1)


class ListOffsetsTopicResponse(Message):
    name: str = string()
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


class ListOffsetsResponse(Message, api_key=2, versions="0-9", flexible="6+"):
    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)
