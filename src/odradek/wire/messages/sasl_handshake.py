"""SaslHandshake (17): which SASL mechanism will be used.

After v0 the mechanism's tokens follow raw, after v1 in SaslAuthenticate requests. Never became
flexible.
"""

from odradek.wire.schema import Message, int16, string, string_array


class SaslHandshakeRequest(Message, api_key=17, versions="0-1"):
    """The request."""

    mechanism: str = string()


class SaslHandshakeResponse(Message, api_key=17, versions="0-1"):
    """The response."""

    error_code: int = int16()
    mechanisms: list[str] = string_array()
