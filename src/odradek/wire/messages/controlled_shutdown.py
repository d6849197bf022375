"""ControlledShutdown (7): a broker asks the controller to take its leaderships away.

Version 0 has a request header without client id (see `odradek.wire.header`).

Versions:
    v2  broker epoch
    v3  flexible
"""

from odradek.wire.schema import Message, array, int16, int32, int64, string


class ControlledShutdownRequest(Message, api_key=7, versions="0-3", flexible="3+"):
    """The request."""

    broker_id: int = int32()
    broker_epoch: int = int64("2+", default=-1, ignorable=True)


class RemainingPartition(Message):
    """In `remaining_partitions`."""

    topic_name: str = string()
    partition_index: int = int32()


class ControlledShutdownResponse(Message, api_key=7, versions="0-3", flexible="3+"):
    """The response."""

    error_code: int = int16()
    remaining_partitions: list[RemainingPartition] = array(RemainingPartition)
