"""InitProducerId (22): a producer id and epoch; fences earlier users of a transactional id.

Versions:
    v2  flexible
    v3  an expired producer sends its former id and epoch (KIP-360)
"""

from odradek.wire.schema import Message, int16, int32, int64, string


class InitProducerIdRequest(Message, api_key=22, versions="0-5", flexible="2+"):
    transactional_id: str | None = string(nullable="0+")
    transaction_timeout_ms: int = int32()
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)


class InitProducerIdResponse(Message, api_key=22, versions="0-5", flexible="2+"):
    throttle_time_ms: int = int32(ignorable=True)
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
