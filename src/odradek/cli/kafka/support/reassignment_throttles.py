"""Throttles of `kafka-reassign-partitions`: sets and clears them.

As in Kafka 3.9 rates are options of brokers, and throttled replicas are options of topics.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import odradek.client.admin.topics as admin
from odradek.cli.kafka.support.java import hash_order, string_hash
from odradek.client.admin.partitions import PartitionReassignment
from odradek.client.cluster import Cluster
from odradek.model.errors import ApiError, ErrorCode
from odradek.model.partition import TopicPartition

_LEADER_RATE: Final = "leader.replication.throttled.rate"
_FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
_DIRECTORY_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
_LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
_FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"


class Move(NamedTuple):
    """The source and target brokers of a partition's copies."""

    sources: frozenset[int]
    destinations: frozenset[int]


def proposed_moves(
    under_way: Mapping[TopicPartition, PartitionReassignment],
    targets: Mapping[TopicPartition, Sequence[int]],
    current: Mapping[TopicPartition, Sequence[int]],
) -> dict[TopicPartition, Move]:
    """All moves once the plan has started: its own, and active ones that it does not replace."""
    moves = {
        partition: Move(frozenset(move.replicas) - frozenset(move.adding), frozenset(move.adding))
        for partition, move in under_way.items()
    }
    for partition, replicas in targets.items():
        known = moves.get(partition)
        sources = known.sources if known is not None else frozenset(current[partition])
        moves[partition] = Move(sources, frozenset(replicas) - sources)
    return moves


async def throttle_moves(
    cluster: Cluster, moves: Mapping[TopicPartition, Move], bytes_per_s: int
) -> None:
    """Limit the rate of moves between brokers.

    Raises:
        ApiError: an option of a topic or broker cannot be set.
    """
    changes: dict[admin.Resource, list[admin.Alteration]] = {}
    for option, side in ((_LEADER_REPLICAS, "sources"), (_FOLLOWER_REPLICAS, "destinations")):
        for topic, value in _throttled(moves, side).items():
            resource = (admin.TOPIC, topic)
            changes.setdefault(resource, []).append(admin.Alteration(option, value))
    for broker in sorted({b for move in moves.values() for b in move.sources | move.destinations}):
        changes[admin.BROKER, str(broker)] = [
            admin.Alteration(_LEADER_RATE, str(bytes_per_s)),
            admin.Alteration(_FOLLOWER_RATE, str(bytes_per_s)),
        ]
    _raise_first(await admin.alter_configs(cluster, changes))


def _throttled(moves: Mapping[TopicPartition, Move], side: str) -> dict[str, str]:
    parts: dict[str, set[str]] = {}
    for partition, move in moves.items():
        throttled = parts.setdefault(partition.topic, set())
        throttled |= {f"{partition.partition}:{broker}" for broker in getattr(move, side)}
    return {topic: ",".join(sorted(values)) for topic, values in parts.items()}


async def throttle_directories(cluster: Cluster, brokers: Iterable[int], bytes_per_s: int) -> None:
    """Limit the rate of moves between directories.

    Raises:
        ApiError: an option of a broker cannot be set.
    """
    change = [admin.Alteration(_DIRECTORY_RATE, str(bytes_per_s))]
    changes = {(admin.BROKER, str(broker)): change for broker in sorted(brokers)}
    _raise_first(await admin.alter_configs(cluster, changes))


async def clear_throttles(
    cluster: Cluster, targets: Sequence[tuple[TopicPartition, Sequence[int]]]
) -> None:
    """Remove every throttle that any reassignment of these partitions may have set.

    On all brokers, because the former source brokers are not recorded.

    Raises:
        ApiError: an option cannot be removed; those of other brokers and topics are removed.
    """
    state = await admin.describe_cluster(cluster)
    brokers = sorted({n.id for n in state.nodes} | {b for _, ids in targets for b in ids})
    print(f"Clearing broker-level throttles on broker{_s(brokers)} {','.join(map(str, brokers))}")
    rates = [
        admin.Alteration(option, None, admin.DELETE)
        for option in (_LEADER_RATE, _FOLLOWER_RATE, _DIRECTORY_RATE)
    ]
    failures = await _each(cluster, {(admin.BROKER, str(broker)): rates for broker in brokers})
    names = {partition.topic for partition, _ in targets}
    topics = hash_order(sorted(names), string_hash)
    print(f"Clearing topic-level throttles on topic{_s(topics)} {','.join(topics)}")
    replicas = [
        admin.Alteration(option, None, admin.DELETE)
        for option in (_LEADER_REPLICAS, _FOLLOWER_REPLICAS)
    ]
    failures |= await _each(cluster, {(admin.TOPIC, topic): replicas for topic in topics})
    _raise_first(failures)


async def _each(
    cluster: Cluster, changes: Mapping[admin.Resource, Sequence[admin.Alteration]]
) -> dict[admin.Resource, ApiError | None]:
    """Change each resource by its own request: an offline broker does not block the others."""
    outcomes: dict[admin.Resource, ApiError | None] = {}
    for resource, change in changes.items():
        try:
            outcomes |= await admin.alter_configs(cluster, {resource: change})
        except ApiError as error:
            outcomes[resource] = error
            if error.code == ErrorCode.BROKER_NOT_AVAILABLE:
                outcomes[resource] = ApiError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    "Timed out waiting for a node assignment. Call: incrementalAlterConfigs",
                )
    return outcomes


def _raise_first(outcomes: Mapping[admin.Resource, ApiError | None]) -> None:
    for error in outcomes.values():
        if error is not None:
            raise error


def _s(things: Collection[object]) -> str:
    return "" if len(things) == 1 else "s"
