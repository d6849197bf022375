"""LeaveGroup (13), versions 0-5: members leave at once instead of by their session timeout.

Behaviour:
    * Each of several members (v3) succeeds or fails on its own. A static member can be removed by
      its instance id alone; with a former member id it is FENCED_INSTANCE_ID.
    * In a group that does not exist each member is UNKNOWN_MEMBER_ID.
    * Group Read, or GROUP_AUTHORIZATION_FAILED.

Versions:
    v3 many members    v4 flexible    v5 reasons
"""

from typing import Final

from odradek.broker.coordinators.group_shell import GroupShell
from odradek.broker.serving.session import Session
from odradek.group.effects import LeaveAnswer
from odradek.group.events import NOT_PROVIDED, Leave, LeavingMember
from odradek.model.acl import AclOperation, ResourceType
from odradek.model.errors import ErrorCode
from odradek.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)

_MANY_SINCE: Final = 3
_REASON_CHARACTERS_MAX: Final = 255


def leave_group(
    groups: GroupShell, session: Session, request: LeaveGroupRequest, api_version: int
) -> LeaveGroupResponse:
    """Remove the members, and answer for each."""
    if not session.authorize(AclOperation.READ, ResourceType.GROUP, request.group_id):
        return LeaveGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    coordinator = groups.find(request.group_id)
    if isinstance(coordinator, ErrorCode):
        return LeaveGroupResponse(error_code=coordinator)
    if api_version >= _MANY_SINCE:
        members = request.members
    else:
        members = [MemberIdentity(member_id=request.member_id)]
    leaving = tuple(
        LeavingMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            reason=(member.reason or NOT_PROVIDED)[:_REASON_CHARACTERS_MAX],
        )
        for member in members
    )
    answer = groups.ask_now(
        coordinator,
        lambda number: Leave(request=number, group_id=request.group_id, members=leaving),
        LeaveAnswer,
    )
    if api_version < _MANY_SINCE:
        return LeaveGroupResponse(error_code=answer.members[0])
    return LeaveGroupResponse(
        error_code=answer.error,
        members=[
            MemberResponse(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                error_code=error,
            )
            for member, error in zip(members, answer.members, strict=True)
        ],
    )
