"""AlterPartitionReassignments (45), version 0: partitions get other replicas; none cancels.

Behaviour:
    * Cluster Alter; else CLUSTER_AUTHORIZATION_FAILED, for each partition as well.
    * Only the controller's broker can: NOT_CONTROLLER elsewhere, for the request as a whole.
    * Each partition succeeds or fails on its own. Success means that the reassignment has begun
      (or is cancelled); ListPartitionReassignments shows what is in progress.
    * INVALID_REPLICA_ASSIGNMENT: no replicas, one twice, a negative id, a new one that is not
      registered; or a cancellation that would leave no replica in sync.
    * NO_REASSIGNMENT_IN_PROGRESS: there is nothing to cancel.
    * UNKNOWN_TOPIC_OR_PARTITION, also if the topic is being deleted.
    * A partition that is named twice is refused with INVALID_REQUEST (Kafka takes the last).
"""

from collections import Counter

from odradek.broker.controller.shell import ControllerShell
from odradek.broker.serving.session import Session
from odradek.controller.answers import ReassignmentsAnswer, Refusal
from odradek.controller.events import ReassignmentsRequested
from odradek.model.acl import CLUSTER_NAME, AclOperation, ResourceType
from odradek.model.errors import ApiError, ErrorCode
from odradek.model.partition import TopicPartition
from odradek.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


async def alter_partition_reassignments(
    controller: ControllerShell, session: Session, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Have the controller begin, and answer for each partition."""
    if not session.authorize(AclOperation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        return _refused_each(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    asked = [
        (TopicPartition(topic.name, partition.partition_index), partition.replicas)
        for topic in request.topics
        for partition in topic.partitions
    ]
    times = Counter(name for name, _ in asked)
    targets = {
        name: None if replicas is None else tuple(replicas)
        for name, replicas in asked
        if times[name] == 1
    }
    twice = Refusal(ErrorCode.INVALID_REQUEST, "Duplicate partition in request.")
    try:
        answer = await controller.ask(ReassignmentsRequested(targets), ReassignmentsAnswer)
    except ApiError as error:
        return _refused(error.code)
    response = AlterPartitionReassignmentsResponse()
    topics: dict[str, ReassignableTopicResponse] = {}
    for name in times:
        if name.topic not in topics:
            topics[name.topic] = ReassignableTopicResponse(name=name.topic)
            response.responses.append(topics[name.topic])
        refusal = answer.refusals[name] if name in targets else twice
        topics[name.topic].partitions.append(
            ReassignablePartitionResponse(
                partition_index=name.partition,
                error_code=refusal.error if refusal else ErrorCode.NONE,
                error_message=refusal.message if refusal else None,
            )
        )
    return response


def _refused_each(
    request: AlterPartitionReassignmentsRequest, error: ErrorCode
) -> AlterPartitionReassignmentsResponse:
    response = _refused(error)
    response.responses = [
        ReassignableTopicResponse(
            name=topic.name,
            partitions=[
                ReassignablePartitionResponse(
                    partition_index=partition.partition_index,
                    error_code=error,
                    error_message=error.name,
                )
                for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return response


def _refused(error: ErrorCode) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(error_code=error, error_message=error.name)
