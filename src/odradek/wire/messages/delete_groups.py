"""DeleteGroups (42): groups without members go, with their offsets.

Versions:
    v2  flexible
"""

from odradek.wire.schema import Message, array, int16, int32, string, string_array


class DeleteGroupsRequest(Message, api_key=42, versions="0-2", flexible="2+"):
    """The request."""

    groups_names: list[str] = string_array()


class DeletableGroupResult(Message):
    """In `results`."""

    group_id: str = string()
    error_code: int = int16()


class DeleteGroupsResponse(Message, api_key=42, versions="0-2", flexible="2+"):
    """The response."""

    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
