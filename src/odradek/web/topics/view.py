"""The list of topics, and one topic: its replicas as lanes, sizes, options, and why. Pure."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from odradek.model.clock import WallMs
from odradek.model.sentence import Sentence
from odradek.web.facts.cluster import ClusterOverview, TopicCounts
from odradek.web.facts.poller import Collected, FactKey, Facts
from odradek.web.facts.topic import PartitionFacts, ReplicaFacts, TopicDetail, TopicOption
from odradek.web.lanes.drawing import SvgText, lanes_svg
from odradek.web.lanes.heat import HeatStrip, PartitionHealth, heat_strip
from odradek.web.lanes.values import LaneMove, LaneRole, PartitionLanes, ReplicaLane
from odradek.web.now.view import CLUSTER
from odradek.web.paging import PAGE_ROWS, rows_of

LANES_MAX = 50  # partitions drawn as lanes; above, a strip, and the lanes of the worst
DRAWN = 20  # lanes below a strip
HISTORY = 50  # decisions shown, the newest


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsView:
    """The topics of the cluster."""

    at_ms: int | None
    problem: str | None
    topics: tuple[TopicCounts, ...]  # of one page of the list, the worst first
    internal: tuple[TopicCounts, ...]
    found: int  # topics with this text in their names, without internal ones
    page: int
    pages: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionView:
    """One partition that is drawn."""

    lanes: PartitionLanes
    size_bytes: int | None  # of the leader's replica
    leader_epoch: int
    svg: SvgText


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicView:
    """A topic with the partitions that are drawn."""

    name: str
    exists: bool
    at_ms: int | None
    problem: str | None
    partitions: tuple[PartitionView, ...]
    count: int
    strip: HeatStrip | None
    size_bytes: int | None
    isr_min: int | None
    options: tuple[TopicOption, ...]
    sentences: tuple[Sentence, ...]
    journal: tuple[Mapping[str, Any], ...]
    is_reported: bool
    problems: Mapping[str, str]
    only: int | None  # the partition that was asked for
    is_rebuilt: bool  # from the journal: not observed, so without offsets


def topics_view(facts: Facts, name: str = "", page: int = 1, limit: int = PAGE_ROWS) -> TopicsView:
    """A page of the topics with this text in their names."""
    seen = facts.get(CLUSTER)
    cluster: ClusterOverview | None = seen.value if seen else None
    topics = [t for t in (cluster.topics if cluster else ()) if name.lower() in t.name.lower()]
    worst_first = sorted(topics, key=lambda t: (-t.offline, -t.under_replicated, t.name))
    found = [topic for topic in worst_first if not topic.is_internal]
    rows = rows_of(found, page, limit)
    return TopicsView(
        at_ms=seen.at_ms if seen else None,
        problem=seen.problem if seen else None,
        topics=rows.shown,
        internal=tuple(topic for topic in worst_first if topic.is_internal),
        found=len(found),
        page=rows.page,
        pages=rows.pages,
        name=name,
    )


def topic_view(facts: Facts, name: str, only: int | None = None) -> TopicView:
    """A topic, or one partition of it."""
    return _view(facts.get(FactKey("topic", name)), name, only, is_rebuilt=False)


def topic_view_at(
    past: Facts, facts: Facts, name: str, at_ms: int, only: int | None = None
) -> TopicView:
    """The topic as it was: as observed then, else leaders and ISRs by the journal."""
    key = FactKey("topic", name)
    if key in past:
        return _view(past[key], name, only, is_rebuilt=False)
    seen = facts.get(key)
    if seen is None or seen.value is None:
        return _view(seen, name, only, is_rebuilt=False)
    rebuilt = Collected(WallMs(at_ms), topic_at(seen.value, at_ms))
    return _view(rebuilt, name, only, is_rebuilt=True)


def topic_at(topic: TopicDetail, at_ms: int) -> TopicDetail:
    """The topic with the leaders and ISRs that the journal has of that moment; no offsets."""
    journal = tuple(entry for entry in topic.journal if entry["at_ms"] <= at_ms)
    led = {e["partition"]: e["after"] for e in journal if e.get("after") is not None}
    return replace(
        topic,
        partitions=tuple(
            _partition_at(partition, led[partition.partition])
            for partition in topic.partitions
            if partition.partition in led
        ),
        options=(),
        sentences=(),
        journal=journal,
    )


def _partition_at(partition: PartitionFacts, led: Mapping[str, Any]) -> PartitionFacts:
    leader = led["leader"] if led["leader"] >= 0 else None
    isr = tuple(led["isr"])
    # Offsets were not observed; a replica that the journal does not name was out of the ISR.
    brokers = dict.fromkeys((*(r.broker for r in partition.replicas), *isr))
    racks = {replica.broker: replica.rack for replica in partition.replicas}
    return PartitionFacts(
        partition=partition.partition,
        leader=leader,
        leader_epoch=led["leader_epoch"],
        isr=isr,
        replicas=tuple(
            ReplicaFacts(
                broker=broker,
                rack=racks.get(broker),
                is_leader=broker == leader,
                in_sync=broker in isr,
            )
            for broker in brokers
        ),
    )


def _view(
    seen: Collected[TopicDetail] | None, name: str, only: int | None, *, is_rebuilt: bool
) -> TopicView:
    topic: TopicDetail | None = seen.value if seen else None
    if topic is None or seen is None:
        topic = TopicDetail(name=name, exists=seen is None or seen.problem is not None, at_ms=0)
    healths = {p.partition: _health(p, topic.isr_min) for p in topic.partitions}
    strip = heat_strip(name, healths.values()) if len(topic.partitions) > LANES_MAX else None
    if only is not None:
        shown = [p for p in topic.partitions if p.partition == only]
    elif strip is not None:
        numbers = [cell.partition for cell in strip.cells[:DRAWN]]
        by_number = {p.partition: p for p in topic.partitions}
        shown = [by_number[number] for number in numbers]
    else:
        shown = list(topic.partitions)
    sizes = [_size(partition) for partition in topic.partitions]
    journal = [e for e in topic.journal if only is None or e["partition"] in (None, only)]
    return TopicView(
        name=name,
        exists=topic.exists,
        at_ms=seen.at_ms if seen else None,
        problem=seen.problem if seen else None,
        partitions=tuple(_drawn(name, partition) for partition in shown),
        count=len(topic.partitions),
        strip=strip,
        size_bytes=None if None in sizes else sum(size for size in sizes if size is not None),
        isr_min=topic.isr_min,
        options=topic.options,
        sentences=tuple(_sentences_of(topic, only)),
        journal=tuple(journal[: -HISTORY - 1 : -1]),
        is_reported=topic.is_reported,
        problems=topic.problems,
        only=only,
        is_rebuilt=is_rebuilt,
    )


def _sentences_of(topic: TopicDetail, only: int | None) -> Iterator[Sentence]:
    """Those about the topic or, of its partitions, about this one."""
    heading = re.compile(rf"{re.escape(topic.name)}-(\d+)\b")
    about: int | None = None
    for sentence in topic.sentences:
        if found := heading.match(str(sentence)):
            about = int(found[1])
        if only is None or about in (None, only):
            yield sentence


def _health(partition: PartitionFacts, isr_min: int | None) -> PartitionHealth:
    target = [r for r in partition.replicas if r.broker not in partition.removing]
    return PartitionHealth(
        partition=partition.partition,
        replicas=len(target),
        in_sync=sum(replica.in_sync for replica in target),
        min_isr=isr_min,
        has_leader=partition.leader is not None,
        is_preferred=partition.leader == partition.replicas[0].broker,
        is_moving=bool(partition.adding or partition.removing),
    )


def _size(partition: PartitionFacts) -> int | None:
    known = [r.size_bytes for r in partition.replicas if r.size_bytes is not None]
    led = [r.size_bytes for r in partition.replicas if r.is_leader and r.size_bytes is not None]
    return led[0] if led else max(known, default=None)


def _drawn(topic: str, partition: PartitionFacts) -> PartitionView:
    lanes = lanes_of(topic, partition)
    return PartitionView(
        lanes=lanes,
        size_bytes=_size(partition),
        leader_epoch=partition.leader_epoch,
        svg=lanes_svg(lanes),
    )


def lanes_of(topic: str, partition: PartitionFacts) -> PartitionLanes:
    """The lanes of one partition."""
    ends = [replica.leo for replica in partition.replicas if replica.leo is not None]
    end = max(ends, default=None)
    return PartitionLanes(
        topic=topic,
        partition=partition.partition,
        lanes=tuple(_lane(partition, replica, end) for replica in partition.replicas),
    )


def _lane(partition: PartitionFacts, replica: ReplicaFacts, end: int | None) -> ReplicaLane:
    if replica.is_offline:
        role = LaneRole.OFFLINE
    else:
        role = LaneRole.LEADER if replica.is_leader else LaneRole.FOLLOWER
    move = None
    if replica.broker in partition.adding:
        move = LaneMove.ADDING
    elif replica.broker in partition.removing:
        move = LaneMove.REMOVING
    copy = replica.copy
    return ReplicaLane(
        broker=replica.broker,
        role=role,
        rack=replica.rack,
        move=move,
        in_sync=replica.in_sync,
        leo=replica.leo,
        high_watermark=replica.high_watermark,
        last_stable_offset=replica.last_stable_offset,
        log_start_offset=replica.log_start_offset,
        leader_epoch=replica.leader_epoch,
        reason="; ".join(filter(None, (_reason(partition, replica, end), _moment(replica)))),
        bytes_left=copy.left_bytes if copy else None,
        bytes_per_s=copy.bytes_per_s if copy else None,
        seconds_left=copy.seconds_left if copy else None,
    )


def _reason(partition: PartitionFacts, replica: ReplicaFacts, end: int | None) -> str:
    """Why the replica is not in sync; "" if it is."""
    if replica.in_sync and not replica.is_offline:
        return ""
    if not replica.is_registered:
        return f"broker {replica.broker} is not registered"
    if replica.is_offline:
        return f"its log directory on broker {replica.broker} is offline"
    if partition.leader is None:
        return "the partition has no leader to fetch from"
    if replica.broker in partition.adding:
        return "it is being copied to this broker"
    return _lag(partition, replica, end)


def _moment(replica: ReplicaFacts) -> str:
    """Which other moment than the rest of the picture the offsets of a replica are of."""
    if replica.apart_ms is None or replica.is_offline:
        return ""
    when = "after" if replica.apart_ms > 0 else "before"
    return f"offsets of its own report, {abs(replica.apart_ms) / 1000:.1f} s {when} the leader's"


def _lag(partition: PartitionFacts, replica: ReplicaFacts, end: int | None) -> str:
    if replica.fetched_ms_ago is None:
        return f"no fetch is known since broker {partition.leader} leads"
    missing = "" if end is None or replica.leo is None else f", {end - replica.leo} records behind"
    return f"it fetched last {replica.fetched_ms_ago / 1000:.1f} s ago{missing}"
