"""Metadata (3), versions 0-12.

The brokers, the topics, and the leaders of their partitions. Answered from the metadata cache
alone.

Behaviour:
    * No topics (null; in v0 an empty list) means all; an empty list means none.
    * A topic that does not exist is created if the client and `auto.create.topics.enable` allow
      it, and answered LEADER_NOT_AVAILABLE until the metadata has it: clients retry.
    * The answer for a topic that the client may not describe does not show whether it exists.
    * A partition whose leader is not registered, or lacks the client's listener, has an error
      (LISTENER_NOT_FOUND since v6). In v0 a partition has one as well if a replica is missing
      among the brokers, REPLICA_NOT_AVAILABLE, and that replica is left out.
    * A topic with an id is looked up by it and its name is ignored, because Java's AdminClient
      sends an empty one. By id, or without a name, before v12: INVALID_REQUEST for every topic.
    * Before its first UpdateMetadata a broker has no brokers in its metadata, not even itself. The
      answer waits for it; after the time in which a failed controller is replaced, the connection
      is closed. Apache Kafka answers without brokers at once, and librdkafka 2.16 then drops the
      brokers that it had: docs/decisions.md.
    * A new controller first sends the brokers alone. An answer about topics waits for the first
      topics, or until the store is read to have none; at most as long, and once after a start.
      Apache Kafka answers with an empty list, or UNKNOWN_TOPIC_OR_PARTITION.
    * A response about a partition of which this broker expects a newer leader waits for it, at most
      for `odradek.metadata.hold.ms` (`broker/cluster/expected_leaders.py`). Where it names topics,
      it first waits until their leaders have answered this broker, a moment at most, because the
      client may have noticed the end of a leader before this broker.

Versions:
    v4  `allow_auto_topic_creation`     v5  offline replicas      v7  leader epochs
    v8  authorized operations (those of the cluster left in v11)
    v9  flexible    v10 topic ids    v12 topics may be asked for by id

The same request of the same principal in the same version on the same listener has the same
answer until the metadata (or an ACL) changes, so the encoded answer is kept until then
(`MetadataApi`).
Answers with thousands of partitions are made in slices.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Set
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

from odradek.broker.admin.topic_maker import MADE_AT_ONCE
from odradek.broker.cluster.metadata_cache import MetadataCache, PartitionMetadata, TopicMetadata
from odradek.broker.cluster.store_update import children
from odradek.broker.serving.answers import Encoded
from odradek.broker.serving.parts import PART
from odradek.broker.serving.session import Session
from odradek.coord import layout
from odradek.coord.store import ConnectionLostError, SessionExpiredError, Store
from odradek.model.acl import CLUSTER_NAME, OPERATIONS, AclOperation, ResourceType
from odradek.model.cluster import Broker, EndPoint
from odradek.model.errors import ApiError, ErrorCode
from odradek.model.names import INTERNAL_TOPICS, topic_name_problem
from odradek.model.partition import NO_LEADER
from odradek.wire.codec import encoder
from odradek.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.wire.schema import ZERO_UUID, Message

NOT_ASKED_FOR: Final = -(2**31)
THROTTLE_TIME_SINCE: Final = 3
SLICE: Final = 1_000  # partitions described before others may run
BY_ID_SINCE: Final = 12
LISTENER_NOT_FOUND_SINCE: Final = 6
ANSWERS_MAX: Final = 256
PROBED_MAX: Final = 1_000  # partitions of a request whose leaders are probed
# For all answers that are kept, with the names of their requests: a request may be larger than its
# answer.
ANSWERS_BYTES_MAX: Final = 16 << 20
_NAME_BYTES: Final = 256
_LOOK_AGAIN_MS: Final = 200


class TopicMaker(Protocol):
    """Creates topics that requests have named."""

    def make(self, names: Iterable[str]) -> None:
        """Begin to create topics with the broker's defaults."""


class _Key(NamedTuple):
    api_version: int
    listener: str
    principal: str
    client_host: str  # an ACL may name it
    topics: tuple[tuple[str | None, bytes], ...] | None
    flags: tuple[bool, bool, bool]


class MetadataApi:
    """Handles Metadata; keeps the encoded answers for the present metadata."""

    def __init__(
        self,
        cache: MetadataCache,
        *,
        cluster_id: Callable[[], str],
        maker: TopicMaker | None,
        announced_within_ms: int,
        store: Store,
        probe: Callable[[Set[int]], Awaitable[object] | None] = lambda _leaders: None,
    ) -> None:
        """`maker` is None where topics are not created on demand.

        `probe` waits for leaders to answer, or to be lost; None: it need not wait
        (`ReplicaFetchers.probe`).
        """
        self._cache = cache
        self._cluster_id = cluster_id
        self._maker = maker
        self._announced_within_ms = announced_within_ms
        self._store = store
        self._has_got_topics = False
        self._probe = probe
        self._answers: dict[_Key, Encoded] = {}
        self._answers_version = (-1, -1)
        self._answers_bytes = 0

    def handle(
        self,
        session: Session,
        request: MetadataRequest,
        api_version: int,
        *,
        part: int | None = None,
    ) -> Encoded | Message | Awaitable[Encoded | Message]:
        """Answer at once, from a kept answer or a new one; a large answer takes turns.

        `part`: the index of this part of a larger request, whose answer is not kept.
        """
        if not self._cache.brokers or not self._knows_topics_of(request, api_version):
            return self._when_announced(session, request, api_version, part)
        probe = None
        if self._cache.expected.hold_ms and request.topics:
            names = self._names(request, api_version)
            probe = self._probe(self._cache.leaders_of(names or (), PROBED_MAX))
        if probe is not None or self._cache.expected:
            return self._when_led(session, request, api_version, part, probe)
        return self._now(session, request, api_version, part)

    def _now(
        self, session: Session, request: MetadataRequest, api_version: int, part: int | None
    ) -> Encoded | Message | Awaitable[Message]:
        if part is not None:
            return self._fresh(session, request, api_version, part)
        return self._answer(session, request, api_version)

    async def _when_led(
        self,
        session: Session,
        request: MetadataRequest,
        api_version: int,
        part: int | None,
        probe: Awaitable[object] | None,
    ) -> Encoded | Message:
        """Answer when newer leaders that are expected are in the metadata, or after a while."""
        if probe is not None:
            await probe
        await self._cache.wait_for_leaders(self._names(request, api_version))
        answer = self._now(session, request, api_version, part)
        return await answer if isinstance(answer, Awaitable) else answer

    def _names(self, request: MetadataRequest, api_version: int) -> list[str] | None:
        """The topics of a request; None: all."""
        if request.topics is None or asks_for_all(request, api_version):
            return None
        asked = (topic.name or self._cache.topic_name(topic.topic_id) for topic in request.topics)
        return [name for name in asked if name is not None]

    async def _when_announced(
        self, session: Session, request: MetadataRequest, api_version: int, part: int | None
    ) -> Encoded | Message:
        if not await self._cache.wait_for(
            lambda: bool(self._cache.brokers), self._announced_within_ms
        ):  # the response has no field for an error: the connection is closed
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, "no controller has announced a broker")
        if not self._knows_topics_of(request, api_version):
            with suppress(TimeoutError):  # topics that no controller can announce, and only such
                async with asyncio.timeout(self._announced_within_ms / 1000):
                    await self._get_topics()
            self._has_got_topics = True
        answer = self._now(session, request, api_version, part)
        return await answer if isinstance(answer, Awaitable) else answer

    def _knows_topics_of(self, request: MetadataRequest, api_version: int) -> bool:
        """False if topics are asked for, and this broker has got none from a controller yet."""
        self._has_got_topics = self._has_got_topics or bool(self._cache.topics)
        asks = bool(request.topics) or asks_for_all(request, api_version)
        return self._has_got_topics or not asks

    async def _get_topics(self) -> None:
        """Return as soon as a controller has sent topics, or the store is seen to have none."""
        while not self._cache.topics:
            with suppress(ConnectionLostError, SessionExpiredError):
                if not await children(self._store, layout.TOPICS):
                    return
            await self._cache.wait_for(lambda: bool(self._cache.topics), _LOOK_AGAIN_MS)

    def _answer(
        self, session: Session, request: MetadataRequest, api_version: int
    ) -> Encoded | Message | Awaitable[Message]:
        key = _key(session, request, api_version)
        version = self._version(session)
        if self._answers_version != version:
            self._answers.clear()
            self._answers_bytes = 0
            self._answers_version = version
        known = self._answers.get(key)
        if known is not None:
            return known
        if asks_for_all(request, api_version) and self._cache.partition_count > SLICE:
            return self._in_slices(session, request, api_version, key)
        return self._keep(key, self._fresh(session, request, api_version), api_version)

    def _fresh(
        self, session: Session, request: MetadataRequest, api_version: int, part: int = 0
    ) -> MetadataResponse:
        # Topics of the first parts are created before the last parts are handled, so the number
        # that one request may create is limited here, too.
        makes = part < MADE_AT_ONCE // PART
        return metadata(
            self._cache,
            session,
            request,
            api_version,
            cluster_id=self._cluster_id(),
            maker=self._maker if makes else None,
        )

    async def _in_slices(
        self, session: Session, request: MetadataRequest, api_version: int, key: _Key
    ) -> Message:
        version = self._version(session)
        response = _head(self._cache, session, request, self._cluster_id())
        partitions = 0
        for name, topic in list(self._cache.topics.items()):
            if session.would_allow(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
                operations = request.include_topic_authorized_operations
                response.topics.append(
                    _describe(self._cache, session, topic, operations, key.api_version)
                )
                partitions += len(topic.partitions)
            else:
                partitions += 1  # a client may be denied every topic
            if partitions >= SLICE:
                partitions = 0
                await asyncio.sleep(0)
        if version == self._version(session) == self._answers_version:
            self._keep(key, response, api_version)
        return response

    def _version(self, session: Session) -> tuple[int, int]:
        """A kept answer is valid while this is the same: versions of the metadata and the ACLs."""
        return self._cache.version, session.authorizer.version

    def _keep(
        self, key: _Key, response: MetadataResponse, api_version: int
    ) -> Encoded | MetadataResponse:
        if len(self._answers) >= ANSWERS_MAX or api_version < THROTTLE_TIME_SINCE:
            return response
        if len(response.brokers) != len(self._cache.brokers):
            return response  # it has brokers that have ended, or leaves some out: for a while
        if any(topic.error_code for topic in response.topics):
            return response  # it is not kept, because a topic may be created
        answer = Encoded(encoder(MetadataResponse, api_version)(response))
        size_bytes = len(answer.body) + _NAME_BYTES * len(key.topics or ())
        if self._answers_bytes + size_bytes <= ANSWERS_BYTES_MAX:
            self._answers[key] = answer
            self._answers_bytes += size_bytes
        return answer


def _key(session: Session, request: MetadataRequest, api_version: int) -> _Key:
    topics = request.topics
    return _Key(
        api_version,
        session.listener,
        session.principal,
        session.client_host,
        None if topics is None else tuple((topic.name, topic.topic_id) for topic in topics),
        (
            request.allow_auto_topic_creation,
            request.include_cluster_authorized_operations,
            request.include_topic_authorized_operations,
        ),
    )


def asks_for_all(request: MetadataRequest, api_version: int) -> bool:
    """Whether the request is for all topics: null, or in v0 an empty list."""
    return request.topics is None or (api_version == 0 and not request.topics)


def _brokers(points: Iterable[tuple[Broker, EndPoint]]) -> list[MetadataResponseBroker]:
    return [
        MetadataResponseBroker(
            node_id=broker.id, host=point.host, port=point.port, rack=broker.rack
        )
        for broker, point in points
    ]


def _head(
    cache: MetadataCache, session: Session, request: MetadataRequest, cluster_id: str
) -> MetadataResponse:
    """The answer without its topics."""
    response = MetadataResponse(
        cluster_id=cluster_id,
        controller_id=cache.controller_id if cache.controller_id in cache.brokers else NO_LEADER,
        brokers=_brokers(cache.live_end_points(session.listener)),
        cluster_authorized_operations=NOT_ASKED_FOR,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_operations(session)
    return response


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
    asked = request.topics
    if api_version < BY_ID_SINCE and any(
        topic.name is None or topic.topic_id != ZERO_UUID for topic in asked or ()
    ):
        return MetadataResponse(
            topics=[
                _refusal(ErrorCode.INVALID_REQUEST, name=topic.name or "", topic_id=topic.topic_id)
                for topic in asked or ()
            ]
        )
    response = _head(cache, session, request, cluster_id)
    if asked:
        # librdkafka (2.10 to 2.16) drops a broker that is missing in the response that names the
        # new leader, and with it the partition that it is just moving to that leader; it then waits
        # for its next look, up to a second. So a broker is named for a while after its end.
        response.brokers += _brokers(cache.departed_end_points(session.listener))
    if asked is None or asks_for_all(request, api_version):
        response.topics = [
            _describe(
                cache, session, topic, request.include_topic_authorized_operations, api_version
            )
            for name, topic in cache.topics.items()
            if session.would_allow(AclOperation.DESCRIBE, ResourceType.TOPIC, name)
        ]
        return response
    may_create = request.allow_auto_topic_creation or api_version < 4
    answer = _Answer(cache, session, maker if may_create else None, api_version)
    operations = request.include_topic_authorized_operations
    seen: set[str | bytes] = set()
    for topic in asked:
        name = topic.name
        # An id takes precedence: Java's AdminClient sends an empty name beside it.
        if name is None or topic.topic_id != ZERO_UUID:
            if topic.topic_id not in seen:
                seen.add(topic.topic_id)
                response.topics.append(answer.by_id(topic.topic_id, operations))
        elif name not in seen:
            seen.add(name)
            response.topics.append(answer.by_name(name, operations))
    if answer.to_make and maker is not None:
        maker.make(answer.to_make)
    return response


class _Answer:
    """The part of the answer about topics that the request names."""

    def __init__(
        self,
        cache: MetadataCache,
        session: Session,
        maker: TopicMaker | None,
        api_version: int,
    ) -> None:
        self._cache = cache
        self._session = session
        self._api_version = api_version
        self._may_create = maker is not None
        self.to_make: list[str] = []

    def by_id(self, topic_id: bytes, operations: bool) -> MetadataResponseTopic:
        topic = self._cache.topic_by_id(topic_id) if topic_id != ZERO_UUID else None
        if topic is None:
            return _refusal(ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
        if not self._session.authorize(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name):
            # The id is no secret, the name is: as in Apache Kafka.
            return _refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=None, topic_id=topic_id)
        return _describe(self._cache, self._session, topic, operations, self._api_version)

    def by_name(self, name: str, operations: bool) -> MetadataResponseTopic:
        if not self._session.authorize(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
            return _refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name)
        topic = self._cache.topic(name)
        if topic is not None:
            return _describe(self._cache, self._session, topic, operations, self._api_version)
        if self._may_create and not (
            self._session.would_allow(AclOperation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)
            or self._session.authorize(AclOperation.CREATE, ResourceType.TOPIC, name)
        ):
            return _refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name)
        missing = _refusal(self._why_missing(name), name=name)
        missing.is_internal = name in INTERNAL_TOPICS
        if operations:
            missing.topic_authorized_operations = authorized_operations(
                self._session, ResourceType.TOPIC, name
            )
        return missing

    def _why_missing(self, name: str) -> ErrorCode:
        """The error for a topic that does not exist; it is created if that is allowed."""
        if topic_name_problem(name) is not None:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        if not self._may_create:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        self.to_make.append(name)
        return ErrorCode.LEADER_NOT_AVAILABLE


def _refusal(
    error: ErrorCode, *, name: str | None, topic_id: bytes = ZERO_UUID
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=error,
        name=name,
        topic_id=topic_id,
        topic_authorized_operations=NOT_ASKED_FOR,
    )


def _describe(
    cache: MetadataCache,
    session: Session,
    topic: TopicMetadata,
    operations: bool,
    api_version: int,
) -> MetadataResponseTopic:
    reachable = _reachable(cache, session.listener)
    described = _partition
    if api_version < LISTENER_NOT_FOUND_SINCE:
        described = _partition_of_v0 if api_version == 0 else _partition_before_v6
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            described(cache, reachable, index, topic.partitions[index])
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


def _partition_before_v6(
    cache: MetadataCache,
    reachable: Callable[[int], bool],
    index: int,
    known: PartitionMetadata,
) -> MetadataResponsePartition:
    answer = _partition(cache, reachable, index, known)
    if answer.error_code == ErrorCode.LISTENER_NOT_FOUND:
        answer.error_code = ErrorCode.LEADER_NOT_AVAILABLE
    return answer


def _partition_of_v0(
    cache: MetadataCache,
    reachable: Callable[[int], bool],
    index: int,
    known: PartitionMetadata,
) -> MetadataResponsePartition:
    """Without the replicas that are not among the brokers: clients of 0.8 look each of them up."""
    answer = _partition_before_v6(cache, reachable, index, known)
    there = {each for each in known.replicas if each in cache.brokers and reachable(each)}
    answer.replica_nodes = [each for each in known.replicas if each in there]
    answer.isr_nodes = [each for each in known.isr if each in there]
    is_shorter = len(answer.replica_nodes) < len(known.replicas)
    if answer.error_code == ErrorCode.NONE and is_shorter:
        answer.error_code = ErrorCode.REPLICA_NOT_AVAILABLE
    return answer


def cluster_operations(session: Session) -> int:
    """The operations on the cluster that this client may do, if it may describe it."""
    if not session.would_allow(AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return 0
    return authorized_operations(session, ResourceType.CLUSTER, CLUSTER_NAME)


def authorized_operations(session: Session, resource_type: ResourceType, name: str) -> int:
    """The operations that this client may do, as the bit field of KIP-430."""
    bits = 0
    for operation in OPERATIONS[resource_type]:
        if session.would_allow(operation, resource_type, name):
            bits |= 1 << operation
    return bits
