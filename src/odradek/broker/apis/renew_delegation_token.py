"""RenewDelegationToken (39), versions 1-2: refused, as by a broker without delegation tokens.

Behaviour:
    * DELEGATION_TOKEN_REQUEST_NOT_ALLOWED on a connection that does not authenticate the client.
    * DELEGATION_TOKEN_AUTH_DISABLED on any other: there is no `delegation.token.secret.key`.

Versions:
    v2  flexible
"""

from odradek.broker.admin.delegation_tokens import refusal
from odradek.broker.serving.session import Session
from odradek.wire.messages.renew_delegation_token import RenewDelegationTokenResponse


def renew_delegation_token(session: Session) -> RenewDelegationTokenResponse:
    """The error for this connection."""
    return RenewDelegationTokenResponse(error_code=refusal(session), expiry_timestamp_ms=-1)
