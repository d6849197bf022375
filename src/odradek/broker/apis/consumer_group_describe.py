"""ConsumerGroupDescribe (69), version 0: UNSUPPORTED_VERSION, as by Kafka in ZooKeeper mode.

The groups of KIP-848 need KRaft. It is advertised because Kafka 3.9 advertises it.
"""

from odradek.model.errors import ErrorCode
from odradek.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedConsumerGroup,
)


def consumer_group_describe(
    request: ConsumerGroupDescribeRequest,
) -> ConsumerGroupDescribeResponse:
    """The error for each group."""
    return ConsumerGroupDescribeResponse(
        groups=[
            DescribedConsumerGroup(group_id=name, error_code=ErrorCode.UNSUPPORTED_VERSION)
            for name in request.group_ids
        ]
    )
