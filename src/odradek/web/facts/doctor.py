"""The findings of the doctor."""

from dataclasses import dataclass

from odradek.explain.collected import EXAMINED, examined, seed_address
from odradek.plan.doctor import examine
from odradek.plan.facts import Finding
from odradek.web.facts.source import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What is wrong, the worst first, and which rules could not be examined, and why."""

    findings: tuple[Finding, ...]
    unknown: dict[str, str]


async def collect_diagnosis(source: Source, _argument: str, _before: object) -> Diagnosis:
    """What is wrong now.

    Raises:
        OdradekError, ConnectionError: no broker answers.
    """
    asked = await source.ask(EXAMINED)
    cluster = await source.cluster()
    facts = await examined(cluster, asked, await seed_address(cluster, asked), {})
    seen = examine(facts)
    denied = {area: str(each) for area, each in seen.denied.items()}
    unknown = {**seen.unavailable, **denied, **seen.not_examined}
    return Diagnosis(findings=tuple(seen.findings), unknown=unknown)
