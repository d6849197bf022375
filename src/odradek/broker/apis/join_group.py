"""JoinGroup (11), versions 0-9: a member enters a group, or returns for a rebalance.

Behaviour:
    * Answered when the next generation begins: its leader is told of all members, the others of
      their own part in it. Who joins again with nothing new is answered at once.
    * A new member is sent back once to come with the id it is given: MEMBER_ID_REQUIRED (v4).
      Static members (v5) need not.
    * An instance id that another member uses by now: FENCED_INSTANCE_ID.
    * A session timeout outside of `group.min.session.timeout.ms` and its maximum:
      INVALID_SESSION_TIMEOUT; a full group: GROUP_MAX_SIZE_REACHED; no strategy in common with
      the others: INCONSISTENT_GROUP_PROTOCOL.
    * Group Read, or GROUP_AUTHORIZATION_FAILED.

Versions:
    v1 rebalance timeout    v4 member id required    v5 static members    v6 flexible
    v7 protocol type and nullable name    v8 reason    v9 the assignment may be skipped
"""

from collections.abc import Awaitable
from typing import Final

from odradek.broker.coordinators.group_shell import GroupShell, Led, Ticket
from odradek.broker.serving.session import Session
from odradek.group.effects import NOT_PROVIDED, Join, JoinAnswer
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
    """Join, and wait for the generation."""
    if not session.authorize(AclOperation.READ, ResourceType.GROUP, request.group_id):
        return _refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED, "", api_version)
    led = groups.find(request.group_id)
    if isinstance(led, ErrorCode):
        return _refusal(led, request.member_id, api_version)
    if _is_too_long(request):
        return _refusal(ErrorCode.INVALID_REQUEST, request.member_id, api_version)
    return _join(groups, led, _event(groups, session, request, api_version), api_version)


def _join(
    groups: GroupShell, led: Led, event: Join, api_version: int
) -> JoinGroupResponse | Awaitable[JoinGroupResponse]:
    ticket = event.ticket
    assert isinstance(ticket, Ticket)
    groups.tell(led, event)
    if ticket.answer is not None:
        return _response(ticket.answer, api_version)

    async def later() -> JoinGroupResponse:
        return _response(await groups.answered(ticket), api_version)

    return later()


def _event(
    groups: GroupShell, session: Session, request: JoinGroupRequest, api_version: int
) -> Join:
    instance_id = request.group_instance_id
    client_id = session.client_id or ""
    rebalance_ms = request.rebalance_timeout_ms if api_version else request.session_timeout_ms
    return Join(
        ticket=Ticket(),
        group_id=request.group_id,
        member_id=request.member_id,
        fresh_member_id=groups.fresh_member_id(client_id if instance_id is None else instance_id),
        group_instance_id=instance_id,
        client_id=client_id,
        client_host=f"/{session.client_host}",  # as Java writes an address
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=max(rebalance_ms, 0),
        protocol_type=request.protocol_type,
        protocols=tuple((each.name, bytes(each.metadata)) for each in request.protocols),
        knows_member_ids=api_version >= _MEMBER_ID_REQUIRED_SINCE,
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
