"""CreateDelegationToken (38), versions 1-3: refused, as by a broker without delegation tokens.

Behaviour:
    * DELEGATION_TOKEN_REQUEST_NOT_ALLOWED on a connection that does not authenticate the client.
    * DELEGATION_TOKEN_AUTH_DISABLED on any other: there is no `delegation.token.secret.key`.

Versions:
    v2  flexible    v3  for another owner than the requester
"""

from odradek.broker.admin.delegation_tokens import refusal
from odradek.broker.serving.session import Session
from odradek.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)


def create_delegation_token(
    session: Session, request: CreateDelegationTokenRequest, api_version: int
) -> CreateDelegationTokenResponse:
    """The error, with the owner and the requester that the request names."""
    kind, _, name = session.principal.partition(":")
    response = CreateDelegationTokenResponse(
        error_code=refusal(session),
        principal_type=request.owner_principal_type or kind,
        principal_name=request.owner_principal_name or name,
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
    )
    if api_version >= 3:
        response.token_requester_principal_type = kind
        response.token_requester_principal_name = name
    return response
