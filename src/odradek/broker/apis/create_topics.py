"""CreateTopics (19), versions 0-7: new topics, answered when clients can use them.

Behaviour:
    * Only the controller's broker creates topics: NOT_CONTROLLER elsewhere, for each.
    * Cluster Create, or Topic Create for the name; else TOPIC_AUTHORIZATION_FAILED.
    * A name twice in one request: INVALID_REQUEST for both.
    * Each topic has its own error, with Kafka's message.
    * `validate_only` does everything except writing.
    * Answered when this broker's metadata has a leader for every partition; topics without are
      REQUEST_TIMED_OUT when the time is up (and are created nevertheless).
    * Configuration, number of partitions, replication factor and id are only in the answer if the
      client has Topic DescribeConfigs; otherwise TOPIC_AUTHORIZATION_FAILED for these, also of
      a topic that it may not create.

Versions:
    v4  defaults (-1)    v5  flexible; configs in the answer    v7  topic ids in the answer
    v6  a client above its controller_mutation_rate: THROTTLING_QUOTA_EXCEEDED (before, its topics
        are created and it is throttled afterwards)
"""

from collections.abc import Iterable

from odradek.broker.admin.topics import DEFAULT, MadeTopic, TopicAdmin, WantedTopic
from odradek.broker.serving.quotas import NO_QUOTA, MutationQuota
from odradek.broker.serving.session import Session
from odradek.config.describe import describe_topic
from odradek.config.topic import TopicConfig
from odradek.model.acl import CLUSTER_NAME, AclOperation, ResourceType
from odradek.model.errors import ApiError, ErrorCode
from odradek.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)


async def create_topics(
    admin: TopicAdmin,
    session: Session,
    request: CreateTopicsRequest,
    quota: MutationQuota = NO_QUOTA,
) -> CreateTopicsResponse:
    refused = dict(_refused(admin, session, request.topics))
    try:
        made = await admin.create(
            [_wanted(topic) for topic in request.topics if topic.name not in refused],
            deadline_ms=admin.deadline_ms(request.timeout_ms),
            validate_only=request.validate_only,
            admit=quota.admit,
        )
    except ApiError as error:
        made = dict.fromkeys((topic.name for topic in request.topics), error)
    results = _Results(admin, session)
    return CreateTopicsResponse(
        throttle_time_ms=quota.throttle_ms,
        topics=[
            results.refused(topic.name, refused[topic.name])
            if topic.name in refused
            else results.result(topic.name, made[topic.name])
            for topic in request.topics
        ],
    )


def _refused(
    admin: TopicAdmin, session: Session, topics: Iterable[CreatableTopic]
) -> Iterable[tuple[str, ApiError]]:
    may_all = session.would_allow(AclOperation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)
    seen = set()
    for topic in topics:
        if not admin.is_controller:
            yield topic.name, ApiError(ErrorCode.NOT_CONTROLLER)
        elif topic.name in seen:
            message = "Found multiple entries for this topic."
            yield topic.name, ApiError(ErrorCode.INVALID_REQUEST, message)
        elif not may_all and not session.authorize(
            AclOperation.CREATE, ResourceType.TOPIC, topic.name
        ):
            message = "Authorization failed."
            yield topic.name, ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, message)
        seen.add(topic.name)


def _wanted(topic: CreatableTopic) -> WantedTopic:
    return WantedTopic(
        name=topic.name,
        partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignment={a.partition_index: tuple(a.broker_ids) for a in topic.assignments},
        configs={config.name: config.value for config in topic.configs},
    )


class _Results:
    """The results of one request. Topics with the same options share one list."""

    def __init__(self, admin: TopicAdmin, session: Session) -> None:
        self._admin = admin
        self._session = session
        self._shared: dict[tuple[tuple[str, str], ...], list[CreatableTopicConfigs]] = {}

    def refused(self, name: str, error: ApiError) -> CreatableTopicResult:
        """The result of a topic that may not be created, or that is named twice."""
        result = self.result(name, error)
        result.topic_config_error_code = self._config_error(name)
        return result

    def _config_error(self, name: str) -> ErrorCode:
        allowed = self._session.would_allow(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name)
        return ErrorCode.NONE if allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED

    def result(self, name: str, outcome: MadeTopic | ApiError) -> CreatableTopicResult:
        if isinstance(outcome, ApiError):
            return CreatableTopicResult(
                name=name, error_code=outcome.code, error_message=outcome.message, configs=[]
            )
        config_error = self._config_error(name)
        if config_error is not ErrorCode.NONE:
            return CreatableTopicResult(
                name=name,
                error_message=None,
                topic_config_error_code=config_error,
                num_partitions=DEFAULT,
                replication_factor=DEFAULT,
                configs=None,
            )
        result = CreatableTopicResult(
            name=name,
            error_message=None,
            num_partitions=len(outcome.assignment),
            replication_factor=len(outcome.assignment[0]),
            configs=self._configs(outcome.config),
        )
        if outcome.id is not None:
            result.topic_id = outcome.id.bytes
        return result

    def _configs(self, config: TopicConfig) -> list[CreatableTopicConfigs]:
        key = tuple(config.overrides.items())
        if key not in self._shared:
            self._shared[key] = [
                CreatableTopicConfigs(
                    name=entry.name,
                    value=entry.value,
                    read_only=entry.read_only,
                    config_source=entry.source,
                    is_sensitive=entry.sensitive,
                )
                for entry in describe_topic(config, self._admin.config)
            ]
        return self._shared[key]
