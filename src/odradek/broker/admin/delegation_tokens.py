"""Delegation tokens: not supported; answered like Kafka 3.9 without a secret key."""

from odradek.broker.serving.session import ANONYMOUS, Session
from odradek.model.errors import ErrorCode


def refusal(session: Session) -> ErrorCode:
    """The error for a request about delegation tokens."""
    if session.security_protocol == "PLAINTEXT" or (
        session.security_protocol == "SSL" and session.principal == ANONYMOUS
    ):
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
