"""The doctor's rules on brokers that run and are cut off from the coordination store."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from odradek.model.sentence import Sentence, sentence
from odradek.plan.commands import brokers
from odradek.plan.facts import ClusterFacts, Finding, Severity

_EMBEDDED: Final = "the embedded store"


@dataclass(frozen=True, slots=True)
class CutOff:
    """A broker that runs without the store: since when, and the store's name."""

    store: str
    since_ms: int
    is_silent: bool  # the store does not answer
    is_registered: bool  # as far as this broker knows


def cut_off(report: Mapping[str, Any]) -> CutOff | None:
    """A broker's connection to its store, from its report; None if it answers."""
    store = report.get("store")
    if store is None:
        return None
    since = [at for at in (store["silent_ms"], store["unregistered_ms"]) if at is not None]
    if not since:
        return None
    servers = store["zookeeper"]
    return CutOff(
        f"ZooKeeper at {servers}" if servers else _EMBEDDED,
        min(since),
        store["silent_ms"] is not None,
        store["unregistered_ms"] is None,
    )


def rejoin(broker: int, found: CutOff) -> Sentence:
    """What to do about a broker that runs and is cut off from its store."""
    option = "odradek.store.path" if found.store == _EMBEDDED else "zookeeper.connect"
    return sentence(
        f"see whether the host of broker {broker} reaches {found.store} ({option}), and has CPU "
        "time: the broker registers again by itself, without a restart"
    )


def _store(facts: ClusterFacts) -> Iterator[Finding]:
    found = {
        broker: each
        for broker, report in sorted(facts.reports.items())
        if (each := cut_off(report)) is not None
    }
    if len(found) == len(facts.reports) > 1 and all(each.is_silent for each in found.values()):
        (first, *_) = found.values()
        yield Finding(
            Severity.CRITICAL,
            "store",
            first.store,
            f"it answers no broker{facts.since(max(each.since_ms for each in found.values()))} "
            f"({brokers(found)}): they serve with the leaders that they know, but no leader is "
            "elected, no ISR changes, and no topic, option, ACL or user can be created or changed",
            sentence(
                "start it, or see whether the brokers' hosts reach it; the brokers continue by "
                "themselves. Do not restart brokers before: they cannot start without it"
            ),
        )
        return
    for broker, each in found.items():
        is_known = broker in facts.picture.racks
        why = "gets no answer from" if each.is_silent else "has lost its session with"
        others = (
            "other brokers still take it for registered"
            if is_known
            else "it is not registered any more, the other brokers lead its partitions, and what "
            "clients still write to it with acks=1 is lost"
        )
        yield Finding(
            Severity.CRITICAL,
            "store",
            f"broker {broker}",
            f"it runs, and {why} {each.store}{facts.since(each.since_ms)}: {others}",
            rejoin(broker, each),
            broker,
        )


CUT_OFF_RULES: Final = (_store,)
