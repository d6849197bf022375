"""CreateTopics (19): new topics, with a number of partitions or a manual assignment.

Versions:
    v1  validation only; error messages
    v2  throttle time
    v4  -1 for partitions and replication factor means the broker's defaults
    v5  flexible; the response contains partitions and configs
    v6  quotas may refuse
    v7  the response contains topic ids
"""

from odradek.wire.schema import Message, array, bool_, int8, int16, int32, int32_array, string, uuid


class CreatableReplicaAssignment(Message):
    partition_index: int = int32()
    broker_ids: list[int] = int32_array()


class CreatableTopicConfig(Message):
    name: str = string()
    value: str | None = string(nullable="0+")


class CreatableTopic(Message):
    name: str = string()
    num_partitions: int = int32()  # -1: the broker's default, or as assigned
    replication_factor: int = int16()  # -1: the broker's default, or as assigned
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


class CreateTopicsRequest(Message, api_key=19, versions="0-7", flexible="5+"):
    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = bool_("1+")


class CreatableTopicConfigs(Message):
    name: str = string("5+")
    value: str | None = string("5+", nullable="5+")
    read_only: bool = bool_("5+")
    config_source: int = int8("5+", default=-1, ignorable=True)
    is_sensitive: bool = bool_("5+")


class CreatableTopicResult(Message):
    name: str = string()
    topic_id: bytes = uuid("7+", ignorable=True)
    error_code: int = int16()
    error_message: str | None = string("1+", nullable="0+", ignorable=True)
    topic_config_error_code: int = int16("5+", ignorable=True, tag=0)
    num_partitions: int = int32("5+", default=-1, ignorable=True)
    replication_factor: int = int16("5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = array(
        CreatableTopicConfigs, "5+", nullable="5+", ignorable=True
    )


class CreateTopicsResponse(Message, api_key=19, versions="0-7", flexible="5+"):
    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)
