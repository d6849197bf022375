"""FindCoordinator (10): the broker that coordinates a group or a transactional id.

Up to v3 a request has one key, from v4 any number; the message has the fields of both.

Versions:
    v1  transactional ids (`key_type` 1); error messages
    v3  flexible
    v4  many keys
"""

from odradek.wire.schema import Message, array, int8, int16, int32, string, string_array


class FindCoordinatorRequest(Message, api_key=10, versions="0-6", flexible="3+"):
    key: str = string("0-3")
    key_type: int = int8("1+")  # 0: a group; 1: a transactional id
    coordinator_keys: list[str] = string_array("4+")


class Coordinator(Message):
    key: str = string("4+")
    node_id: int = int32("4+")
    host: str = string("4+")
    port: int = int32("4+")
    error_code: int = int16("4+")
    error_message: str | None = string("4+", nullable="4+", ignorable=True)


class FindCoordinatorResponse(Message, api_key=10, versions="0-6", flexible="3+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0-3")
    error_message: str | None = string("1-3", nullable="1-3", ignorable=True)
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")
    coordinators: list[Coordinator] = array(Coordinator, "4+")
