"""SyncGroup (14), versions 0-5: the group's leader sends the assignment, each member gets its part.

Behaviour:
    * Answered when the leader's assignment is stored; in a stable group at once.
    * A former generation: ILLEGAL_GENERATION; a rebalance that has begun: REBALANCE_IN_PROGRESS;
      also while the coordinator loads, because the rebalance is lost.
    * Protocol type and name must be those of the generation: INCONSISTENT_GROUP_PROTOCOL (v5).
    * Group Read, or GROUP_AUTHORIZATION_FAILED.

Versions:
    v3 static members    v4 flexible    v5 protocol type and name
"""

import asyncio
from collections.abc import Awaitable
from typing import Final

from odradek.broker.coordinators.group_shell import GroupShell
from odradek.broker.serving.session import Session
from odradek.group.effects import SyncAnswer
from odradek.group.events import Sync
from odradek.model.acl import AclOperation, ResourceType
from odradek.model.errors import ErrorCode
from odradek.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_NAMES_PROTOCOL_SINCE: Final = 5


def sync_group(
    groups: GroupShell, session: Session, request: SyncGroupRequest, api_version: int
) -> SyncGroupResponse | Awaitable[SyncGroupResponse]:
    """Send the assignment, and answer with the member's part of it."""
    if api_version >= _NAMES_PROTOCOL_SINCE and (
        request.protocol_type is None or request.protocol_name is None
    ):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if not session.authorize(AclOperation.READ, ResourceType.GROUP, request.group_id):
        return SyncGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    coordinator = groups.find(request.group_id)
    if isinstance(coordinator, ErrorCode):
        if coordinator is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            coordinator = ErrorCode.REBALANCE_IN_PROGRESS
        return SyncGroupResponse(error_code=coordinator)
    answer = groups.ask(
        coordinator,
        lambda number: Sync(
            request=number,
            group_id=request.group_id,
            generation=request.generation_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            protocol_type=request.protocol_type,
            protocol=request.protocol_name,
            assignments={part.member_id: bytes(part.assignment) for part in request.assignments},
        ),
    )
    if not isinstance(answer, asyncio.Future):
        return _response(answer)

    async def later() -> SyncGroupResponse:
        return _response(await answer)

    return later()


def _response(answer: object) -> SyncGroupResponse:
    assert isinstance(answer, SyncAnswer)
    return SyncGroupResponse(
        error_code=answer.error,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol,
        assignment=answer.assignment,
    )
