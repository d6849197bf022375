"""AddOffsetsToTxn (25): a group's committed offsets join a transaction.

Versions:
    v3  flexible
"""

from odradek.wire.schema import Message, int16, int32, int64, string


class AddOffsetsToTxnRequest(Message, api_key=25, versions="0-4", flexible="3+"):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


class AddOffsetsToTxnResponse(Message, api_key=25, versions="0-4", flexible="3+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
