"""SaslAuthenticate (36): one token of a SASL exchange.

Versions:
    v1  lifetime of the session, for re-authentication (KIP-368)
    v2  flexible
"""

from odradek.wire.schema import Buffer, Message, bytes_, int16, int64, string


class SaslAuthenticateRequest(Message, api_key=36, versions="0-2", flexible="2+"):
    auth_bytes: Buffer = bytes_()


class SaslAuthenticateResponse(Message, api_key=36, versions="0-2", flexible="2+"):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    auth_bytes: Buffer = bytes_()
    session_lifetime_ms: int = int64("1+", ignorable=True)
