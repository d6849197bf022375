"""ListGroups (16): the groups that a broker coordinates.

Versions:
    v3  flexible
    v4  filtered by state
    v5  filtered by type (KIP-848)
"""

from odradek.wire.schema import Message, array, int16, int32, string, string_array


class ListGroupsRequest(Message, api_key=16, versions="0-5", flexible="3+"):
    states_filter: list[str] = string_array("4+")
    types_filter: list[str] = string_array("5+")


class ListedGroup(Message):
    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string("4+", ignorable=True)
    group_type: str = string("5+", ignorable=True)


class ListGroupsResponse(Message, api_key=16, versions="0-5", flexible="3+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)
