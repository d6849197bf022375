"""CreateDelegationToken (38), versions 0-3: a token that authenticates its bearer as its owner.

Behaviour:
    * DELEGATION_TOKEN_REQUEST_NOT_ALLOWED on a connection that does not authenticate the client,
      or on which it has authenticated with a token.
    * For another owner: User CreateTokens on the owner's principal, with its type; else
      DELEGATION_TOKEN_AUTHORIZATION_FAILED.
    * INVALID_PRINCIPAL_TYPE: a renewer that is not a user.
    * DELEGATION_TOKEN_AUTH_DISABLED without `delegation.token.secret.key`.
    * Any broker creates it; the others accept it once they have read the notification.

Versions:
    v2  flexible    v3  for another owner than the requester
"""

from odradek.broker.admin.delegation_tokens import DelegationTokens, check_allowed, enabled
from odradek.broker.admin.topics import store_errors_answered
from odradek.broker.serving.session import Session
from odradek.model.acl import AclOperation, ResourceType
from odradek.model.errors import ApiError, ErrorCode
from odradek.security.delegation_tokens import DelegationToken, WantedToken, check_renewers
from odradek.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)


async def create_delegation_token(
    tokens: DelegationTokens | None,
    session: Session,
    request: CreateDelegationTokenRequest,
    api_version: int,
) -> CreateDelegationTokenResponse:
    """The token with its HMAC; or the error, with the owner and the requester."""
    owner = session.principal
    if request.owner_principal_name:
        owner = f"{request.owner_principal_type or ''}:{request.owner_principal_name}"
    response = CreateDelegationTokenResponse(
        issue_timestamp_ms=-1, expiry_timestamp_ms=-1, max_timestamp_ms=-1
    )
    response.principal_type, _, response.principal_name = owner.partition(":")
    if api_version >= 3:
        kind, _, name = session.principal.partition(":")
        response.token_requester_principal_type = kind
        response.token_requester_principal_name = name
    try:
        with store_errors_answered():
            token = await _created(tokens, session, request, owner)
    except ApiError as error:
        response.error_code = error.code
        return response
    response.issue_timestamp_ms = token.issued_ms
    response.expiry_timestamp_ms = token.expires_ms
    response.max_timestamp_ms = token.expires_ms_max
    response.token_id = token.token_id
    response.hmac = enabled(tokens).hmac_of(token)
    return response


async def _created(
    tokens: DelegationTokens | None,
    session: Session,
    request: CreateDelegationTokenRequest,
    owner: str,
) -> DelegationToken:
    check_allowed(session)
    is_own = owner == session.principal
    if not is_own and not session.authorize(AclOperation.CREATE_TOKENS, ResourceType.USER, owner):
        raise ApiError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
    renewers = tuple(f"{r.principal_type}:{r.principal_name}" for r in request.renewers)
    fault = check_renewers(renewers)
    if fault is not ErrorCode.NONE:
        raise ApiError(fault)
    wanted = WantedToken(owner, session.principal, renewers, request.max_lifetime_ms)
    return await enabled(tokens).create(wanted)
