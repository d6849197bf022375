"""SaslHandshake (17), versions 0-1: refused, because the client is past authentication.

Behaviour:
    * Before it reaches this handler, `serving/authentication.py` handles it on a SASL listener.
    * On another listener, or in a session that does not expire: ILLEGAL_SASL_STATE without
      mechanisms, as in Kafka; the connection stays open.
    * It is advertised on every listener, as in Kafka: clients guess the broker's version from the
      list of APIs.
"""

from odradek.model.errors import ErrorCode
from odradek.wire.messages.sasl_handshake import SaslHandshakeResponse


def sasl_handshake() -> SaslHandshakeResponse:
    """The error for every mechanism."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
