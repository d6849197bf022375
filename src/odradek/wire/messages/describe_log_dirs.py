"""DescribeLogDirs (35): log dirs, and the sizes of the replicas in them.

Versions:
    v2  flexible
    v3  an error for the whole request
    v4  bytes of the volumes
"""

from odradek.wire.schema import Message, array, bool_, int16, int32, int32_array, int64, string


class DescribableLogDirTopic(Message):
    topic: str = string()
    partitions: list[int] = int32_array()


class DescribeLogDirsRequest(Message, api_key=35, versions="0-4", flexible="2+"):
    # None: all
    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, nullable="0+")


class DescribeLogDirsPartition(Message):
    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = bool_()


class DescribeLogDirsTopic(Message):
    name: str = string()
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)


class DescribeLogDirsResult(Message):
    error_code: int = int16()
    log_dir: str = string()
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
    total_bytes: int = int64("4+", default=-1, ignorable=True)
    usable_bytes: int = int64("4+", default=-1, ignorable=True)


class DescribeLogDirsResponse(Message, api_key=35, versions="0-4", flexible="2+"):
    throttle_time_ms: int = int32()
    error_code: int = int16("3+", ignorable=True)
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)
