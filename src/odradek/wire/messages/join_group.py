"""JoinGroup (11): a member joins a group, or rejoins it in a rebalance.

Versions:
    v1  rebalance timeout apart from the session timeout
    v4  a new member must join again with its id (MEMBER_ID_REQUIRED, KIP-394)
    v5  static members (KIP-345)
    v6  flexible
    v7  the response contains the protocol type
    v8  the reason for which the member joins (KIP-800)
    v9  a static leader may have to skip the assignment (`skip_assignment`)
"""

from odradek.wire.schema import Buffer, Message, array, bool_, bytes_, int16, int32, string


class JoinGroupRequestProtocol(Message):
    name: str = string()
    metadata: Buffer = bytes_()


class JoinGroupRequest(Message, api_key=11, versions="0-9", flexible="6+"):
    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="5+", default=None)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string("8+", nullable="8+", default=None, ignorable=True)


class JoinGroupResponseMember(Message):
    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    metadata: Buffer = bytes_()


class JoinGroupResponse(Message, api_key=11, versions="0-9", flexible="6+"):
    throttle_time_ms: int = int32("2+", ignorable=True)
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string("7+", nullable="7+", default=None, ignorable=True)
    protocol_name: str | None = string(nullable="7+")
    leader: str = string()
    skip_assignment: bool = bool_("9+")
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)
