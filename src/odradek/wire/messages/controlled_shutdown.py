"""ControlledShutdown (7): a broker asks the controller to move its leaderships away.

Version 0 has a request header without client id (see `odradek.wire.header`).

Versions:
    v2  broker epoch
    v3  flexible; our own tagged field `together_with`, which Apache's brokers skip
"""

from odradek.wire.schema import Message, array, int16, int32, int32_array, int64, string


class ControlledShutdownRequest(Message, api_key=7, versions="0-3", flexible="3+"):
    broker_id: int = int32()
    broker_epoch: int = int64("2+", default=-1, ignorable=True)
    # The brokers that are being stopped at the same time, including this one.
    together_with: list[int] = int32_array("3+", ignorable=True, tag=10_000)


class RemainingPartition(Message):
    topic_name: str = string()
    partition_index: int = int32()


class ControlledShutdownResponse(Message, api_key=7, versions="0-3", flexible="3+"):
    error_code: int = int16()
    remaining_partitions: list[RemainingPartition] = array(RemainingPartition)
