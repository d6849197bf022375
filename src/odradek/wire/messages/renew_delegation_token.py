"""RenewDelegationToken (39): a delegation token expires later.

Versions:
    v2  flexible
"""

from odradek.wire.schema import Buffer, Message, bytes_, int16, int32, int64


class RenewDelegationTokenRequest(Message, api_key=39, versions="0-2", flexible="2+"):
    hmac: Buffer = bytes_()
    renew_period_ms: int = int64()


class RenewDelegationTokenResponse(Message, api_key=39, versions="0-2", flexible="2+"):
    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()
