"""RenewDelegationToken (39), versions 0-2: a delegation token expires later.

Behaviour:
    * DELEGATION_TOKEN_REQUEST_NOT_ALLOWED on a connection that does not authenticate the client,
      or on which it has authenticated with a token.
    * DELEGATION_TOKEN_AUTH_DISABLED without `delegation.token.secret.key`.
    * DELEGATION_TOKEN_NOT_FOUND: no token has this HMAC. DELEGATION_TOKEN_OWNER_MISMATCH: the
      client is neither the owner nor a renewer. DELEGATION_TOKEN_EXPIRED.
    * A negative period is `delegation.token.expiry.time.ms`. The token's maximum lifetime bounds
      all periods.

Versions:
    v2  flexible
"""

from odradek.broker.admin.delegation_tokens import DelegationTokens, check_allowed, enabled
from odradek.broker.admin.topics import store_errors_answered
from odradek.broker.serving.session import Session
from odradek.model.errors import ApiError
from odradek.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)


async def renew_delegation_token(
    tokens: DelegationTokens | None, session: Session, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    """Answer when the token expires."""
    try:
        check_allowed(session)
        with store_errors_answered():
            expires_ms = await enabled(tokens).renew(
                bytes(request.hmac), session.principal, request.renew_period_ms
            )
    except ApiError as error:
        return RenewDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=-1)
    return RenewDelegationTokenResponse(expiry_timestamp_ms=expires_ms)
