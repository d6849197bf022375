"""The doctor's rules on the errors that brokers count of their clients: see `client_errors`."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from odradek.model.sentence import sentence
from odradek.plan.client_errors import (
    FENCED,
    FENCED_MEMBER,
    INCONSISTENT,
    NO_SASL,
    NO_TOPIC,
    CountedError,
    Throttled,
    advice,
    clients_of,
    errors_of,
    no_topic,
    raise_quota,
    throttled_of,
    total,
)
from odradek.plan.facts import RECENT_MS, ClusterFacts, Finding, Severity
from odradek.plan.quantities import span_text

# A producer that was replaced is fenced once, with the requests that it had sent: within seconds.
_FENCED_MIN: Final = 3
_FENCED_SPREAD_MS: Final = 10_000
_NO_TOPIC_MIN: Final = 3  # clients look for a topic that does not exist again and again
_THROTTLED_MIN_MS: Final = 1_000  # a client that waits for less does not notice


def _grouped(
    facts: ClusterFacts,
    wanted: Callable[[CountedError], bool],
    key: Callable[[CountedError], tuple[str, ...]],
) -> Iterator[tuple[tuple[str, ...], list[CountedError]]]:
    """The recent errors of a kind, by what they are about."""
    found: dict[tuple[str, ...], list[CountedError]] = defaultdict(list)
    for error in errors_of(facts.reports):
        if facts.wall_ms - error.last_ms <= RECENT_MS and wanted(error):
            found[key(error)].append(error)
    return iter(sorted(found.items()))


def _finding(
    facts: ClusterFacts,
    errors: Sequence[CountedError],
    severity: Severity,
    kind: str,
    subject: str,
    why: str,
) -> Finding:
    """A finding on errors of one kind, which `odradek why` explains with the same advice."""
    return Finding(severity, kind, subject, why, advice(errors[0], (), facts.caller))


def _fenced_producers(facts: ClusterFacts) -> Iterator[Finding]:
    for (name,), errors in _grouped(
        facts,
        lambda e: e.error in FENCED and bool(e.transactional_id),
        lambda e: (e.transactional_id,),
    ):
        counted, clients = total(errors), {(e.host, e.client_id) for e in errors}
        lasts_ms = counted.last_ms - counted.first_ms
        if len(clients) < 2 and (counted.count < _FENCED_MIN or lasts_ms < _FENCED_SPREAD_MS):
            continue
        yield _finding(
            facts,
            errors,
            Severity.WARNING,
            "transactional-id",
            f"transactional.id {name}",
            f"producers with this transactional.id fence each other: {_names(errors)} "
            f"{counted.since(facts.wall_ms)}, of {clients_of(errors)}; each one ends the "
            "transaction of the other when it begins",
        )


def _fenced_members(facts: ClusterFacts) -> Iterator[Finding]:
    for (group, instance), errors in _grouped(
        facts, lambda e: e.error == FENCED_MEMBER, lambda e: (e.group, e.instance_id)
    ):
        yield _finding(
            facts,
            errors,
            Severity.WARNING,
            "instance-id",
            f"group {group}, group.instance.id {instance}",
            f"two consumers use this group.instance.id: {_names(errors)} "
            f"{total(errors).since(facts.wall_ms)}, of {clients_of(errors)}; the one that joined "
            "later takes the partitions of the other, which ends",
        )


def _inconsistent(facts: ClusterFacts) -> Iterator[Finding]:
    for (group,), errors in _grouped(
        facts, lambda e: e.error == INCONSISTENT, lambda e: (e.group,)
    ):
        yield _finding(
            facts,
            errors,
            Severity.WARNING,
            "group-protocol",
            f"group {group}",
            f"{clients_of(errors)} cannot join it: {_names(errors)} "
            f"{total(errors).since(facts.wall_ms)}; the members there are of another application, "
            "or have no assignment strategy in common with it",
        )


def _topics(facts: ClusterFacts) -> Iterator[Finding]:
    existing = {partition.topic for partition in facts.picture.partitions}
    for (topic,), errors in _grouped(
        facts,
        lambda e: e.error == NO_TOPIC and bool(e.topic) and e.topic not in existing,
        lambda e: (e.topic,),
    ):
        if total(errors).count < _NO_TOPIC_MIN:
            continue
        yield Finding(
            Severity.WARNING,
            "no-topic",
            f"topic {topic}",
            f"{clients_of(errors)} asked for it {total(errors).since(facts.wall_ms)}, and it does "
            "not exist",
            no_topic(topic, existing, facts.caller),
        )


def _without_sasl(facts: ClusterFacts) -> Iterator[Finding]:
    for (client,), errors in _grouped(
        facts, lambda e: e.error == NO_SASL, lambda e: (e.client_id,)
    ):
        yield _finding(
            facts,
            errors,
            Severity.WARNING,
            "refused",
            f"client {client or '(without client.id)'}",
            f"{clients_of(errors)} tried to log in by SASL {total(errors).since(facts.wall_ms)}, "
            "on a listener that does not use SASL",
        )


def _quotas(facts: ClusterFacts) -> Iterator[Finding]:
    found: dict[tuple[str, str], list[Throttled]] = defaultdict(list)
    for each in throttled_of(facts.reports):
        if facts.wall_ms - each.last_ms <= RECENT_MS:
            found[each.client_id, each.option].append(each)
    for (client, option), throttled in sorted(found.items()):
        waited_ms = sum(each.total_ms for each in throttled)
        if waited_ms < _THROTTLED_MIN_MS:
            continue
        yield Finding(
            Severity.NOTE,
            "quota",
            f"client {client or '(without client.id)'}, {option}",
            f"it was throttled {total(throttled).since(facts.wall_ms)}, in all for "
            f"{span_text(waited_ms / 1000)}: its quota {option} is {throttled[0].rate:g} at each "
            "broker",
            sentence(
                "the quota does what it is set for; ", raise_quota(throttled[0], facts.caller)
            ),
        )


def _names(errors: Sequence[CountedError] | Iterable[CountedError]) -> str:
    """`EndTxn and Produce got PRODUCER_FENCED`."""
    apis = " and ".join(sorted({each.api for each in errors}))
    return f"{apis} got {' and '.join(sorted({each.error for each in errors}))}"


ERROR_RULES: Final = (
    _fenced_producers,
    _fenced_members,
    _inconsistent,
    _topics,
    _without_sasl,
    _quotas,
)
