"""DescribeDelegationToken (41), versions 0-3: the delegation tokens of owners, with their HMACs.

Behaviour:
    * DELEGATION_TOKEN_REQUEST_NOT_ALLOWED on a connection that does not authenticate the client,
      or on which it has authenticated with a token.
    * DELEGATION_TOKEN_AUTH_DISABLED without `delegation.token.secret.key`.
    * A token is described to its owner, its requester and its renewers, and to clients with
      DelegationToken Describe on its id, or User DescribeTokens on its owner. Others are left out.
    * Tokens are those of the named principals as owner, requester or renewer; None names all.

Versions:
    v2  flexible    v3  the requester of each
"""

from odradek.broker.admin.delegation_tokens import DelegationTokens, check_allowed, enabled
from odradek.broker.serving.session import Session
from odradek.model.acl import AclOperation, ResourceType
from odradek.model.errors import ApiError
from odradek.security.delegation_tokens import DelegationToken
from odradek.wire.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)


def describe_delegation_token(
    tokens: DelegationTokens | None,
    session: Session,
    request: DescribeDelegationTokenRequest,
    api_version: int,
) -> DescribeDelegationTokenResponse:
    """The tokens that the client may see."""
    try:
        check_allowed(session)
        present = enabled(tokens)
    except ApiError as error:
        return DescribeDelegationTokenResponse(error_code=error.code)
    named = {f"{owner.principal_type}:{owner.principal_name}" for owner in request.owners or ()}
    return DescribeDelegationTokenResponse(
        tokens=[
            _described(token, present.hmac_of(token), api_version)
            for token in present.all()
            if (request.owners is None or any(map(token.is_of, named))) and _may_see(session, token)
        ]
    )


def _may_see(session: Session, token: DelegationToken) -> bool:
    return (
        token.is_of(session.principal)
        or session.would_allow(AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id)
        or session.would_allow(AclOperation.DESCRIBE_TOKENS, ResourceType.USER, token.owner)
    )


def _described(token: DelegationToken, mac: bytes, api_version: int) -> DescribedDelegationToken:
    described = DescribedDelegationToken(
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.expires_ms_max,
        token_id=token.token_id,
        hmac=mac,
    )
    described.principal_type, _, described.principal_name = token.owner.partition(":")
    if api_version >= 3:
        kind, _, name = token.requester.partition(":")
        described.token_requester_principal_type = kind
        described.token_requester_principal_name = name
    for renewer in token.renewers:
        kind, _, name = renewer.partition(":")
        described.renewers.append(
            DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name)
        )
    return described
