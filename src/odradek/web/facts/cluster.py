"""The brokers and topics of a cluster, from one Metadata response and the processes here."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from odradek.model.errors import ErrorCode, OdradekError
from odradek.model.names import INTERNAL_TOPICS
from odradek.web.facts.source import Source
from odradek.wire.messages.metadata import MetadataResponse, MetadataResponseTopic


class RackSeen(StrEnum):
    """When a broker's rack was seen: only metadata with the broker has it."""

    NOW = "now"
    BEFORE = "before"  # when the broker was last registered
    NEVER = "never"  # it was not registered since the page began to ask: its rack is not known


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOverview:
    """A broker: registered, or only named as a replica, or only a process on this machine."""

    id: int
    is_registered: bool
    host: str | None = None
    port: int | None = None
    rack: str | None = None
    rack_seen: RackSeen = RackSeen.NOW
    process: str | None = None  # running, paused, killed ... of a broker on this machine
    why: str = ""  # why its process does not serve, if that is known
    leads: int = 0
    replicas: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCounts:
    """The partitions of a topic, counted."""

    name: str
    is_internal: bool
    partitions: int
    replication_factor: int  # of most partitions
    offline: int
    under_replicated: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOverview:
    """The cluster as its metadata shows it."""

    cluster_id: str | None
    controller: int | None
    brokers: tuple[BrokerOverview, ...]
    topics: tuple[TopicCounts, ...]
    problem: str | None = None  # why no broker answers; the rest is then as it was before

    @property
    def registered(self) -> int:
        return sum(broker.is_registered for broker in self.brokers)

    @property
    def partitions(self) -> int:
        return sum(topic.partitions for topic in self.topics)

    @property
    def offline(self) -> int:
        return sum(topic.offline for topic in self.topics)

    @property
    def under_replicated(self) -> int:
        return sum(topic.under_replicated for topic in self.topics)


async def collect_cluster(
    source: Source, _argument: str, before: ClusterOverview | None
) -> ClusterOverview:
    """The cluster now; if no broker answers, as it was, with the present processes.

    Raises:
        OdradekError, ConnectionError: no broker has answered yet.
    """
    caller = await asyncio.to_thread(source.caller)
    try:
        response = await source.metadata(None)
    except (OdradekError, ConnectionError) as error:
        if before is None:
            raise
        brokers = tuple(
            replace(broker, process=caller.local.get(broker.id), why=caller.process(broker.id))
            for broker in before.brokers
        )
        return replace(before, brokers=brokers, problem=str(error))
    return state_of(
        response,
        dict(caller.local),
        {id_: caller.process(id_) for id_ in caller.local},
        before.brokers if before else (),
    )


def state_of(
    response: MetadataResponse,
    processes: dict[int, str],
    whys: dict[int, str],
    before: Iterable[BrokerOverview] = (),
) -> ClusterOverview:
    """Counts what a Metadata response names; a broker that it does not name keeps its rack."""
    racks_before = {b.id: b.rack for b in before if b.rack_seen is not RackSeen.NEVER}
    named = {broker.node_id: broker for broker in response.brokers}
    leads: dict[int, int] = {}
    replicas: dict[int, int] = {}
    topics = []
    for topic in response.topics:
        if topic.name is None or topic.error_code not in (0, ErrorCode.LEADER_NOT_AVAILABLE):
            continue
        topics.append(_topic(topic, topic.name))
        for partition in topic.partitions:
            if partition.leader_id >= 0:
                leads[partition.leader_id] = leads.get(partition.leader_id, 0) + 1
            for broker_id in partition.replica_nodes:
                replicas[broker_id] = replicas.get(broker_id, 0) + 1
    brokers = []
    for id_ in sorted(named.keys() | replicas.keys() | processes.keys()):
        broker = named.get(id_)
        seen = RackSeen.BEFORE if id_ in racks_before else RackSeen.NEVER
        brokers.append(
            BrokerOverview(
                id=id_,
                is_registered=broker is not None,
                host=broker.host if broker else None,
                port=broker.port if broker else None,
                rack=broker.rack if broker else racks_before.get(id_),
                rack_seen=RackSeen.NOW if broker else seen,
                process=processes.get(id_),
                why=whys.get(id_, ""),
                leads=leads.get(id_, 0),
                replicas=replicas.get(id_, 0),
            )
        )
    controller = response.controller_id
    return ClusterOverview(
        cluster_id=response.cluster_id,
        controller=controller if controller >= 0 else None,
        brokers=tuple(brokers),
        topics=tuple(sorted(topics, key=lambda topic: topic.name)),
    )


def _topic(topic: MetadataResponseTopic, name: str) -> TopicCounts:
    counts = [len(partition.replica_nodes) for partition in topic.partitions]
    return TopicCounts(
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        partitions=len(topic.partitions),
        replication_factor=max(set(counts), key=counts.count) if counts else 0,
        offline=sum(partition.leader_id < 0 for partition in topic.partitions),
        under_replicated=sum(len(p.isr_nodes) < len(p.replica_nodes) for p in topic.partitions),
    )
