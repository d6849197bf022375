"""Explains which requests of a client were refused, from the reports of all brokers.

broker 1 refused client app of 10.0.0.7 12 times since 10:00:00, last at 10:05:07: Produce:
User:app may not Write on Topic orders, because no ACL allows it
to allow it: kafka-acls --bootstrap-server ... --add --allow-principal User:app --operation ...
"""

from collections.abc import Iterator, Mapping
from typing import Any

from odradek.explain.reports import Asked
from odradek.model.clock import WallMs
from odradek.model.sentence import Sentence, sentence
from odradek.plan.commands import clock
from odradek.plan.denied import lacking


def explain_client(asked: Asked, client_id: str, wall_ms: WallMs) -> list[Sentence]:
    """The lines of `odradek why client`, the latest refusal first."""
    reports = asked.by_broker("broker")
    refusals = [
        (refusal["last_ms"], broker, refusal)
        for broker, report in reports.items()
        for refusal in report["refusals"]
        if refusal["client_id"] == client_id
    ]
    if not refusals:
        began_ms = min((report["began_ms"] for report in reports.values()), default=wall_ms)
        return [
            sentence(
                f"no broker has refused a request of client {client_id} "
                f"since {clock(began_ms, wall_ms)}; the brokers keep the latest refusals"
            )
        ]
    lines: list[Sentence] = []
    for _, broker, refusal in sorted(refusals, key=lambda each: (-each[0], each[1])):
        lines += _refusal(broker, refusal, asked, wall_ms)
    return lines


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
