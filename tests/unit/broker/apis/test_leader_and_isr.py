"""LeaderAndIsr: a state that cannot be does not keep this broker from all other roles."""

import asyncio

import pytest

from odradek.broker.apis.leader_and_isr import leader_and_isr
from odradek.model.errors import ErrorCode
from odradek.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)


class Replicas:
    """Takes every role."""

    async def take_roles(self, changes):
        return {change.topic_partition: ErrorCode.NONE for change in changes}


def of_topic(name, **changes):
    state = {"partition_index": 0, "leader": 1, "leader_epoch": 0, "isr": [1], "replicas": [1]}
    states = [LeaderAndIsrPartitionState(**state | changes)]
    return LeaderAndIsrTopicState(
        topic_name=name, topic_id=name[:1].encode() * 16, partition_states=states
    )


@pytest.mark.parametrize(
    "bad",
    [
        of_topic("a b"),
        of_topic("x" * 300),
        of_topic("b", leader_epoch=-1),
        of_topic("b", isr=[]),
        of_topic("b", leader=2),
        of_topic("b", replicas=[1, 1]),
    ],
)
def test_a_state_that_cannot_be_is_refused_alone(bad):
    request = LeaderAndIsrRequest(topic_states=[of_topic("t"), bad, of_topic("u")])

    response = asyncio.run(leader_and_isr(Replicas(), request))

    assert response.error_code == ErrorCode.NONE
    errors = {bytes(t.topic_id)[:1]: t.partition_errors[0].error_code for t in response.topics}
    name = bad.topic_name[:1].encode()
    assert errors == {
        b"t": ErrorCode.NONE,
        b"u": ErrorCode.NONE,
        name: ErrorCode.INVALID_REQUEST,
    }
