"""SaslHandshake (17): selects the SASL mechanism.

After v0 the mechanism's tokens are sent without Kafka headers, after v1 in SaslAuthenticate
requests. It never became flexible.
"""

from odradek.wire.schema import Message, int16, string, string_array


class SaslHandshakeRequest(Message, api_key=17, versions="0-1"):
    mechanism: str = string()


class SaslHandshakeResponse(Message, api_key=17, versions="0-1"):
    error_code: int = int16()
    mechanisms: list[str] = string_array()
