"""JoinGroup (11), versions 0-9: a member joins a group, or rejoins for a rebalance.

Behaviour:
    * Answered when the next generation begins; only the answer to its leader has all members. A
      member that joins again with the same protocols is answered at once.
    * A new member gets an id with MEMBER_ID_REQUIRED, and sends the request again with it (v4).
      A static member (v5) does not need to.
    * An instance id that another member uses: FENCED_INSTANCE_ID.
    * A session timeout outside of `group.min.session.timeout.ms` and its maximum:
      INVALID_SESSION_TIMEOUT; a full group: GROUP_MAX_SIZE_REACHED; no protocol in common with
      the others: INCONSISTENT_GROUP_PROTOCOL.
    * Group Read, or GROUP_AUTHORIZATION_FAILED.

Versions:
    v1 rebalance timeout    v4 member id required    v5 static members    v6 flexible
    v7 protocol type and nullable name    v8 reason    v9 the assignment may be skipped
"""

import asyncio
from collections.abc import Awaitable
from typing import Final

from odradek.broker.coordinators.group_shell import GroupShell
from odradek.broker.serving.session import Session
from odradek.group.effects import JoinAnswer
from odradek.group.events import NOT_PROVIDED, Join
from odradek.group.records import STRING_BYTES_MAX
from odradek.model.acl import AclOperation, ResourceType
from odradek.model.errors import ErrorCode
from odradek.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)

_MEMBER_ID_REQUIRED_SINCE: Final = 4
_NULLABLE_PROTOCOL_SINCE: Final = 7
_SKIPS_ASSIGNMENT_SINCE: Final = 9
_REASON_CHARACTERS_MAX: Final = 255


def join_group(
    groups: GroupShell, session: Session, request: JoinGroupRequest, api_version: int
) -> JoinGroupResponse | Awaitable[JoinGroupResponse]:
    """Join, and answer when the generation begins."""
    if not session.authorize(AclOperation.READ, ResourceType.GROUP, request.group_id):
        return _refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED, "", api_version)
    coordinator = groups.find(request.group_id)
    if isinstance(coordinator, ErrorCode):
        return _refusal(coordinator, request.member_id, api_version)
    if _is_too_long(request):
        return _refusal(ErrorCode.INVALID_REQUEST, request.member_id, api_version)
    member_id = _fresh_member_id(groups, session, request)
    answer = groups.ask(coordinator, lambda n: _event(n, member_id, session, request, api_version))
    if not isinstance(answer, asyncio.Future):
        return _response(answer, api_version)

    async def later() -> JoinGroupResponse:
        return _response(await answer, api_version)

    return later()


def _fresh_member_id(groups: GroupShell, session: Session, request: JoinGroupRequest) -> str:
    instance_id = request.group_instance_id
    # Kafka's: a static member's id begins with its instance id, a dynamic one's with its client id.
    prefix = (session.client_id or "") if instance_id is None else instance_id
    return groups.fresh_member_id(prefix)


def _event(
    number: int,
    fresh_member_id: str,
    session: Session,
    request: JoinGroupRequest,
    api_version: int,
) -> Join:
    rebalance_ms = request.rebalance_timeout_ms if api_version else request.session_timeout_ms
    return Join(
        request=number,
        group_id=request.group_id,
        member_id=request.member_id,
        fresh_member_id=fresh_member_id,
        group_instance_id=request.group_instance_id,
        client_id=session.client_id or "",
        client_host=f"/{session.client_host}",  # as Java writes an address
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=max(rebalance_ms, 0),
        protocol_type=request.protocol_type,
        protocols=tuple((each.name, bytes(each.metadata)) for each in request.protocols),
        can_be_given_id=api_version >= _MEMBER_ID_REQUIRED_SINCE,
        can_skip_assignment=api_version >= _SKIPS_ASSIGNMENT_SINCE,
        reason=(request.reason or NOT_PROVIDED)[:_REASON_CHARACTERS_MAX],
    )


def _is_too_long(request: JoinGroupRequest) -> bool:
    """Whether a name does not fit into the record of a group."""
    names = (
        request.member_id,
        request.group_instance_id or "",
        request.protocol_type,
        *(each.name for each in request.protocols),
    )
    # A member id is made of the instance id and 37 characters more.
    return any(len(name.encode()) > STRING_BYTES_MAX - 37 for name in names)


def _response(answer: object, api_version: int) -> JoinGroupResponse:
    assert isinstance(answer, JoinAnswer)
    protocol = answer.protocol
    if protocol is None and api_version < _NULLABLE_PROTOCOL_SINCE:
        protocol = ""
    return JoinGroupResponse(
        error_code=answer.error,
        generation_id=answer.generation,
        protocol_type=answer.protocol_type,
        protocol_name=protocol,
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata,
            )
            for member in answer.members
        ],
    )


def _refusal(error: ErrorCode, member_id: str, api_version: int) -> JoinGroupResponse:
    return _response(JoinAnswer(error, member_id), api_version)
