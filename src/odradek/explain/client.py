"""Explains which requests of a client were refused or failed, from the reports of all brokers.

broker 1 refused client app of 10.0.0.7 12 times since 10:00:00, last at 10:05:07: Produce:
User:app may not Write on Topic orders, because no ACL allows it
to allow it: kafka-acls --bootstrap-server ... --add --allow-principal User:app --operation ...
broker 1 answered JoinGroup of client app of 10.0.0.7 (group g) with INCONSISTENT_GROUP_PROTOCOL ...
it shares no protocol with the members of the group: ...
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from odradek.explain.reports import Asked
from odradek.model.clock import WallMs
from odradek.model.sentence import Sentence, sentence
from odradek.plan.client_errors import (
    CountedError,
    advice,
    described,
    described_throttle,
    errors_of,
    raise_quota,
    throttled_of,
)
from odradek.plan.commands import brokers, clock
from odradek.plan.denied import lacking
from odradek.plan.examination import NO_CLIENTS


def explain_client(
    asked: Asked, client_id: str, wall_ms: WallMs, topics: Iterable[str] = ()
) -> list[Sentence]:
    """The lines of `odradek why client`, the latest first. `topics` are those that exist."""
    reports = asked.by_broker("broker")
    refusals = [
        (refusal["last_ms"], broker, refusal)
        for broker, report in reports.items()
        for refusal in report["refusals"]
        if refusal["client_id"] == client_id
    ]
    lines: list[Sentence] = []
    for _, broker, refusal in sorted(refusals, key=lambda each: (-each[0], each[1])):
        lines += _refusal(broker, refusal, asked, wall_ms)
    told = {(broker, refusal["what"]) for _, broker, refusal in refusals}

    def is_wanted(error: CountedError) -> bool:
        as_refusal = f"{error.api} to {error.topic}: {error.error}"
        return error.client_id == client_id and (error.broker, as_refusal) not in told

    lines += explain_errors(asked, is_wanted, wall_ms, topics)
    for throttled in throttled_of(reports):
        if throttled.client_id == client_id:
            lines.append(sentence(described_throttle(throttled, wall_ms)))
            lines.append(raise_quota(throttled, asked.caller))
    hiding = [broker for broker, report in reports.items() if report.get("shows_clients") is False]
    if hiding:
        lines.append(sentence(f"{brokers(hiding)}: {NO_CLIENTS}"))
    if not lines and reports:
        began_ms = min(report["began_ms"] for report in reports.values())
        lines.append(
            sentence(
                "no broker has refused or throttled, or answered with an error, a request of "
                f"client {client_id} since {clock(began_ms, wall_ms)}; the brokers keep the latest"
            )
        )
    return [*lines, *not_reported(asked)]


def explain_errors(
    asked: Asked,
    wanted: Callable[[CountedError], bool],
    wall_ms: WallMs,
    topics: Iterable[str] = (),
) -> list[Sentence]:
    """The errors that brokers counted, the latest first; after several with one advice, that."""
    lines: list[Sentence] = []
    last = sentence()
    existing = frozenset(topics)
    for error in errors_of(asked.by_broker("broker")):
        if wanted(error):
            to_do = advice(error, existing, asked.caller)
            if to_do != last and last:
                lines.append(last)
            lines.append(sentence(described(error, wall_ms)))
            last = to_do
    return [*lines, last] if last else lines


def not_reported(asked: Asked) -> Iterator[Sentence]:
    """That some brokers count no errors of clients."""
    if asked.foreign:
        yield sentence(
            f"{brokers(asked.foreign)}: not of Odradek, or older: refused requests, errors of "
            "clients and throttled clients are not reported there; see the clients' own logs"
        )


def _refusal(
    broker: int, refusal: Mapping[str, Any], asked: Asked, wall_ms: WallMs
) -> Iterator[Sentence]:
    count, software = refusal["count"], refusal["software"]
    known = "" if software.startswith("unknown") else f" ({software})"
    since = f"since {clock(refusal['first_ms'], wall_ms)}, last " if count > 1 else ""
    lacks = lacking(refusal, asked.caller)
    yield sentence(
        f"broker {broker} refused client {refusal['client_id']} of {refusal['host']}{known} "
        f"{count} time{'s' * (count != 1)} {since}at {clock(refusal['last_ms'], wall_ms)}: "
        f"{refusal['what'] if lacks is None else lacks.what}"
    )
    if lacks is not None:
        yield sentence("to allow it: ", lacks.advice)
