"""A broker, its log directories, and the partitions that depend on it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from odradek.model.partition import TopicPartition
from odradek.plan.cluster import ClusterPicture
from odradek.web.facts.broker import BrokerDetail, DirectoryFacts, DiskSample
from odradek.web.facts.cluster import BrokerOverview, ClusterOverview
from odradek.web.facts.poller import FactKey, Facts
from odradek.web.now.view import CLUSTER

SHOWN: Final = 50  # partitions named for each consequence
TREND_MS_MIN: Final = 60_000  # a shorter time shows noise


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskView:
    """A log directory; `full_in_s` is None while the disk does not fill up, or is not known."""

    path: str
    is_offline: bool
    replicas: int
    held_bytes: int
    total_bytes: int | None
    usable_bytes: int | None
    used_percent: float | None
    fills_bytes_per_s: float | None
    full_in_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Consequence:
    """What happens to some partitions if the broker fails now."""

    kind: str
    text: str
    count: int
    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerView:
    """A broker as the page shows it."""

    id: int
    at_ms: int | None
    problem: str | None
    broker: BrokerOverview | None
    is_controller: bool
    disks: tuple[DiskView, ...]
    consequences: tuple[Consequence, ...]
    reported: tuple[tuple[str, str], ...]
    problems: dict[str, str]


def keys(broker: int) -> tuple[FactKey, ...]:
    return CLUSTER, FactKey("broker", str(broker))


def broker_view(facts: Facts, number: int) -> BrokerView:
    seen, detailed = facts.get(CLUSTER), facts.get(keys(number)[1])
    cluster: ClusterOverview | None = seen.value if seen else None
    detail: BrokerDetail | None = detailed.value if detailed else None
    found = [b for b in cluster.brokers if b.id == number] if cluster else []
    return BrokerView(
        id=number,
        at_ms=detailed.at_ms if detailed else None,
        problem=(seen.problem if seen else None) or (detailed.problem if detailed else None),
        broker=found[0] if found else None,
        is_controller=cluster is not None and cluster.controller == number,
        disks=tuple(map(disk_view, detail.directories)) if detail else (),
        consequences=consequences(detail.picture, number) if detail and detail.picture else (),
        reported=_reported(detail.report) if detail and detail.report else (),
        problems=dict(detail.problems) if detail else {},
    )


def disk_view(directory: DirectoryFacts) -> DiskView:
    """A log directory with the trend of its disk."""
    fills = _fills_bytes_per_s(directory.samples)
    total, usable = directory.total_bytes, directory.usable_bytes
    return DiskView(
        path=directory.path,
        is_offline=directory.is_offline,
        replicas=directory.replicas,
        held_bytes=directory.held_bytes,
        total_bytes=total,
        usable_bytes=usable,
        used_percent=100 * (total - usable) / total if total and usable is not None else None,
        fills_bytes_per_s=fills,
        full_in_s=usable / fills
        if usable is not None and fills is not None and fills > 0
        else None,
    )


def _fills_bytes_per_s(samples: Sequence[DiskSample]) -> float | None:
    """The slope of the used bytes, by least squares; None if too little is known."""
    if len(samples) < 2 or samples[-1].at_ms - samples[0].at_ms < TREND_MS_MIN:
        return None
    begin_ms = samples[0].at_ms
    points = [((s.at_ms - begin_ms) / 1000, float(s.usable_bytes)) for s in samples]
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return -sum((x - mean_x) * (y - mean_y) for x, y in points) / spread


def consequences(picture: ClusterPicture, broker: int) -> tuple[Consequence, ...]:
    """What happens to partitions if this broker fails now, the worst first."""
    offline: list[TopicPartition] = []
    refused: list[TopicPartition] = []
    elected: list[TopicPartition] = []
    reduced: list[TopicPartition] = []
    for partition, held in picture.partitions.items():
        if broker not in held.brokers:
            continue
        left = [id_ for id_ in held.in_sync if id_ != broker]
        if not left:
            offline.append(partition)
        elif broker in held.in_sync and len(left) < picture.isr_min.get(partition.topic, 1):
            refused.append(partition)
        elif held.leader == broker:
            elected.append(partition)
        else:
            reduced.append(partition)
    return tuple(
        Consequence(
            kind=kind,
            text=one if len(found) == 1 else many,
            count=len(found),
            partitions=tuple(str(partition) for partition in sorted(found)[:SHOWN]),
        )
        for kind, one, many, found in (
            (
                "offline",
                "partition has no other replica in sync: it goes offline",
                "partitions have no other replica in sync: they go offline",
                offline,
            ),
            (
                "under-min-isr",
                "partition falls below min.insync.replicas: acks=all is refused",
                "partitions fall below min.insync.replicas: acks=all is refused",
                refused,
            ),
            ("election", "partition gets another leader", "partitions get another leader", elected),
            (
                "under-replicated",
                "partition has one replica less",
                "partitions have one replica less",
                reduced,
            ),
        )
        if found
    )


def _reported(report: Any) -> tuple[tuple[str, str], ...]:
    """What a broker of Odradek says of itself, as lines."""
    cleaner = report.get("cleaner", {})
    lines = [
        ("state", str(report.get("state"))),
        ("version", str(report.get("version"))),
        ("listeners", ", ".join(report.get("bound", ()))),
        ("compacted logs", str(cleaner.get("compacted_logs", 0))),
        ("logs that the cleaner has given up", str(len(cleaner.get("given_up", ())))),
        ("refused clients", str(len(report.get("refusals", ())))),
    ]
    unknown = (("unknown option", option["name"]) for option in report.get("unknown_options", ()))
    return (*lines, *unknown)
