"""Heartbeat (12), versions 0-4: a member extends its session, and learns of a rebalance.

Behaviour:
    * REBALANCE_IN_PROGRESS while members have to rejoin; the session is extended nevertheless.
    * While the coordinator loads, the answer is NONE: the members are not known yet.
    * Group Read, or GROUP_AUTHORIZATION_FAILED.

Versions:
    v3 static members    v4 flexible
"""

from odradek.broker.coordinators.group_shell import GroupShell
from odradek.broker.serving.session import Session
from odradek.group.effects import HeartbeatAnswer
from odradek.group.events import Heartbeat
from odradek.model.acl import AclOperation, ResourceType
from odradek.model.errors import ErrorCode
from odradek.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def heartbeat(groups: GroupShell, session: Session, request: HeartbeatRequest) -> HeartbeatResponse:
    if not session.authorize(AclOperation.READ, ResourceType.GROUP, request.group_id):
        return HeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    coordinator = groups.find(request.group_id)
    if isinstance(coordinator, ErrorCode):
        if coordinator is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            coordinator = ErrorCode.NONE
        return HeartbeatResponse(error_code=coordinator)
    answer = groups.ask_now(
        coordinator,
        lambda number: Heartbeat(
            request=number,
            group_id=request.group_id,
            generation=request.generation_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
        ),
        HeartbeatAnswer,
    )
    return HeartbeatResponse(error_code=answer.error)
