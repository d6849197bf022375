"""SyncGroup (14): the group's leader sends the assignment, each member receives its part.

Versions:
    v3  static members
    v4  flexible
    v5  protocol type and name, to be checked against the group's
"""

from odradek.wire.schema import Buffer, Message, array, bytes_, int16, int32, string


class SyncGroupRequestAssignment(Message):
    member_id: str = string()
    assignment: Buffer = bytes_()


class SyncGroupRequest(Message, api_key=14, versions="0-5", flexible="4+"):
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    protocol_type: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


class SyncGroupResponse(Message, api_key=14, versions="0-5", flexible="4+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    protocol_type: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    assignment: Buffer = bytes_()
