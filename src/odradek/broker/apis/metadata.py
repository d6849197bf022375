"""Metadata (3), versions 0-12.

Who are the brokers, which topics are there, who leads their partitions. Answered from the
metadata cache alone.

Behaviour:
    * No topics asked for (null; in v0 an empty list) means all; an empty list means none.
    * A topic that is not there is made where the asker and `auto.create.topics.enable` allow
      it, and answered LEADER_NOT_AVAILABLE until it shows: clients ask again.
    * A topic the asker may not describe does not show whether it exists.
    * A partition whose leader is dead, or unreachable on the asker's listener, has an error.

Versions:
    v4  `allow_auto_topic_creation`     v5  offline replicas      v7  leader epochs
    v8  authorized operations (those of the cluster left in v11)
    v9  flexible    v10 topic ids    v12 topics may be asked for by id

An answer for everybody is the same for all who use the same version and listener, so it is
encoded once and kept until the metadata changes. It never crosses principals.
"""

from collections.abc import Callable, Iterable
from typing import Final, Protocol

from odradek.broker.metadata_cache import MetadataCache, PartitionMetadata, TopicMetadata
from odradek.broker.session import Session
from odradek.model.acl import CLUSTER_NAME, OPERATIONS, AclOperation, ResourceType
from odradek.model.errors import ErrorCode
from odradek.model.names import INTERNAL_TOPICS, topic_name_problem
from odradek.model.partition import NO_LEADER
from odradek.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.wire.schema import ZERO_UUID

NOT_ASKED_FOR: Final = -(2**31)


class TopicMaker(Protocol):
    """Makes topics that somebody asked about."""

    def make(self, names: Iterable[str]) -> None:
        """Begin to create these with the broker's defaults; whoever asks again will see."""


def metadata(
    cache: MetadataCache,
    session: Session,
    request: MetadataRequest,
    api_version: int,
    *,
    cluster_id: str,
    maker: TopicMaker | None,
) -> MetadataResponse:
    """Answer from the cache. `maker` is None where topics are not created on demand."""
    response = MetadataResponse(
        cluster_id=cluster_id,
        controller_id=cache.controller_id if cache.controller_id in cache.brokers else NO_LEADER,
        brokers=[
            MetadataResponseBroker(
                node_id=broker.id, host=point.host, port=point.port, rack=broker.rack
            )
            for broker, point in cache.live_end_points(session.listener)
        ],
        cluster_authorized_operations=NOT_ASKED_FOR,
    )
    if request.include_cluster_authorized_operations and session.authorize(
        AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME
    ):
        response.cluster_authorized_operations = authorized_operations(
            session, ResourceType.CLUSTER, CLUSTER_NAME
        )
    asked = request.topics
    if asked is None or (api_version == 0 and not asked):
        response.topics = [
            _describe(cache, session, topic, request.include_topic_authorized_operations)
            for name, topic in cache.topics.items()
            if session.authorize(AclOperation.DESCRIBE, ResourceType.TOPIC, name)
        ]
        return response
    may_create = request.allow_auto_topic_creation or api_version < 4
    answer = _Answer(cache, session, maker if may_create else None)
    operations = request.include_topic_authorized_operations
    seen: set[str] = set()
    for topic in asked:
        if topic.name is None:
            response.topics.append(answer.by_id(topic.topic_id, operations))
        elif topic.name not in seen:
            seen.add(topic.name)
            response.topics.append(answer.by_name(topic.name, operations))
    if answer.to_make and maker is not None:
        maker.make(answer.to_make)
    return response


class _Answer:
    """The part of the answer that speaks of topics asked for one by one."""

    def __init__(self, cache: MetadataCache, session: Session, maker: TopicMaker | None) -> None:
        self._cache = cache
        self._session = session
        self._may_create = maker is not None
        self.to_make: list[str] = []

    def by_id(self, topic_id: bytes, operations: bool) -> MetadataResponseTopic:
        topic = self._cache.topic_by_id(topic_id) if topic_id != ZERO_UUID else None
        if topic is None or not self._session.authorize(
            AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name
        ):
            # One that may not be seen looks like one that is not there.
            return _refusal(ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
        return _describe(self._cache, self._session, topic, operations)

    def by_name(self, name: str, operations: bool) -> MetadataResponseTopic:
        if not self._session.authorize(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
            return _refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name)
        topic = self._cache.topic(name)
        if topic is not None:
            return _describe(self._cache, self._session, topic, operations)
        if topic_name_problem(name) is not None:
            return _refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, name=name)
        if not self._may_create:
            return _refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name)
        if not (
            self._session.authorize(AclOperation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)
            or self._session.authorize(AclOperation.CREATE, ResourceType.TOPIC, name)
        ):
            return _refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name)
        self.to_make.append(name)
        return _refusal(ErrorCode.LEADER_NOT_AVAILABLE, name=name)


def _refusal(
    error: ErrorCode, *, name: str | None, topic_id: bytes = ZERO_UUID
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=error,
        name=name,
        topic_id=topic_id,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=NOT_ASKED_FOR,
    )


def _describe(
    cache: MetadataCache, session: Session, topic: TopicMetadata, operations: bool
) -> MetadataResponseTopic:
    reachable = _reachable(cache, session.listener)
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            _partition(cache, reachable, index, topic.partitions[index])
            for index in sorted(topic.partitions)
        ],
        topic_authorized_operations=(
            authorized_operations(session, ResourceType.TOPIC, topic.name)
            if operations
            else NOT_ASKED_FOR
        ),
    )


def _reachable(cache: MetadataCache, listener: str) -> Callable[[int], bool]:
    brokers = cache.brokers
    return lambda broker_id: brokers[broker_id].end_point(listener) is not None


def _partition(
    cache: MetadataCache,
    reachable: Callable[[int], bool],
    index: int,
    known: PartitionMetadata,
) -> MetadataResponsePartition:
    error, leader = ErrorCode.NONE, cache.leader_of(known)
    if leader == NO_LEADER:
        error = ErrorCode.LEADER_NOT_AVAILABLE
    elif not reachable(leader):
        error, leader = ErrorCode.LISTENER_NOT_FOUND, NO_LEADER
    live = cache.brokers
    return MetadataResponsePartition(
        error_code=error,
        partition_index=index,
        leader_id=leader,
        leader_epoch=known.leader_epoch,
        replica_nodes=list(known.replicas),
        isr_nodes=list(known.isr),
        offline_replicas=[r for r in known.replicas if r in known.offline or r not in live],
    )


def authorized_operations(session: Session, resource_type: ResourceType, name: str) -> int:
    """The operations this peer may do, as the bit field of KIP-430."""
    bits = 0
    for operation in OPERATIONS[resource_type]:
        if session.authorize(operation, resource_type, name):
            bits |= 1 << operation
    return bits
