"""What happened: the decisions of all controllers, or what two observations of a cluster differ in.

Brokers of Odradek keep a journal. Of other clusters only the differences between two polls are
known, and nothing from before the page was first opened.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from odradek.net.clock import real_wall_ms
from odradek.web.facts.cluster import ClusterOverview, collect_cluster
from odradek.web.facts.source import Source

ENTRIES_MAX: Final = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """Something that happened, and whether a broker reported it or two polls showed it."""

    at_ms: int
    says: str
    kind: str
    topic: str | None = None
    broker: int | None = None
    by: int | None = None  # the broker whose journal has it; None: seen by polling


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterHistory:
    """What happened, the oldest first; `begins_ms`: since when nothing is missing."""

    happenings: tuple[Happening, ...]
    begins_ms: int
    is_reported: bool
    last: ClusterOverview | None = None  # the last observation


async def collect_journal(
    source: Source, _argument: str, before: ClusterHistory | None
) -> ClusterHistory:
    """What happened up to now.

    Raises:
        OdradekError, ConnectionError: no broker answers.
    """
    asked = await source.ask({"journal": {}})
    journals = asked.by_broker("journal")
    if journals:
        return ClusterHistory(
            happenings=tuple(happening_of(entry) for entry in asked.journal[-ENTRIES_MAX:]),
            begins_ms=min(journal["begins_ms"] for journal in journals.values()),
            is_reported=True,
        )
    now_ms = real_wall_ms()
    cluster = await collect_cluster(source, "", before.last if before else None)
    if before is None or before.last is None:
        return ClusterHistory(happenings=(), begins_ms=now_ms, is_reported=False, last=cluster)
    seen = tuple(differences(before.last, cluster, now_ms))
    return ClusterHistory(
        happenings=(*before.happenings, *seen)[-ENTRIES_MAX:],
        begins_ms=before.begins_ms,
        is_reported=False,
        last=cluster,
    )


def happening_of(entry: Mapping[str, Any]) -> Happening:
    """An entry of a broker's journal; a decision about a broker begins with its id there."""
    is_of_broker = entry["says"].startswith(f"{entry.get('broker')}: ")
    return Happening(
        at_ms=entry["at_ms"],
        says=f"broker {entry['says']}" if is_of_broker else entry["says"],
        kind=entry["verdict"] or "NOTE",
        topic=entry.get("topic"),
        broker=entry.get("broker"),
        by=entry.get("by"),
    )


def differences(old: ClusterOverview, new: ClusterOverview, at_ms: int) -> Iterator[Happening]:
    """What changed between two observations."""
    if old.controller != new.controller:
        says = f"the controller is broker {new.controller}, and was broker {old.controller}"
        yield Happening(at_ms=at_ms, says=says, kind="CONTROLLER", broker=new.controller)
    was = {b.id for b in old.brokers if b.is_registered}
    now = {b.id for b in new.brokers if b.is_registered}
    for id_ in sorted(was - now):
        says = f"broker {id_} is no longer registered"
        yield Happening(at_ms=at_ms, says=says, kind="BROKER_GONE", broker=id_)
    for id_ in sorted(now - was):
        says = f"broker {id_} is registered"
        yield Happening(at_ms=at_ms, says=says, kind="BROKER_JOINED", broker=id_)
    before = {topic.name: topic for topic in old.topics}
    for topic in new.topics:
        earlier = before.pop(topic.name, None)
        if earlier is None:
            says = f"topic {topic.name} exists"
            yield Happening(at_ms=at_ms, says=says, kind="TOPIC_CREATED", topic=topic.name)
            continue
        for name, kind in (("offline", "OFFLINE"), ("under_replicated", "UNDER_REPLICATED"),
                           ("partitions", "PARTITIONS")):  # fmt: skip
            one, other = getattr(earlier, name), getattr(topic, name)
            if one != other:
                words = (
                    "partitions" if name == "partitions" else f"partitions {name}".replace("_", "-")
                )
                says = f"topic {topic.name} has {other} {words}, and had {one}"
                yield Happening(at_ms=at_ms, says=says, kind=kind, topic=topic.name)
    for name in sorted(before):
        says = f"topic {name} does not exist any more"
        yield Happening(at_ms=at_ms, says=says, kind="TOPIC_DELETED", topic=name)
