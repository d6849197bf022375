"""CreatePartitions (37), versions 0-3: more partitions for topics that exist.

Behaviour:
    * Only the controller's broker adds partitions: NOT_CONTROLLER elsewhere, for each.
    * Topic Alter; else TOPIC_AUTHORIZATION_FAILED.
    * The number can only grow; a topic that is being deleted or reassigned is refused.
    * Answered when this broker's metadata has a leader for every partition; REQUEST_TIMED_OUT
      if it does not in time.
    * `__consumer_offsets` and `__transaction_state` do not grow: INVALID_PARTITIONS; their keys
      are hashed over the number of partitions
      (see `odradek.broker.coordinators.coordinator_counts`).

Versions:
    v2  flexible    v3  THROTTLING_QUOTA_EXCEEDED (see CreateTopics)
"""

from collections import Counter
from collections.abc import Iterable

from odradek.broker.admin.topics import TopicAdmin, WantedPartitions
from odradek.broker.serving.quotas import NO_QUOTA, MutationQuota
from odradek.broker.serving.session import Session
from odradek.model.acl import AclOperation, ResourceType
from odradek.model.errors import ApiError, ErrorCode
from odradek.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


async def create_partitions(
    admin: TopicAdmin,
    session: Session,
    request: CreatePartitionsRequest,
    quota: MutationQuota = NO_QUOTA,
) -> CreatePartitionsResponse:
    """Answer for each topic; one that is named twice is answered once."""
    outcomes: dict[str, ApiError | None] = dict(_refused(admin, session, request.topics))
    wanted = [_wanted(topic) for topic in request.topics if topic.name not in outcomes]
    try:
        outcomes |= await admin.create_partitions(
            wanted,
            deadline_ms=admin.deadline_ms(request.timeout_ms),
            validate_only=request.validate_only,
            admit=quota.admit,
        )
    except ApiError as error:
        outcomes |= dict.fromkeys((topic.name for topic in wanted), error)
    return CreatePartitionsResponse(
        throttle_time_ms=quota.throttle_ms,
        results=[
            CreatePartitionsTopicResult(
                name=name,
                error_code=error.code if error else ErrorCode.NONE,
                error_message=error.message if error else None,
            )
            for name in dict.fromkeys(topic.name for topic in request.topics)
            for error in [outcomes[name]]
        ],
    )


def _refused(
    admin: TopicAdmin, session: Session, topics: Iterable[CreatePartitionsTopic]
) -> Iterable[tuple[str, ApiError]]:
    for name, times in Counter(topic.name for topic in topics).items():
        if not admin.is_controller:
            yield name, ApiError(ErrorCode.NOT_CONTROLLER)
        elif times > 1:
            yield name, ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic in request.")
        elif not session.authorize(AclOperation.ALTER, ResourceType.TOPIC, name):
            yield name, ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _wanted(topic: CreatePartitionsTopic) -> WantedPartitions:
    manual = topic.assignments
    return WantedPartitions(
        name=topic.name,
        count=topic.count,
        assignment=None if manual is None else [tuple(a.broker_ids) for a in manual],
    )
