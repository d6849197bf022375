"""DescribeGroups (15): state, members and assignment of groups.

Versions:
    v3  authorized operations
    v4  static members
    v5  flexible
"""

from odradek.wire.schema import (
    Buffer,
    Message,
    array,
    bool_,
    bytes_,
    int16,
    int32,
    string,
    string_array,
)


class DescribeGroupsRequest(Message, api_key=15, versions="0-5", flexible="5+"):
    groups: list[str] = string_array()
    include_authorized_operations: bool = bool_("3+")


class DescribedGroupMember(Message):
    member_id: str = string()
    group_instance_id: str | None = string("4+", nullable="4+", default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    member_metadata: Buffer = bytes_()
    member_assignment: Buffer = bytes_()


class DescribedGroup(Message):
    error_code: int = int16()
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32("3+", default=-2147483648)


class DescribeGroupsResponse(Message, api_key=15, versions="0-5", flexible="5+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    groups: list[DescribedGroup] = array(DescribedGroup)
