"""The replicas of a topic: from the reports of Odradek's brokers, else from what the wire gives.

Apache Kafka's brokers report the high watermark, the log start and the last stable offset
(ListOffsets), and of each replica its size and how far its LEO is behind or ahead of the high
watermark (DescribeLogDirs). The leader's LEO is then not known.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from typing import Any, Final

from odradek.client.admin.partitions import (
    PartitionReassignment,
    list_reassignments,
)
from odradek.client.admin.topics import TOPIC, ConfigEntry, describe_configs
from odradek.client.cluster import Cluster
from odradek.client.fetch.offsets import EARLIEST, LATEST, ListedOffset, try_to_list_offsets
from odradek.explain.collected import picture_of
from odradek.explain.reports import Asked
from odradek.explain.sentences import explain_topic
from odradek.model.clock import WallMs
from odradek.model.errors import ApiError, ErrorCode
from odradek.model.partition import TopicPartition
from odradek.model.sentence import Sentence
from odradek.net.clock import real_wall_ms
from odradek.web.facts.attempt import attempt
from odradek.web.facts.copies import CopyFacts, copy_facts, whole_bytes
from odradek.web.facts.log_dirs import replicas_in_log_dirs
from odradek.web.facts.moment import LeaderMoment, ReportedReplicas, replicas_at_one_moment
from odradek.web.facts.source import Source
from odradek.wire.messages.metadata import MetadataResponsePartition, MetadataResponseTopic

CONFIG_PERIOD_MS: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaFacts:
    """A replica of a partition; None is not known."""

    broker: int
    rack: str | None = None
    is_leader: bool = False
    is_registered: bool = True
    is_offline: bool = False  # not registered, or its log directory failed
    in_sync: bool = False
    leo: int | None = None
    high_watermark: int | None = None
    last_stable_offset: int | None = None
    log_start_offset: int | None = None
    leader_epoch: int | None = None
    size_bytes: int | None = None
    caught_up_ms_ago: int | None = None
    fetched_ms_ago: int | None = None
    # Of a replica that its leader's report has nothing of: its own was received so long after it.
    apart_ms: int | None = None
    copy: CopyFacts | None = None  # while it is added by a reassignment


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFacts:
    """A partition with its replicas, in the order of the assignment."""

    partition: int
    leader: int | None
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[ReplicaFacts, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOption:
    """An option of the topic, and where its value comes from."""

    name: str
    value: str | None
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDetail:
    """A topic; `exists` is false if the cluster has none of this name."""

    name: str
    exists: bool
    at_ms: int
    partitions: tuple[PartitionFacts, ...] = ()
    isr_min: int | None = None
    options: tuple[TopicOption, ...] = ()
    options_at_ms: WallMs = WallMs(0)
    sentences: tuple[Sentence, ...] = ()  # why it is as it is
    journal: tuple[Mapping[str, Any], ...] = ()
    is_reported: bool = False  # by Odradek's brokers
    problems: Mapping[str, str] = field(default_factory=dict)


async def collect_topic(source: Source, name: str, before: TopicDetail | None) -> TopicDetail:
    """The topic now.

    Raises:
        OdradekError, ConnectionError: no broker answers.
    """
    cluster = await source.cluster()
    response = await source.metadata([name])
    now_ms = real_wall_ms()
    found = next((topic for topic in response.topics if topic.name == name), None)
    if found is None or found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return TopicDetail(name=name, exists=False, at_ms=now_ms)
    # The metadata of a topic names a broker until 5 s after its end; without a topic, not.
    brokers = (await source.metadata(())).brokers
    racks = {broker.node_id: broker.rack for broker in brokers}
    query = {"topic": name}
    asked = await source.ask(
        {"replicas": query, "controller": query, "journal": query, "broker": {}}
    )
    problems: dict[str, str] = {}
    moves = await attempt(problems, "moves", list_reassignments(cluster), {})
    names = [TopicPartition(name, p.partition_index) for p in found.partitions]
    held = await replicas_in_log_dirs(cluster, dict.fromkeys(racks, names), problems)
    sizes = {(p.partition, broker): replica.size_bytes for (p, broker), replica in held.items()}
    lags = {(p.partition, broker): replica.offset_lag for (p, broker), replica in held.items()}
    reports = asked.by_broker("replicas")
    if reports:
        epochs = {p.partition_index: p.leader_epoch for p in found.partitions}
        offsets = replicas_at_one_moment(reports, asked.received_ms, epochs)
    else:
        listed = await _listed(cluster, names, found.partitions, lags, problems)
        offsets = ReportedReplicas(listed, {})
    if before is None or now_ms - before.options_at_ms > CONFIG_PERIOD_MS:
        options, options_at_ms = await _options(cluster, name, problems), now_ms
    else:
        options, options_at_ms = before.options, before.options_at_ms
    copies = _copies(moves, found, sizes, before, now_ms)
    isr_min = next((o.value for o in options if o.name == "min.insync.replicas"), None)
    return TopicDetail(
        name=name,
        exists=True,
        at_ms=now_ms,
        partitions=tuple(
            _partition(
                p, offsets, sizes, racks, moves.get(TopicPartition(name, p.partition_index)), copies
            )
            for p in sorted(found.partitions, key=lambda p: p.partition_index)
        ),
        isr_min=int(isr_min) if isr_min and isr_min.isdecimal() else None,
        options=options,
        options_at_ms=options_at_ms,
        sentences=_sentences(asked, name),
        journal=tuple(entry for entry in asked.journal if entry.get("topic") == name),
        is_reported=bool(reports),
        problems=problems,
    )


def _sentences(asked: Asked, name: str) -> tuple[Sentence, ...]:
    if not asked.by_broker("controller"):
        return ()
    lines = explain_topic(picture_of(asked, real_wall_ms()), name)
    return tuple(takewhile(bool, lines))


async def _try_to_list(
    cluster: Cluster, names: list[TopicPartition], at: int, *, reads_committed: bool = False
) -> Mapping[TopicPartition, ListedOffset | ApiError]:
    return await try_to_list_offsets(
        cluster, dict.fromkeys(names, at), reads_committed=reads_committed
    )


async def _listed(
    cluster: Cluster,
    names: list[TopicPartition],
    partitions: Iterable[MetadataResponsePartition],
    lags: Mapping[tuple[int, int], int],
    problems: dict[str, str],
) -> dict[tuple[int, int], Mapping[str, Any]]:
    """The offsets that Apache Kafka's brokers report."""
    leaders = {p.partition_index: p.leader_id for p in partitions}
    led = [name for name in names if leaders[name.partition] >= 0]
    listed = partial(_try_to_list, cluster, led)
    highs, starts, stables = await asyncio.gather(
        attempt(problems, "offsets", listed(LATEST), {}),
        attempt(problems, "offsets", listed(EARLIEST), {}),
        attempt(problems, "offsets", listed(LATEST, reads_committed=True), {}),
    )
    found: dict[tuple[int, int], Mapping[str, Any]] = {}
    for name in led:
        leader = leaders[name.partition]
        high = _offset(highs, name)
        found[name.partition, leader] = {
            "high_watermark": high,
            "log_start_offset": _offset(starts, name),
            "last_stable_offset": _offset(stables, name),
        }
        for (number, broker), lag in lags.items():
            if number == name.partition and broker != leader and high is not None:
                # Replicas report max(HW - LEO, 0): with 0 the LEO is the HW or more.
                found[number, broker] = {"leo": high - lag if lag > 0 else high}
    return found


def _offset(
    found: Mapping[TopicPartition, ListedOffset | ApiError], name: TopicPartition
) -> int | None:
    listed = found.get(name)
    return listed.offset if isinstance(listed, ListedOffset) else None


async def _options(
    cluster: Cluster, name: str, problems: dict[str, str]
) -> tuple[TopicOption, ...]:
    described = await attempt(
        problems, "configuration", describe_configs(cluster, [(TOPIC, name)]), {}
    )
    entries: list[ConfigEntry] | ApiError = described.get((TOPIC, name), [])
    if isinstance(entries, ApiError):
        problems["configuration"] = str(entries)
        return ()
    return tuple(
        TopicOption(name=e.name, value=e.value, source=e.source.lower().replace("_", " "))
        for e in sorted(entries, key=lambda e: e.name)
    )


def _copies(
    moves: Mapping[TopicPartition, PartitionReassignment],
    topic: MetadataResponseTopic,
    sizes: Mapping[tuple[int, int], int],
    before: TopicDetail | None,
    wall_ms: WallMs,
) -> dict[tuple[int, int], CopyFacts]:
    """The replicas that are being copied, by partition and broker."""
    former = {
        (partition.partition, replica.broker): replica.copy
        for partition in (before.partitions if before else ())
        for replica in partition.replicas
    }
    past_s = (wall_ms - before.at_ms) / 1000 if before else 0.0
    leaders = {partition.partition_index: partition.leader_id for partition in topic.partitions}
    found = {}
    for name, move in moves.items():
        number = name.partition
        if name.topic != topic.name or number not in leaders:
            continue
        whole = whole_bytes(
            {broker: sizes.get((number, broker)) for broker in move.replicas}, leaders[number]
        )
        for broker in move.adding:
            held = sizes.get((number, broker))
            found[number, broker] = copy_facts(
                broker, held, whole, former.get((number, broker)), past_s
            )
    return found


def _partition(
    partition: MetadataResponsePartition,
    offsets: ReportedReplicas,
    sizes: Mapping[tuple[int, int], int],
    racks: Mapping[int, str | None],
    move: PartitionReassignment | None,
    copies: Mapping[tuple[int, int], CopyFacts],
) -> PartitionFacts:
    number = partition.partition_index
    led = offsets.leaders.get(number) or LeaderMoment(
        partition.leader_id, partition.leader_epoch, tuple(partition.isr_nodes)
    )
    replicas = []
    for broker in partition.replica_nodes:
        known = offsets.offsets.get((number, broker), {})
        replicas.append(
            ReplicaFacts(
                broker=broker,
                rack=racks.get(broker),
                is_leader=broker == led.broker,
                is_registered=broker in racks,
                is_offline=broker not in racks or broker in partition.offline_replicas,
                in_sync=broker in led.isr,
                leo=known.get("leo"),
                high_watermark=known.get("high_watermark"),
                last_stable_offset=known.get("last_stable_offset"),
                log_start_offset=known.get("log_start_offset"),
                leader_epoch=known.get("leader_epoch"),
                size_bytes=sizes.get((number, broker)),
                caught_up_ms_ago=known.get("caught_up_ms_ago"),
                fetched_ms_ago=known.get("fetched_ms_ago"),
                apart_ms=known.get("apart_ms"),
                copy=copies.get((number, broker)),
            )
        )
    return PartitionFacts(
        partition=number,
        leader=led.broker if led.broker >= 0 else None,
        leader_epoch=led.leader_epoch,
        isr=led.isr,
        replicas=tuple(replicas),
        adding=move.adding if move else (),
        removing=move.removing if move else (),
    )
