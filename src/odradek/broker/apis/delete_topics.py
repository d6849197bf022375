"""DeleteTopics (20), versions 0-6: delete topics, by name or by id.

Behaviour:
    * Only the controller's broker deletes topics: NOT_CONTROLLER elsewhere, for each.
    * delete.topic.enable=false: TOPIC_DELETION_DISABLED (INVALID_REQUEST before v3).
    * Topic Delete; else TOPIC_AUTHORIZATION_FAILED. By id, a client without Topic Describe does not
      get the topic's name: an id is no secret, as in Apache Kafka.
    * Name and id both, or neither, for one topic: INVALID_REQUEST.
    * A topic named twice is deleted once, and answered twice.
    * If a topic's znode cannot be read, only its znodes are removed: its partitions are unknown.
    * Answered when this broker's metadata does not have the topic any more; REQUEST_TIMED_OUT if it
      still does when the time is up. Deletion continues, and waits for replicas that are offline.

Versions:
    v3  TOPIC_DELETION_DISABLED    v4  flexible    v6  by id
    v5  error messages, THROTTLING_QUOTA_EXCEEDED (see CreateTopics)
"""

from collections.abc import Iterable
from typing import NamedTuple

from odradek.broker.admin.topics import TopicAdmin
from odradek.broker.serving.quotas import NO_QUOTA, MutationQuota
from odradek.broker.serving.session import Session
from odradek.model.acl import AclOperation, ResourceType
from odradek.model.errors import ApiError, ErrorCode
from odradek.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from odradek.wire.schema import ZERO_UUID


class _Asked(NamedTuple):
    name: str | None  # None: the id is unknown, or the client may not describe the topic
    topic_id: bytes
    error: ApiError | None


async def delete_topics(
    admin: TopicAdmin,
    session: Session,
    request: DeleteTopicsRequest,
    api_version: int,
    quota: MutationQuota = NO_QUOTA,
) -> DeleteTopicsResponse:
    states = request.topics or [DeleteTopicState(name=name) for name in request.topic_names]
    asked = _admitted(admin, list(_judge(admin, session, states, api_version)), quota)
    valid = (topic.name for topic in asked if topic.error is None)
    names = list(dict.fromkeys(name for name in valid if name is not None))
    deadline_ms = admin.deadline_ms(request.timeout_ms)
    try:
        outcomes = await admin.delete(names, deadline_ms=deadline_ms) if names else {}
    except ApiError as error:
        outcomes = dict.fromkeys(names, error)
    response = DeleteTopicsResponse(throttle_time_ms=quota.throttle_ms)
    for topic in asked:
        failure = topic.error or (outcomes.get(topic.name) if topic.name is not None else None)
        response.responses.append(
            DeletableTopicResult(
                name=topic.name,
                topic_id=topic.topic_id,
                error_code=failure.code if failure else ErrorCode.NONE,
                error_message=failure.message if failure else None,
            )
        )
    return response


def _admitted(admin: TopicAdmin, asked: list[_Asked], quota: MutationQuota) -> list[_Asked]:
    """The same topics, with an error for those that the client's quota does not allow now."""
    outcomes: dict[str, ApiError | None] = {}
    for topic in asked:
        if topic.error is None and topic.name is not None and topic.name not in outcomes:
            try:
                known = admin.metadata.topic(topic.name)
                quota.admit(len(known.partitions) if known else 1)
                outcomes[topic.name] = None
            except ApiError as error:
                outcomes[topic.name] = error.with_traceback(None)
    return [topic._replace(error=topic.error or outcomes.get(topic.name or "")) for topic in asked]


def _judge(
    admin: TopicAdmin, session: Session, states: Iterable[DeleteTopicState], api_version: int
) -> Iterable[_Asked]:
    disabled = ErrorCode.TOPIC_DELETION_DISABLED if api_version >= 3 else ErrorCode.INVALID_REQUEST
    for state in states:
        name, topic_id = state.name, bytes(state.topic_id)
        if not admin.is_controller:
            yield _Asked(name, topic_id, ApiError(ErrorCode.NOT_CONTROLLER))
        elif not admin.config.delete_topic_enable:
            yield _Asked(name, topic_id, ApiError(disabled))
        elif topic_id == ZERO_UUID:
            yield _Asked(name, topic_id, _refusal(admin, session, name))
        elif name is not None:
            message = "Topic name and topic ID can not both be specified."
            yield _Asked(name, topic_id, ApiError(ErrorCode.INVALID_REQUEST, message))
        else:
            yield _judge_id(admin, session, topic_id)


def _judge_id(admin: TopicAdmin, session: Session, topic_id: bytes) -> _Asked:
    topic = admin.metadata.topic_by_id(topic_id)
    if topic is None:
        return _Asked(None, topic_id, ApiError(ErrorCode.UNKNOWN_TOPIC_ID))
    if not session.authorize(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name):
        return _Asked(None, topic_id, ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    return _Asked(topic.name, topic_id, _refusal(admin, session, topic.name))


def _refusal(admin: TopicAdmin, session: Session, name: str | None) -> ApiError | None:
    if name is None:
        return ApiError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id was specified.")
    if not session.authorize(AclOperation.DELETE, ResourceType.TOPIC, name):
        return ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if name not in admin.metadata.topics and name not in admin.unreadable_topics:
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return None
