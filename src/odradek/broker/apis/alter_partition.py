"""AlterPartition (56), versions 0-3, from a leader to the controller: store another ISR (KIP-497).

Behaviour:
    * A broker that is not the controller: NOT_CONTROLLER; a request of an earlier registration:
      STALE_BROKER_EPOCH.
    * UNKNOWN_TOPIC_ID is only answered by a controller that has loaded all topics, because a leader
      that gets it stops leading. Before that, the answer is NOT_CONTROLLER.
    * Each partition succeeds or fails on its own: see `odradek.controller.handlers.isr`.

Versions:
    v1 leader recovery state    v2 topic ids    v3 broker epochs of the members (KIP-903)
"""

from collections.abc import Callable
from typing import Final

from odradek.broker.controller.shell import ControllerShell
from odradek.controller.answers import IsrChangesAnswer
from odradek.controller.events import IsrChange, IsrChangesRequested
from odradek.model.errors import ApiError, ErrorCode
from odradek.model.partition import LeaderAndIsr, TopicPartition
from odradek.wire.messages.alter_partition import (
    AlteredPartition,
    AlteredTopic,
    AlterPartitionPartition,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopic,
)

BY_TOPIC_ID_SINCE: Final = 2
EPOCHS_SINCE: Final = 3


async def alter_partition(
    controller: ControllerShell,
    request: AlterPartitionRequest,
    api_version: int,
    *,
    announced: Callable[[bytes], str | None],
) -> AlterPartitionResponse:
    """Have the controller check and store it; the caller has checked the requester's rights.

    `announced` returns the name that this broker's metadata has for a topic id.
    """
    names: dict[str, bytes] = {}
    changes = []
    response = AlterPartitionResponse()
    try:
        for topic in request.topics:
            name: str | None = topic.topic_name
            if api_version >= BY_TOPIC_ID_SINCE:
                name = controller.topic_name(topic.topic_id, announced(topic.topic_id))
            if name is None:
                unknown = ErrorCode.UNKNOWN_TOPIC_ID
                response.topics += [_refused(topic, asked, unknown) for asked in topic.partitions]
                continue
            names[name] = topic.topic_id
            for asked in topic.partitions:
                change = _change(name, asked, request.broker_id, api_version)
                if change is None:
                    response.topics.append(_refused(topic, asked, ErrorCode.INVALID_REQUEST))
                else:
                    changes.append(change)
        answer = await controller.ask(
            IsrChangesRequested(request.broker_id, request.broker_epoch, tuple(changes)),
            IsrChangesAnswer,
        )
    except ApiError as error:
        return AlterPartitionResponse(error_code=error.code)
    if answer.error is not ErrorCode.NONE:
        return AlterPartitionResponse(error_code=answer.error)
    topics: dict[str, AlteredTopic] = {}
    for partition, verdict in answer.partitions.items():
        name = partition.topic
        altered = topics.get(name)
        if altered is None:
            altered = topics[name] = AlteredTopic(topic_name=name, topic_id=names[name])
        altered.partitions.append(_answer(partition, verdict))
    response.topics += topics.values()
    return response


def _change(
    topic: str, asked: AlterPartitionPartition, leader: int, api_version: int
) -> IsrChange | None:
    """The requested change; None if it is not a valid ISR of that leader."""
    epochs = {member.broker_id: member.broker_epoch for member in asked.new_isr_with_epochs}
    isr = tuple(epochs) if api_version >= EPOCHS_SINCE else tuple(asked.new_isr)
    if leader not in isr or len(set(isr)) != len(isr):
        return None
    return IsrChange(
        TopicPartition(topic, asked.partition_index),
        LeaderAndIsr(
            leader=leader,
            leader_epoch=asked.leader_epoch,
            isr=isr,
            partition_epoch=asked.partition_epoch,
            leader_recovery_state=asked.leader_recovery_state,
        ),
        epochs,
    )


def _answer(partition: TopicPartition, verdict: LeaderAndIsr | ErrorCode) -> AlteredPartition:
    if isinstance(verdict, ErrorCode):
        return AlteredPartition(partition_index=partition.partition, error_code=verdict)
    return AlteredPartition(
        partition_index=partition.partition,
        leader_id=verdict.leader,
        leader_epoch=verdict.leader_epoch,
        isr=list(verdict.isr),
        leader_recovery_state=verdict.leader_recovery_state,
        partition_epoch=verdict.partition_epoch,
    )


def _refused(
    topic: AlterPartitionTopic, asked: AlterPartitionPartition, error: ErrorCode
) -> AlteredTopic:
    return AlteredTopic(
        topic_name=topic.topic_name,
        topic_id=topic.topic_id,
        partitions=[AlteredPartition(partition_index=asked.partition_index, error_code=error)],
    )
