"""DescribeDelegationToken (41), versions 1-3: refused, as by a broker without delegation tokens.

Behaviour:
    * DELEGATION_TOKEN_REQUEST_NOT_ALLOWED on a connection that does not authenticate the client.
    * DELEGATION_TOKEN_AUTH_DISABLED on any other: there is no `delegation.token.secret.key`.

Versions:
    v2  flexible    v3  the requester of each
"""

from odradek.broker.admin.delegation_tokens import refusal
from odradek.broker.serving.session import Session
from odradek.wire.messages.describe_delegation_token import DescribeDelegationTokenResponse


def describe_delegation_token(session: Session) -> DescribeDelegationTokenResponse:
    """The error for this connection."""
    return DescribeDelegationTokenResponse(error_code=refusal(session))
