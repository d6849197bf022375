"""DeleteGroups (42): deletes groups without members, and their offsets.

Versions:
    v2  flexible
"""

from odradek.wire.schema import Message, array, int16, int32, string, string_array


class DeleteGroupsRequest(Message, api_key=42, versions="0-2", flexible="2+"):
    groups_names: list[str] = string_array()


class DeletableGroupResult(Message):
    group_id: str = string()
    error_code: int = int16()


class DeleteGroupsResponse(Message, api_key=42, versions="0-2", flexible="2+"):
    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
