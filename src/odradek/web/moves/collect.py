"""What moves now: running reassignments with their bytes, throttles, and the saved plan."""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from odradek.client.admin.partitions import (
    PartitionReassignment,
    list_reassignments,
)
from odradek.client.cluster import Cluster
from odradek.model.clock import WallMs
from odradek.model.partition import TopicPartition
from odradek.net.clock import real_wall_ms
from odradek.plan.collect import throttles_of
from odradek.plan.movement import PlanError
from odradek.web.facts.copies import CopyFacts, copy_facts, whole_bytes
from odradek.web.facts.log_dirs import replicas_in_log_dirs
from odradek.web.facts.source import Source
from odradek.web.facts.topic import PartitionFacts, collect_topic
from odradek.web.moves.saved import SavedPlan, load_newest, moves_directory, newest_path

THROTTLES_PERIOD_MS: Final = 4_000  # while something moves, or is throttled
QUIET_PERIOD_MS: Final = 30_000  # else: the configuration of every topic is read
DRAWN_TOPICS: Final = 2  # moving topics whose replicas are collected for their lanes


@dataclass(frozen=True, slots=True, kw_only=True)
class MovingPartition:
    """A reassignment in progress, with its copies."""

    partition: TopicPartition
    leader: int | None
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    leader_bytes: int | None
    copies: tuple[CopyFacts, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MovesFacts:
    """Everything about moves that the cluster and the saved plan show."""

    at_ms: int
    moving: tuple[MovingPartition, ...] = ()
    broker_throttles: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    topic_throttles: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    throttles_at_ms: int = 0
    saved: SavedPlan | None = None
    unfinished: tuple[TopicPartition, ...] = ()  # of the saved plan: not as planned
    folder: str = ""
    drawn: Mapping[TopicPartition, PartitionFacts] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)


async def collect_moves(source: Source, _argument: str, before: MovesFacts | None) -> MovesFacts:
    """The moves now.

    Raises:
        OdradekError, ConnectionError: no broker answers.
    """
    cluster = await source.cluster()
    moves = await list_reassignments(cluster)
    wall_ms = real_wall_ms()
    problems: dict[str, str] = {}
    saved = await _saved(cluster, source, before, problems)
    planned = saved.after if saved is not None and not saved.is_done else ()
    is_due = _is_due(before, wall_ms, is_moving=bool(moves))
    watched = sorted({partition.topic for partition in (*moves, *planned)})
    response = await source.metadata(None if is_due else watched)
    sizes = await _sizes(cluster, moves, problems)
    replicas = {
        TopicPartition(topic.name, p.partition_index): tuple(p.replica_nodes)
        for topic in response.topics
        if topic.name is not None
        for p in topic.partitions
    }
    throttles = _kept_throttles(before)
    if is_due:
        named = {partition.topic for partition in replicas}
        throttles = (*await _throttles(cluster, named), wall_ms)
    return MovesFacts(
        at_ms=wall_ms,
        moving=_moving(cluster, moves, sizes, before, wall_ms),
        broker_throttles=throttles[0],
        topic_throttles=throttles[1],
        throttles_at_ms=throttles[2],
        saved=saved,
        unfinished=_unfinished(saved, replicas, moves),
        folder=str(moves_directory(source.directory)),
        drawn=await _drawn(source, moves),
        problems=problems,
    )


async def _saved(
    cluster: Cluster, source: Source, before: MovesFacts | None, problems: dict[str, str]
) -> SavedPlan | None:
    folder, cluster_id = moves_directory(source.directory), cluster.metadata.cluster_id
    path = await asyncio.to_thread(newest_path, folder, cluster_id)
    known = before.saved if before else None
    if known is not None and known.path == path:
        return known
    try:
        return await asyncio.to_thread(load_newest, folder, cluster_id)
    except PlanError as error:
        problems["saved plan"] = str(error)
        return None


def _unfinished(
    saved: SavedPlan | None,
    replicas: Mapping[TopicPartition, tuple[int, ...]],
    moves: Collection[TopicPartition],
) -> tuple[TopicPartition, ...]:
    if saved is None or saved.is_done:
        return ()
    # While a replica is only added, the assignment is the target's already (KIP-455).
    return tuple(
        sorted(p for p, held in saved.after.items() if p in moves or replicas.get(p, held) != held)
    )


async def _sizes(
    cluster: Cluster,
    moves: Mapping[TopicPartition, PartitionReassignment],
    problems: dict[str, str],
) -> dict[tuple[TopicPartition, int], int]:
    """The size of each replica of the moving partitions, by partition and broker."""
    held: dict[int, list[TopicPartition]] = {}
    for partition, move in sorted(moves.items()):
        for broker in move.replicas:
            held.setdefault(broker, []).append(partition)
    found = await replicas_in_log_dirs(cluster, held, problems)
    return {key: replica.size_bytes for key, replica in found.items()}


BrokerThrottles = Mapping[int, Mapping[str, str]]
TopicThrottles = Mapping[str, Mapping[str, str]]


def _is_due(before: MovesFacts | None, wall_ms: WallMs, *, is_moving: bool) -> bool:
    """Whether throttles are read: less often than the rest, because every topic is described."""
    if before is None:
        return True
    is_busy = is_moving or before.moving or before.broker_throttles or before.topic_throttles
    return wall_ms - before.throttles_at_ms >= (THROTTLES_PERIOD_MS if is_busy else QUIET_PERIOD_MS)


def _kept_throttles(before: MovesFacts | None) -> tuple[BrokerThrottles, TopicThrottles, int]:
    if before is None:
        return {}, {}, 0
    return before.broker_throttles, before.topic_throttles, before.throttles_at_ms


async def _throttles(
    cluster: Cluster, topics: Iterable[str]
) -> tuple[BrokerThrottles, TopicThrottles]:
    brokers, named = await throttles_of(cluster, sorted(cluster.metadata.nodes), sorted(topics))
    return (
        {broker: options for broker, options in brokers.items() if options},
        {name: options for name, options in named.items() if options},
    )


def _moving(
    cluster: Cluster,
    moves: Mapping[TopicPartition, PartitionReassignment],
    sizes: Mapping[tuple[TopicPartition, int], int],
    before: MovesFacts | None,
    wall_ms: WallMs,
) -> tuple[MovingPartition, ...]:
    former = {
        (each.partition, copy.broker): copy
        for each in (before.moving if before else ())
        for copy in each.copies
    }
    past_s = (wall_ms - before.at_ms) / 1000 if before else 0.0
    found = []
    for partition, move in sorted(moves.items()):
        leader = cluster.metadata.leader(partition)
        whole = whole_bytes({b: sizes.get((partition, b)) for b in move.replicas}, leader)
        found.append(
            MovingPartition(
                partition=partition,
                leader=leader if leader >= 0 else None,
                replicas=move.replicas,
                adding=move.adding,
                removing=move.removing,
                leader_bytes=whole,
                copies=tuple(
                    copy_facts(
                        broker,
                        sizes.get((partition, broker)),
                        whole,
                        former.get((partition, broker)),
                        past_s,
                    )
                    for broker in move.adding
                ),
            )
        )
    return tuple(found)


async def _drawn(
    source: Source, moves: Iterable[TopicPartition]
) -> dict[TopicPartition, PartitionFacts]:
    """The replicas of the moving partitions of a few topics."""
    moving = sorted(moves)
    topics = list(dict.fromkeys(partition.topic for partition in moving))[:DRAWN_TOPICS]
    found = {}
    for topic in topics:
        detail = await collect_topic(source, topic, None)
        for partition in detail.partitions:
            name = TopicPartition(topic, partition.partition)
            if name in moving:
                found[name] = partition
    return found
