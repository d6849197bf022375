"""DeleteGroups (42), versions 0-2: removes groups without members, and their offsets.

Behaviour:
    * A group with members: NON_EMPTY_GROUP; one that does not exist: GROUP_ID_NOT_FOUND.
    * Group Delete, or GROUP_AUTHORIZATION_FAILED for that group.

Versions:
    v2 flexible
"""

from odradek.broker.coordinators.group_shell import GroupShell
from odradek.broker.serving.session import Session
from odradek.group.effects import PartitionsAnswer
from odradek.group.events import DeleteGroup
from odradek.model.acl import AclOperation, ResourceType
from odradek.model.errors import ErrorCode
from odradek.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


def delete_groups(
    groups: GroupShell, session: Session, request: DeleteGroupsRequest
) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=name, error_code=_delete(groups, session, name))
            for name in dict.fromkeys(request.groups_names)
        ]
    )


def _delete(groups: GroupShell, session: Session, group_id: str) -> ErrorCode:
    if not session.authorize(AclOperation.DELETE, ResourceType.GROUP, group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    coordinator = groups.find(group_id, may_be_empty=True)
    if isinstance(coordinator, ErrorCode):
        return coordinator
    deleted = groups.ask_now(
        coordinator, lambda number: DeleteGroup(number, group_id), PartitionsAnswer
    )
    return deleted.error
