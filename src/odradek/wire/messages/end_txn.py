"""EndTxn (26): commit or abort.

Versions:
    v3  flexible
    v5  transactions of version 2: the response contains the next producer epoch (KIP-890)
"""

from odradek.wire.schema import Message, bool_, int16, int32, int64, string


class EndTxnRequest(Message, api_key=26, versions="0-5", flexible="3+"):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = bool_()


class EndTxnResponse(Message, api_key=26, versions="0-5", flexible="3+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64("5+", default=-1, ignorable=True)
    producer_epoch: int = int16("5+", default=-1, ignorable=True)
