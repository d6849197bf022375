"""ListGroups (16), versions 0-5: the groups that this broker coordinates.

Behaviour:
    * While some groups are being loaded: COORDINATOR_LOAD_IN_PROGRESS, with the loaded groups.
    * A filter has several states or types, in upper or lower case; an empty one matches all.
      An unknown type matches nothing.
    * Cluster Describe shows all; otherwise those with Group Describe.

Versions:
    v3 flexible    v4 filtered by state    v5 filtered by type
"""

from typing import Final

from odradek.broker.coordinators.group_shell import GroupShell
from odradek.broker.serving.session import Session
from odradek.model.acl import CLUSTER_NAME, AclOperation, ResourceType
from odradek.model.errors import ErrorCode
from odradek.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

_CLASSIC: Final = "classic"  # the only type there is without KIP-848


def list_groups(
    groups: GroupShell, session: Session, request: ListGroupsRequest
) -> ListGroupsResponse:
    """List the groups that match and that the client may describe."""
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    sees_all = session.would_allow(AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    response = ListGroupsResponse()
    if groups.topic.is_loading:
        response.error_code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if types and _CLASSIC not in types:
        return response
    response.groups = [
        ListedGroup(
            group_id=group.group_id,
            protocol_type=group.protocol_type or "",
            group_state=group.state.value,
            group_type=_CLASSIC,
        )
        for coordinator in groups.topic.serving
        for group in coordinator.machine.groups.values()
        if (not states or group.state.value.lower() in states)
        and (
            sees_all
            or session.would_allow(AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id)
        )
    ]
    return response
