"""Admin requests about topics, configurations and the cluster, and what all admin requests use.

Plain coroutines over `odradek.client.cluster`. Each request goes to the broker that can serve it
(the controller, the leader, a certain broker, any broker) and is retried when that has moved.
Requests about many things return a mapping to `ApiError` or None. Requests about partitions are in
`odradek.client.admin.partitions`, groups and transactions in `odradek.client.admin.groups`, ACLs,
quotas and credentials in `odradek.client.admin.security`.

Behaviour follows kafka-clients 3.9's `KafkaAdminClient`, with brokers from 2.8 to 4.x.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from odradek.client.cluster import Cluster
from odradek.client.connection import Connection
from odradek.client.kafka_errors import check, failure
from odradek.client.metadata import Node
from odradek.model.errors import RETRIABLE, ApiError, ErrorCode, OdradekError
from odradek.model.partition import TopicPartition
from odradek.net.retry import retry
from odradek.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from odradek.wire.schema import Message

TIMEOUT_MS: Final = 60_000  # default.api.timeout.ms

TOPIC: Final = 2
BROKER: Final = 4
BROKER_LOGGER: Final = 8
CLIENT_METRICS: Final = 16

REQUEST_MS: Final = 30_000
_DESCRIBE_TOPIC_PARTITIONS: Final = 75

Outcome = ApiError | None
R = TypeVar("R", bound=Message)
T = TypeVar("T")


# ------------------------------------------------------------------------------ the ways to ask


async def persist(cluster: Cluster, attempt: Callable[[], Awaitable[T]]) -> T:
    """Retry until success, a permanent error or the time-out.

    Raises:
        ApiError, ConnectionError: the last error.
    """

    def failed(error: Exception) -> None:
        if isinstance(error, ApiError) and error.code not in RETRIABLE:
            raise error

    return await retry(
        attempt,
        cluster.retry_pause_s,
        on=(ApiError, ConnectionError),
        failed=failed,
        deadline_s=cluster.deadline_s(),
    )


async def ask_controller(
    cluster: Cluster, message: Message, answer: type[R], codes: Callable[[R], Iterable[int]]
) -> R:
    """Send a request to the controller; looks it up again after NOT_CONTROLLER."""

    async def attempt() -> R:
        try:
            response = await (await cluster.controller()).request(message, answer)
        except ConnectionError:
            await cluster.refresh()  # another broker may have a newer controller id
            raise
        if ErrorCode.NOT_CONTROLLER in codes(response):
            await cluster.refresh()
            raise ApiError(ErrorCode.NOT_CONTROLLER)
        return response

    return await persist(cluster, attempt)


async def any_broker(cluster: Cluster) -> Connection:
    """A connection to the reachable broker with the smallest id.

    A broker that refuses this client, or has an expired certificate, is not reachable.

    Raises:
        ConnectionError: no broker can be reached.
        ApiError: BROKER_NOT_AVAILABLE, the metadata has no broker.
    """
    reasons = []
    for node in sorted(await cluster.nodes()):
        try:
            return await cluster.broker(node)
        except (ConnectionError, OdradekError) as error:
            reasons.append(str(error))
    raise ConnectionError("no broker can be reached: " + "; ".join(reasons))


# --------------------------------------------------------------------------------------- topics


async def list_topics(cluster: Cluster, *, internal: bool = True) -> list[str]:
    """The sorted names of all topics, with or without internal topics."""
    response = await cluster.refresh(None)
    return sorted(
        topic.name
        for topic in response.topics
        if topic.name is not None and (internal or not topic.is_internal)
    )


async def describe_topics(cluster: Cluster, names: Sequence[str]) -> list[MetadataResponseTopic]:
    """Describe topics, in the order of the names.

    Raises:
        ApiError: a topic does not exist, or is not authorized.
    """
    response = await cluster.refresh(names)
    by_name = {topic.name: topic for topic in response.topics}
    for name in names:
        if name not in by_name or by_name[name].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {name} not found.")
    return [_sound(by_name[name]) for name in names]


async def describe_topic_ids(
    cluster: Cluster, topic_ids: Sequence[bytes]
) -> list[MetadataResponseTopic]:
    """Describe topics by id. Those that do not exist are left out.

    Raises:
        ApiError: UNSUPPORTED_VERSION from brokers before 3.1; or a topic is not authorized.
    """
    connection = await any_broker(cluster)
    if connection.version_of(3) < 12:
        everything = await cluster.refresh(None)
        wanted = set(topic_ids)
        return [_sound(topic) for topic in everything.topics if topic.topic_id in wanted]
    request = MetadataRequest(
        topics=[MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in topic_ids],
        allow_auto_topic_creation=False,
    )
    response = await connection.request(request, MetadataResponse)
    missing = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return [_sound(topic) for topic in response.topics if topic.error_code not in missing]


class EligibleLeaders(NamedTuple):
    """Eligible leader replicas and last known ELR of a partition (KIP-966)."""

    eligible: Sequence[int] | None
    last_known: Sequence[int] | None


async def eligible_leaders(
    cluster: Cluster, names: Sequence[str]
) -> dict[TopicPartition, EligibleLeaders]:
    """Eligible leader replicas by partition; empty if the brokers do not support them."""
    from odradek.wire.messages import describe_topic_partitions as wire  # noqa: PLC0415

    connection = await any_broker(cluster)
    if _DESCRIBE_TOPIC_PARTITIONS not in connection.versions:
        return {}
    found: dict[TopicPartition, EligibleLeaders] = {}
    cursor: wire.Cursor | None = None
    while True:
        # From the cursor's topic on; brokers sort topics by name.
        left = [name for name in sorted(names) if cursor is None or name >= cursor.topic_name]
        request = wire.DescribeTopicPartitionsRequest(
            topics=[wire.TopicRequest(name=name) for name in left], cursor=cursor
        )
        response = await connection.request(request, wire.DescribeTopicPartitionsResponse)
        for topic in response.topics:
            for p in topic.partitions:
                partition = TopicPartition(topic.name or "", p.partition_index)
                found[partition] = EligibleLeaders(p.eligible_leader_replicas, p.last_known_elr)
        cursor = response.next_cursor
        if cursor is None:
            return found


def _sound(topic: MetadataResponseTopic) -> MetadataResponseTopic:
    # A partition without a leader is no error of its topic.
    if topic.error_code not in (0, ErrorCode.LEADER_NOT_AVAILABLE):
        check(topic.error_code)
    return topic


class NewTopic(NamedTuple):
    """A topic to create, with a partition count and replication factor (-1: the broker's default).

    `assignment`: or the replicas of each partition.
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignment: Mapping[int, Sequence[int]] | None = None
    configs: Mapping[str, str] = {}


async def create_topics(
    cluster: Cluster, topics: Sequence[NewTopic], *, validate_only: bool = False
) -> dict[str, Outcome]:
    """Create topics; the outcomes come after the brokers have created them."""
    from odradek.wire.messages import create_topics as wire  # noqa: PLC0415 - loaded when used

    request = wire.CreateTopicsRequest(
        topics=[
            wire.CreatableTopic(
                name=topic.name,
                num_partitions=topic.partitions,
                replication_factor=topic.replication_factor,
                assignments=[
                    wire.CreatableReplicaAssignment(partition_index=index, broker_ids=list(ids))
                    for index, ids in (topic.assignment or {}).items()
                ],
                configs=[
                    wire.CreatableTopicConfig(name=name, value=value)
                    for name, value in topic.configs.items()
                ],
            )
            for topic in topics
        ],
        timeout_ms=REQUEST_MS,
        validate_only=validate_only,
    )
    response = await ask_controller(
        cluster, request, wire.CreateTopicsResponse, lambda r: (t.error_code for t in r.topics)
    )
    return {topic.name: failure(topic.error_code, topic.error_message) for topic in response.topics}


async def delete_topics(cluster: Cluster, names: Sequence[str]) -> dict[str, Outcome]:
    from odradek.wire.messages import delete_topics as wire  # noqa: PLC0415

    connection = await cluster.controller()
    by_state = connection.version_of(20) >= 6
    request = wire.DeleteTopicsRequest(timeout_ms=REQUEST_MS)
    if by_state:
        request.topics = [wire.DeleteTopicState(name=name) for name in names]
    else:
        request.topic_names = list(names)
    response = await ask_controller(
        cluster, request, wire.DeleteTopicsResponse, lambda r: (t.error_code for t in r.responses)
    )
    return {t.name or "": failure(t.error_code, t.error_message) for t in response.responses}


class MorePartitions(NamedTuple):
    """The new partition count of a topic and, if given, the replicas of each new partition."""

    total: int
    assignments: Sequence[Sequence[int]] | None = None


async def create_partitions(
    cluster: Cluster, topics: Mapping[str, MorePartitions]
) -> dict[str, Outcome]:
    """Increase the partition counts of topics."""
    from odradek.wire.messages import create_partitions as wire  # noqa: PLC0415

    request = wire.CreatePartitionsRequest(
        topics=[
            wire.CreatePartitionsTopic(
                name=name,
                count=more.total,
                assignments=None
                if more.assignments is None
                else [
                    wire.CreatePartitionsAssignment(broker_ids=list(ids))
                    for ids in more.assignments
                ],
            )
            for name, more in topics.items()
        ],
        timeout_ms=REQUEST_MS,
    )
    response = await ask_controller(
        cluster, request, wire.CreatePartitionsResponse, lambda r: (t.error_code for t in r.results)
    )
    return {t.name: failure(t.error_code, t.error_message) for t in response.results}


# ------------------------------------------------------------------------------- configurations

# ConfigSource on the wire, and its name in Kafka's tools.
SOURCES: Final = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}
DEFAULT_CONFIG: Final = "DEFAULT_CONFIG"


class ConfigEntry(NamedTuple):
    """One option of a resource. `synonyms`: (source, name, value)."""

    name: str
    value: str | None
    source: str
    is_sensitive: bool
    is_read_only: bool
    synonyms: tuple[tuple[str, str, str | None], ...]


Resource = tuple[int, str]  # resource type, name


async def describe_configs(
    cluster: Cluster, resources: Sequence[Resource], *, synonyms: bool = False
) -> dict[Resource, list[ConfigEntry] | ApiError]:
    """The options of resources, in the order of the response."""
    from odradek.wire.messages import describe_configs as wire  # noqa: PLC0415

    described: dict[Resource, list[ConfigEntry] | ApiError] = {}
    for connection, asked in await _by_broker(cluster, resources):
        request = wire.DescribeConfigsRequest(
            resources=[
                wire.DescribeConfigsResource(
                    resource_type=kind, resource_name=name, configuration_keys=None
                )
                for kind, name in asked
            ],
            include_synonyms=synonyms,
        )
        response = await connection.request(request, wire.DescribeConfigsResponse)
        for result in response.results:
            error = failure(result.error_code, result.error_message)
            described[result.resource_type, result.resource_name] = error or [
                ConfigEntry(
                    name=config.name,
                    value=config.value,
                    source=SOURCES.get(config.config_source, "UNKNOWN"),
                    is_sensitive=config.is_sensitive,
                    is_read_only=config.read_only,
                    synonyms=tuple(
                        (SOURCES.get(s.source, "UNKNOWN"), s.name, s.value) for s in config.synonyms
                    ),
                )
                for config in result.configs
            ]
    return described


SET: Final = 0
DELETE: Final = 1
APPEND: Final = 2
SUBTRACT: Final = 3


class Alteration(NamedTuple):
    """One option and its operation: set (0), delete (1), append (2), subtract (3)."""

    name: str
    value: str | None
    operation: int = SET


async def alter_configs(
    cluster: Cluster,
    changes: Mapping[Resource, Sequence[Alteration]],
    *,
    validate_only: bool = False,
) -> dict[Resource, Outcome]:
    """Change single options of resources (IncrementalAlterConfigs)."""
    from odradek.wire.messages import incremental_alter_configs as wire  # noqa: PLC0415

    outcomes: dict[Resource, Outcome] = {}
    for connection, asked in await _by_broker(cluster, list(changes)):
        request = wire.IncrementalAlterConfigsRequest(
            resources=[
                wire.AlterConfigsResource(
                    resource_type=resource[0],
                    resource_name=resource[1],
                    configs=[
                        wire.AlterableConfig(
                            name=change.name,
                            config_operation=change.operation,
                            value=change.value,
                        )
                        for change in changes[resource]
                    ],
                )
                for resource in asked
            ],
            validate_only=validate_only,
        )
        response = await connection.request(request, wire.IncrementalAlterConfigsResponse)
        for result in response.responses:
            outcomes[result.resource_type, result.resource_name] = failure(
                result.error_code, result.error_message
            )
    return outcomes


async def _by_broker(
    cluster: Cluster, resources: Sequence[Resource]
) -> list[tuple[Connection, list[Resource]]]:
    """Group resources by the broker to send to: a broker resource to itself, others to any broker.

    Raises:
        ApiError: BROKER_NOT_AVAILABLE, there is no such broker.
    """
    groups: dict[int | None, list[Resource]] = {}
    for kind, name in resources:
        own = kind in (BROKER, BROKER_LOGGER) and name != ""
        groups.setdefault(int(name) if own else None, []).append((kind, name))
    if any(broker is not None for broker in groups):
        await cluster.refresh()
    return [
        (await any_broker(cluster) if broker is None else await cluster.broker(broker), asked)
        for broker, asked in groups.items()
    ]


# ---------------------------------------------------------------------------------- the cluster


class ClusterState(NamedTuple):
    """Cluster id, controller id and the registered brokers."""

    cluster_id: str | None
    controller: int
    nodes: tuple[Node, ...]


async def describe_cluster(cluster: Cluster) -> ClusterState:
    """The cluster's id, controller and registered brokers."""
    await cluster.refresh()
    nodes = await cluster.nodes()
    return ClusterState(
        cluster.metadata.cluster_id, cluster.metadata.controller, tuple(nodes.values())
    )
