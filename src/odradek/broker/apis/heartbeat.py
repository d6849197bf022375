"""Heartbeat (12), versions 0-4: a member is alive, and learns whether its group rebalances.

Behaviour:
    * REBALANCE_IN_PROGRESS while members are to join again; the session goes on all the same.
    * While the coordinator loads every heartbeat is welcome: it knows nobody yet.
    * Group Read, or GROUP_AUTHORIZATION_FAILED.

Versions:
    v3 static members    v4 flexible
"""

from odradek.broker.coordinators.group_shell import GroupShell
from odradek.broker.serving.session import Session
from odradek.model.acl import AclOperation, ResourceType
from odradek.model.errors import ErrorCode
from odradek.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def heartbeat(groups: GroupShell, session: Session, request: HeartbeatRequest) -> HeartbeatResponse:
    """Prolong a session."""
    if not session.authorize(AclOperation.READ, ResourceType.GROUP, request.group_id):
        return HeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    led = groups.find(request.group_id)
    if isinstance(led, ErrorCode):
        if led is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            led = ErrorCode.NONE
        return HeartbeatResponse(error_code=led)
    error = led.mind.heartbeat(
        request.group_id,
        request.generation_id,
        request.member_id,
        request.group_instance_id,
        groups.now().monotonic_ms,
    )
    groups.arm(led)
    return HeartbeatResponse(error_code=error)
