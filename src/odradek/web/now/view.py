"""What is wrong, since when, why and what to do; the brokers by rack; four numbers. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from odradek.plan.facts import Finding
from odradek.web.facts.cluster import BrokerOverview, ClusterOverview, RackSeen
from odradek.web.facts.doctor import Diagnosis
from odradek.web.facts.poller import FactKey, Facts

CLUSTER = FactKey("cluster")
DOCTOR = FactKey("doctor")
KEYS = (CLUSTER, DOCTOR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One of the numbers at the top; `is_bad` marks one that should be 0, or all."""

    name: str
    value: int | None
    of: int | None = None
    is_bad: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rack:
    """The brokers of a rack; `name` is None without a rack, or if the rack is not known."""

    name: str | None
    is_known: bool = True
    brokers: tuple[BrokerOverview, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NowView:
    """The state of the cluster at a moment."""

    at_ms: int | None
    examined_ms: int | None  # when the doctor looked
    problem: str | None  # why the cluster does not answer
    cluster_id: str | None
    controller: int | None
    figures: tuple[Figure, ...]
    findings: tuple[Finding, ...] | None  # None: not examined yet
    not_examined: dict[str, str]
    racks: tuple[Rack, ...]
    topics: int


def now_view(facts: Facts) -> NowView:
    """The view of these facts."""
    seen, examined = facts.get(CLUSTER), facts.get(DOCTOR)
    cluster: ClusterOverview | None = seen.value if seen else None
    diagnosis: Diagnosis | None = examined.value if examined else None
    return NowView(
        at_ms=seen.at_ms if seen else None,
        examined_ms=examined.at_ms if examined and diagnosis else None,
        problem=(seen.problem if seen else None) or (cluster.problem if cluster else None),
        cluster_id=cluster.cluster_id if cluster else None,
        controller=cluster.controller if cluster else None,
        figures=_figures(cluster, diagnosis),
        findings=diagnosis.findings if diagnosis else None,
        not_examined=diagnosis.unknown if diagnosis else {},
        racks=_racks(cluster.brokers) if cluster else (),
        topics=len(cluster.topics) if cluster else 0,
    )


def _figures(cluster: ClusterOverview | None, diagnosis: Diagnosis | None) -> tuple[Figure, ...]:
    if cluster is None:
        return ()
    brokers, found = len(cluster.brokers), diagnosis.findings if diagnosis else None
    return (
        Figure(
            name="brokers registered",
            value=cluster.registered,
            of=brokers,
            is_bad=cluster.registered < brokers,
        ),
        Figure(
            name="partitions without a leader",
            value=cluster.offline,
            of=cluster.partitions,
            is_bad=cluster.offline > 0,
        ),
        Figure(
            name="partitions not fully replicated",
            value=cluster.under_replicated,
            of=cluster.partitions,
            is_bad=cluster.under_replicated > 0,
        ),
        Figure(
            name="findings of the doctor",
            value=None if found is None else len(found),
            is_bad=bool(found),
        ),
    )


def _racks(brokers: Sequence[BrokerOverview]) -> tuple[Rack, ...]:
    unknown = tuple(b for b in brokers if b.rack_seen is RackSeen.NEVER)
    known = [broker for broker in brokers if broker not in unknown]
    names = sorted({broker.rack for broker in known if broker.rack is not None})
    racks = [Rack(name=name, brokers=tuple(b for b in known if b.rack == name)) for name in names]
    rest = tuple(broker for broker in known if broker.rack is None)
    if rest:
        racks.append(Rack(name=None, brokers=rest))
    if unknown:
        racks.append(Rack(name=None, is_known=False, brokers=unknown))
    return tuple(racks)
