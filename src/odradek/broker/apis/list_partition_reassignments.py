"""ListPartitionReassignments (46), version 0: the reassignments in progress.

Behaviour:
    * Cluster Describe; else CLUSTER_AUTHORIZATION_FAILED.
    * Only the controller's broker answers: NOT_CONTROLLER elsewhere.
    * Lists those of the named partitions (or of all) that have adding or removing replicas. Others,
      and partitions that do not exist, are left out.
"""

from odradek.broker.controller.shell import ControllerShell
from odradek.broker.serving.session import Session
from odradek.controller.answers import ReassignmentsList
from odradek.controller.events import ReassignmentsListed
from odradek.model.acl import CLUSTER_NAME, AclOperation, ResourceType
from odradek.model.errors import ApiError, ErrorCode
from odradek.model.partition import TopicPartition
from odradek.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


async def list_partition_reassignments(
    controller: ControllerShell, session: Session, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    if not session.authorize(AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return _refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    names = None
    if request.topics is not None:
        named = (
            TopicPartition(t.name, index) for t in request.topics for index in t.partition_indexes
        )
        names = tuple(dict.fromkeys(named))
    try:
        running = await controller.ask(ReassignmentsListed(names), ReassignmentsList)
    except ApiError as error:
        return _refused(error.code)
    topics: dict[str, OngoingTopicReassignment] = {}
    for name, assignment in running.assignments.items():
        topic = topics.setdefault(name.topic, OngoingTopicReassignment(name=name.topic))
        topic.partitions.append(
            OngoingPartitionReassignment(
                partition_index=name.partition,
                replicas=list(assignment.replicas),
                adding_replicas=list(assignment.adding),
                removing_replicas=list(assignment.removing),
            )
        )
    return ListPartitionReassignmentsResponse(topics=list(topics.values()))


def _refused(error: ErrorCode) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_code=error, error_message=error.name)
