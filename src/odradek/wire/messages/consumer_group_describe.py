"""ConsumerGroupDescribe (69): the groups of KIP-848, which only KRaft brokers have.

A broker of the ZooKeeper era advertises it, and answers each group with UNSUPPORTED_VERSION. So
the fields of members are not declared here: the list of members is always empty.
"""

from odradek.wire.schema import Message, array, bool_, int16, int32, string, string_array


class ConsumerGroupDescribeRequest(Message, api_key=69, versions="0", flexible="0+"):
    group_ids: list[str] = string_array()
    include_authorized_operations: bool = bool_()


class DescribedConsumerGroup(Message):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[str] = string_array()
    authorized_operations: int = int32(default=-2147483648)


class ConsumerGroupDescribeResponse(Message, api_key=69, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    groups: list[DescribedConsumerGroup] = array(DescribedConsumerGroup)
