"""ExpireDelegationToken (40): a delegation token expires sooner, or now.

Versions:
    v2  flexible
"""

from odradek.wire.schema import Buffer, Message, bytes_, int16, int32, int64


class ExpireDelegationTokenRequest(Message, api_key=40, versions="0-2", flexible="2+"):
    hmac: Buffer = bytes_()
    expiry_time_period_ms: int = int64()


class ExpireDelegationTokenResponse(Message, api_key=40, versions="0-2", flexible="2+"):
    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()
