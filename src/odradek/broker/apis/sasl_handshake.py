"""SaslHandshake (17), versions 0-1: refused, because the listeners are PLAINTEXT.

Behaviour:
    * ILLEGAL_SASL_STATE without mechanisms, as Kafka answers on a listener without SASL; the
      connection stays open.
    * It is advertised all the same, as in Kafka: clients guess the broker's version from the
      list of APIs.
"""

from odradek.model.errors import ErrorCode
from odradek.wire.messages.sasl_handshake import SaslHandshakeResponse


def sasl_handshake() -> SaslHandshakeResponse:
    """The error for every mechanism."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
