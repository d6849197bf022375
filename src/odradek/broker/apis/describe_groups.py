"""DescribeGroups (15), versions 0-5: state, members and assignment of groups.

Behaviour:
    * A group that does not exist is `Dead`, which is not an error.
    * Subscriptions and assignments are listed for a stable group only; before that they are not
      decided.
    * Group Describe, or GROUP_AUTHORIZATION_FAILED for that group.

Versions:
    v3 authorized operations    v4 instance ids    v5 flexible
"""

from odradek.broker.apis.metadata import authorized_operations
from odradek.broker.coordinators.group_shell import GroupShell
from odradek.broker.serving.session import Session
from odradek.group.group import Group, GroupState
from odradek.model.acl import AclOperation, ResourceType
from odradek.model.errors import ErrorCode
from odradek.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)


def describe_groups(
    groups: GroupShell, session: Session, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    response = DescribeGroupsResponse()
    for group_id in request.groups:
        described = _describe(groups, session, group_id)
        if request.include_authorized_operations and not described.error_code:
            described.authorized_operations = authorized_operations(
                session, ResourceType.GROUP, group_id
            )
        response.groups.append(described)
    return response


def _describe(groups: GroupShell, session: Session, group_id: str) -> DescribedGroup:
    if not session.authorize(AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
        return DescribedGroup(group_id=group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    coordinator = groups.find(group_id, may_be_empty=True)
    if isinstance(coordinator, ErrorCode):
        return DescribedGroup(group_id=group_id, error_code=coordinator)
    group = coordinator.machine.groups.get(group_id)
    if group is None:
        return DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
    is_stable = group.state is GroupState.STABLE
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if is_stable else "",
        members=_members(group, is_stable=is_stable),
    )


def _members(group: Group, *, is_stable: bool) -> list[DescribedGroupMember]:
    return [
        DescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata(group.protocol or "") if is_stable else b"",
            member_assignment=member.assignment if is_stable else b"",
        )
        for member in group.members.values()
    ]
