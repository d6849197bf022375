"""SaslAuthenticate (36), versions 0-2: refused, because the client is past authentication.

Behaviour:
    * Before it reaches this handler, `serving/authentication.py` handles it on a SASL listener.
    * On another listener, or out of turn: ILLEGAL_SASL_STATE, as in Kafka; the connection stays
      open.

Versions:
    v1 lifetime of the session    v2 flexible
"""

from typing import Final

from odradek.model.errors import ErrorCode
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateResponse

# Kafka's message: its KafkaApis sees this request only after authentication.
_MESSAGE: Final = "SaslAuthenticate request received after successful authentication"


def sasl_authenticate() -> SaslAuthenticateResponse:
    """The error for every token."""
    return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=_MESSAGE)
