"""Collects the facts for the planner and the doctor from any Kafka cluster from 2.8 on.

The snapshot (brokers, racks, replicas, sizes) is required; other facts that a cluster does not
return are recorded with the reason, and the rules that need them are skipped. Sizes come from the
leaders' log directories, and where there is no leader from any other replica's.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import odradek.client.admin.groups as admin_groups
import odradek.client.admin.partitions as admin_partitions
import odradek.client.admin.topics as admin
from odradek.client.cluster import Cluster
from odradek.client.fetch.offsets import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    ListedOffset,
    try_to_list_offsets,
)
from odradek.model.errors import ApiError, ErrorCode, OdradekError
from odradek.model.names import INTERNAL_TOPICS
from odradek.model.partition import TopicPartition
from odradek.net.clock import real_wall_ms
from odradek.plan.cluster import ClusterPicture, Replicas
from odradek.plan.commands import Caller
from odradek.plan.facts import (
    DISK_PERCENT,
    PATIENCE_MS,
    Address,
    ClusterFacts,
    CopyProgress,
    Entry,
    Gap,
    GroupFacts,
    OpenProducer,
    Report,
    RunningReassignment,
    gap_of,
)
from odradek.wire.messages.metadata import MetadataRequest, MetadataResponse

# Replication throttles, as options of brokers and of topics.
BROKER_THROTTLES: Final = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)
TOPIC_THROTTLES: Final = (
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
)
_NOT_AUTHORIZED: Final = (
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)
_GROUPS_MAX: Final = 1_000
_REACH_S: Final = 3.0
_ATTEMPT_S: Final = 20.0
_PROGRESS_S: Final = 2.0
_INFLOW_S: Final = 3.0
_DYNAMIC: Final = ("DYNAMIC_BROKER_CONFIG", "DYNAMIC_TOPIC_CONFIG", "DYNAMIC_DEFAULT_BROKER_CONFIG")

Resolve = Callable[[str, int], Awaitable[str | None]]


async def resolve(host: str, port: int) -> str | None:
    """Why this host cannot resolve a name; None if it can."""
    try:
        await asyncio.get_running_loop().getaddrinfo(host, port)
    except OSError as error:
        return error.strerror or str(error)
    return None


async def picture_of(
    cluster: Cluster, *, sizes: bool = True, topics: Collection[str] | None = None
) -> ClusterPicture:
    """A snapshot of brokers, racks and partitions, with their sizes if `sizes`.

    Raises:
        ApiError, ConnectionError: the cluster does not answer.
    """
    response = await cluster.refresh(None if topics is None else list(topics))
    size_of = await _sizes(cluster, [b.node_id for b in response.brokers]) if sizes else {}
    partitions = {}
    names = []
    for topic in response.topics:
        if topic.error_code not in (0, ErrorCode.LEADER_NOT_AVAILABLE) or topic.name is None:
            continue
        names.append(topic.name)
        for p in topic.partitions:
            partition = TopicPartition(topic.name, p.partition_index)
            partitions[partition] = Replicas(
                tuple(p.replica_nodes),
                size_of.get(partition, 0),
                p.leader_id,
                tuple(p.isr_nodes),
            )
    return ClusterPicture(
        {broker.node_id: broker.rack for broker in response.brokers},
        partitions,
        await _isr_min(cluster, names),
    )


async def inflow_of(cluster: Cluster, before: ClusterPicture) -> dict[TopicPartition, float]:
    """The current write rate of each partition, bytes a second, observed for three seconds.

    Raises:
        ApiError, ConnectionError: the cluster does not answer.
    """
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    await asyncio.sleep(_INFLOW_S)
    after = await picture_of(cluster)
    took_s = loop.time() - began_s
    return {
        partition: max(0, held.size_bytes - before.partitions[partition].size_bytes) / took_s
        for partition, held in after.partitions.items()
        if partition in before.partitions
    }


async def _sizes(cluster: Cluster, brokers: Iterable[int]) -> dict[TopicPartition, int]:
    """The size of the largest replica of each partition, because followers may lag."""
    found: dict[TopicPartition, int] = {}
    for broker in brokers:
        try:
            directories = await admin_partitions.describe_log_dirs(cluster, broker)
        except (OdradekError, ConnectionError):
            continue  # it has just stopped: its replicas are on other brokers, too
        for directory in directories:
            for partition, replica in directory.replicas.items():
                if not replica.is_future:
                    found[partition] = max(found.get(partition, 0), replica.size_bytes)
    return found


async def _isr_min(cluster: Cluster, topics: Sequence[str]) -> dict[str, int]:
    try:
        options = await _options(cluster, admin.TOPIC, topics)
    except (OdradekError, ConnectionError):
        return {}
    return {
        topic: int(values["min.insync.replicas"])
        for topic, values in options.items()
        if values.get("min.insync.replicas", "").isdigit()
    }


async def _options(
    cluster: Cluster,
    kind: int,
    names: Iterable[str],
    *,
    dynamic_only: bool = False,
    of_all: bool = False,
) -> dict[str, dict[str, str]]:
    """The options of the resources that are not refused.

    Raises:
        ApiError, ConnectionError: the cluster does not answer; with `of_all` also if this client
            may not ask for one of them.
    """
    described = await admin.describe_configs(cluster, [(kind, name) for name in names])
    found: dict[str, dict[str, str]] = {}
    for (_, name), entries in described.items():
        if isinstance(entries, ApiError):
            if of_all and entries.code in _NOT_AUTHORIZED:
                raise entries
            continue
        found[name] = {
            entry.name: entry.value
            for entry in entries
            if entry.value is not None and (not dynamic_only or entry.source in _DYNAMIC)
        }
    return found


# -------------------------------------------------------------------------------------- the doctor


class Reported(NamedTuple):
    """Reports that only Odradek brokers make, and the caller's limits: fields of `ClusterFacts`."""

    caller: Caller
    reports: Mapping[int, Report] = {}  # `broker`, by broker
    coordinated: Sequence[Report] = ()  # `groups`, of all brokers
    journal: Sequence[Entry] = ()
    answers_at: Mapping[int, str] = {}
    unreported: Mapping[int, Gap] = {}  # brokers without reports
    patience_ms: int = PATIENCE_MS
    disk_percent: float = DISK_PERCENT


async def facts_of(
    cluster: Cluster, reported: Reported, *, resolving: Resolve = resolve
) -> ClusterFacts:
    """All facts for the doctor.

    Raises:
        ApiError, ConnectionError: the cluster does not answer at all.
    """
    wall_ms = real_wall_ms()
    picture = await picture_of(cluster, sizes=False)
    state = await admin.describe_cluster(cluster)
    gaps: dict[str, Gap] = {}

    async def attempt(kind: str, asked: Awaitable[object]) -> object | None:
        try:
            async with asyncio.timeout(_ATTEMPT_S):
                return await asked
        except TimeoutError:
            gaps[kind] = Gap(f"no answer within {_ATTEMPT_S:.0f} s")
        except (OdradekError, ConnectionError) as error:
            gaps[kind] = gap_of(error)
        return None

    unreachable = await _unreachable(cluster, [node.id for node in state.nodes])
    answering = [node.id for node in state.nodes if node.id not in unreachable]
    served = _served(picture, answering)
    throttles = await attempt("throttle", _throttles(cluster, picture, answering))
    controller = state.controller
    moves: object = {}
    if controller in unreachable:
        gaps["stuck"] = Gap(f"the controller, broker {controller}, does not answer")
    else:
        moves = await attempt("stuck", _moves(cluster))
    moves = moves if isinstance(moves, dict) else {}
    progress = await attempt("stuck", _progress(cluster, picture, moves, answering, reported))
    groups = await attempt("lag", _groups(cluster, answering))
    transactions = await attempt("hanging", open_transactions(cluster, _led(served)))
    newest = await attempt("retention", _newest(cluster, served))
    broker_throttles, topic_throttles = throttles if isinstance(throttles, tuple) else ({}, {})
    return ClusterFacts(
        picture=picture,
        addresses={
            node.id: Address(node.host, node.port, await resolving(node.host, node.port))
            for node in state.nodes
        },
        unreachable=unreachable,
        broker_throttles=broker_throttles,
        topic_throttles=topic_throttles,
        moves=moves,
        progress=progress if isinstance(progress, dict) else {},
        groups=groups if isinstance(groups, list) else [],
        open_transactions=transactions if isinstance(transactions, dict) else {},
        newest_timestamps=newest if isinstance(newest, dict) else {},
        wall_ms=wall_ms,
        gaps=gaps,
        **reported._asdict(),
    )


async def certificates_of(cluster: Cluster) -> dict[int, int]:
    """When the TLS certificates of the brokers that answer expire; none without TLS."""
    found = {}
    for broker in await cluster.nodes():
        try:
            expires_ms = (await cluster.broker(broker)).certificate_expires_ms
        except (OdradekError, ConnectionError):
            continue
        if expires_ms is not None:
            found[broker] = expires_ms
    return found


def _served(picture: ClusterPicture, answering: Collection[int]) -> ClusterPicture:
    """The snapshot with only the partitions whose leader answers: others would time out."""
    return replace(
        picture,
        partitions={p: held for p, held in picture.partitions.items() if held.leader in answering},
    )


async def _unreachable(cluster: Cluster, brokers: Iterable[int]) -> dict[int, str]:
    found = {}

    async def reach(broker: int) -> None:
        try:
            async with asyncio.timeout(_REACH_S):
                connection = await cluster.broker(broker)
                await connection.request(MetadataRequest(topics=[]), MetadataResponse)
        except TimeoutError:
            found[broker] = f"no answer within {_REACH_S:.0f} s"
        except (OdradekError, ConnectionError) as error:  # also an expired certificate
            found[broker] = str(error)

    await asyncio.gather(*map(reach, brokers))
    return found


async def _progress(
    cluster: Cluster,
    picture: ClusterPicture,
    moves: Mapping[TopicPartition, RunningReassignment],
    answering: Collection[int],
    reported: Reported,
) -> dict[tuple[TopicPartition, int], CopyProgress]:
    """The growth of the adding replicas between two observations."""
    wanted: dict[int, list[TopicPartition]] = {}
    for partition, move in moves.items():
        for broker in (*move.adding, picture.partitions[partition].leader):
            if broker in answering:
                wanted.setdefault(broker, []).append(partition)
    if not wanted:
        return {}
    before = await _held_bytes(cluster, wanted)
    seconds = min(_PROGRESS_S, reported.patience_ms / 1000)
    await asyncio.sleep(seconds)
    after = await _held_bytes(cluster, wanted)
    return {
        (partition, broker): CopyProgress(
            before.get((partition, broker), 0),
            after.get((partition, broker), 0),
            after.get((partition, picture.partitions[partition].leader), 0),
            seconds,
        )
        for partition, move in moves.items()
        for broker in move.adding
        if broker in answering
    }


async def _held_bytes(
    cluster: Cluster, wanted: Mapping[int, Sequence[TopicPartition]]
) -> dict[tuple[TopicPartition, int], int]:
    found = {}
    for broker, partitions in wanted.items():
        for directory in await admin_partitions.describe_log_dirs(cluster, broker, partitions):
            for partition, replica in directory.replicas.items():
                if not replica.is_future:
                    found[partition, broker] = replica.size_bytes
    return found


async def _throttles(
    cluster: Cluster, picture: ClusterPicture, answering: Iterable[int]
) -> tuple[dict[int, dict[str, str]], dict[str, dict[str, str]]]:
    names = sorted({partition.topic for partition in picture.partitions})
    return await throttles_of(cluster, answering, names, of_all=True)


async def throttles_of(
    cluster: Cluster, answering: Iterable[int], names: Iterable[str], *, of_all: bool = False
) -> tuple[dict[int, dict[str, str]], dict[str, dict[str, str]]]:
    """The replication throttles that are set on brokers and on topics.

    Raises:
        ApiError, ConnectionError: as `_options`.
    """
    brokers = await _options(
        cluster, admin.BROKER, map(str, answering), dynamic_only=True, of_all=of_all
    )
    topics = await _options(cluster, admin.TOPIC, names, dynamic_only=True, of_all=of_all)
    return (
        {
            int(name): {k: v for k, v in options.items() if k in BROKER_THROTTLES}
            for name, options in brokers.items()
        },
        {
            name: {k: v for k, v in options.items() if k in TOPIC_THROTTLES and v}
            for name, options in topics.items()
        },
    )


async def throttled_topics(cluster: Cluster) -> list[str]:
    """The topics on which a replication throttle is set.

    Raises:
        ApiError, ConnectionError: the cluster does not answer.
    """
    names = await admin.list_topics(cluster)
    options = await _options(cluster, admin.TOPIC, names, dynamic_only=True)
    return [name for name in names if any(options.get(name, {}).get(o) for o in TOPIC_THROTTLES)]


async def _moves(cluster: Cluster) -> dict[TopicPartition, RunningReassignment]:
    response = await admin_partitions.list_reassignments(cluster)
    return {
        partition: RunningReassignment(move.adding, move.removing)
        for partition, move in response.items()
    }


async def _groups(cluster: Cluster, brokers: Iterable[int]) -> list[GroupFacts]:
    from odradek.wire.messages import list_groups as wire  # noqa: PLC0415 - loaded when used

    states: dict[str, str] = {}
    for broker in brokers:
        connection = await cluster.broker(broker)
        response = await connection.request(wire.ListGroupsRequest(), wire.ListGroupsResponse)
        for group in response.groups:
            states[group.group_id] = group.group_state
    committed = {name: await _committed(cluster, name) for name in sorted(states)[:_GROUPS_MAX]}
    wanted = {partition for found in committed.values() for partition in found}
    ends = await try_to_list_offsets(cluster, dict.fromkeys(sorted(wanted), LATEST))
    starts = await try_to_list_offsets(cluster, dict.fromkeys(sorted(wanted), EARLIEST))
    groups = []
    for name, found in committed.items():
        lag = 0
        deleted: dict[TopicPartition, int] = {}
        for partition, offset in found.items():
            start, end = starts[partition], ends[partition]
            if isinstance(start, ApiError) or isinstance(end, ApiError):
                continue
            lag += max(0, end.offset - max(offset, start.offset))
            if start.offset > offset:
                deleted[partition] = start.offset - offset
        groups.append(GroupFacts(name, states[name], lag, deleted))
    return groups


async def _committed(cluster: Cluster, group: str) -> dict[TopicPartition, int]:
    """The committed offsets of a group; none if this client is not authorized to read them."""
    try:
        found = await admin_groups.committed_offsets(cluster, group)
    except ApiError as error:
        if error.code in _NOT_AUTHORIZED:
            return {}
        raise
    return {partition: committed.offset for partition, committed in found.items()}


def _led(picture: ClusterPicture) -> list[TopicPartition]:
    """The partitions that have a leader."""
    return [partition for partition, held in picture.partitions.items() if held.leader >= 0]


async def open_transactions(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, list[OpenProducer]]:
    """The producers whose transactions keep the last stable offset below the high watermark.

    Timestamps come from the producers' clocks and do not prove an age: coordinators are asked.

    Raises:
        ApiError, ConnectionError: a leader or a coordinator refuses, or cannot be reached;
            UNSUPPORTED_VERSION for coordinators before Kafka 3.0.
    """
    found = await open_producers(cluster, partitions)
    open_ids = {producer.producer_id for producers in found.values() for producer in producers}
    known = await admin_groups.transactions_of(cluster, open_ids)
    return {
        partition: [_coordinated(p, partition, known.get(p.producer_id)) for p in producers]
        for partition, producers in found.items()
    }


async def open_producers(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, list[OpenProducer]]:
    """As `open_transactions`, from the leaders alone: `coordinated` is not set.

    Raises:
        ApiError, ConnectionError: a leader refuses, or cannot be reached.
    """
    specs = dict.fromkeys(sorted(partitions), LATEST)
    ends = await try_to_list_offsets(cluster, specs)
    stable = await try_to_list_offsets(cluster, specs, reads_committed=True)
    are_open = []
    for partition in specs:
        end, last_stable = ends[partition], stable[partition]
        if isinstance(end, ApiError) or isinstance(last_stable, ApiError):
            continue
        if last_stable.offset < end.offset:
            are_open.append(partition)
    found: dict[TopicPartition, list[OpenProducer]] = {}
    for partition, producers in (await admin_groups.describe_producers(cluster, are_open)).items():
        if isinstance(producers, ApiError):
            raise producers
        found[partition] = [
            OpenProducer(
                producer.producer_id,
                producer.producer_epoch,
                producer.transaction_start_offset,
                producer.last_timestamp_ms,
            )
            for producer in producers
            if producer.transaction_start_offset >= 0
        ]
    return found


def _coordinated(
    producer: OpenProducer,
    partition: TopicPartition,
    known: admin_groups.TransactionDescription | None,
) -> OpenProducer:
    if known is None or partition not in known.partitions:
        return producer
    return producer._replace(
        coordinated=True,
        transactional_id=known.transactional_id,
        started_ms=known.started_ms,
        timeout_ms=known.timeout_ms,
    )


async def _newest(cluster: Cluster, picture: ClusterPicture) -> dict[TopicPartition, int]:
    """The largest timestamps of the topics with retention by time."""
    names = sorted({partition.topic for partition in picture.partitions} - INTERNAL_TOPICS)
    options = await _options(cluster, admin.TOPIC, names)
    retained = {
        topic
        for topic, values in options.items()
        if "delete" in values.get("cleanup.policy", "delete") and values.get("retention.ms") != "-1"
    }
    asked = {
        partition: MAX_TIMESTAMP
        for partition, held in sorted(picture.partitions.items())
        if partition.topic in retained and held.leader >= 0
    }
    response = await try_to_list_offsets(cluster, asked)
    for found in response.values():
        if isinstance(found, ApiError) and found.code == ErrorCode.UNSUPPORTED_VERSION:
            raise found  # brokers before 3.0
    return {
        partition: found.timestamp_ms
        for partition, found in response.items()
        if isinstance(found, ListedOffset)
    }
