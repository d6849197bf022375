"""DescribeDelegationToken (41), versions 1-3: answered as a broker that has no delegation tokens.

Behaviour:
    * DELEGATION_TOKEN_REQUEST_NOT_ALLOWED on a connection that does not tell who is asking.
    * DELEGATION_TOKEN_AUTH_DISABLED on any other: there is no `delegation.token.secret.key`.

Versions:
    v2  flexible    v3  who requested each
"""

from odradek.broker.admin.delegation_tokens import refusal
from odradek.broker.serving.session import Session
from odradek.wire.messages.describe_delegation_token import DescribeDelegationTokenResponse


def describe_delegation_token(session: Session) -> DescribeDelegationTokenResponse:
    """Refuse."""
    return DescribeDelegationTokenResponse(error_code=refusal(session))
