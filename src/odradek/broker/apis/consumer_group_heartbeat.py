"""ConsumerGroupHeartbeat (68), version 0: UNSUPPORTED_VERSION, as by Kafka in ZooKeeper mode.

The groups of KIP-848 need KRaft. It is advertised because Kafka 3.9 advertises it.
"""

from odradek.model.errors import ErrorCode
from odradek.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse


def consumer_group_heartbeat() -> ConsumerGroupHeartbeatResponse:
    """The error for every member."""
    return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
