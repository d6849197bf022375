"""What one examination by the doctor found, and what it did not look at.

Each finding belongs to an area of facts. An area is in one of three states:

    examined       a finding that is absent is solved
    not examined   the facts could not be had this time: a finding that was there may still be
    unavailable    these brokers, or this client's permissions, never offer the facts

Reports are had of each broker or not: a finding about one broker needs only that broker's report.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from odradek.model.errors import ApiError, ErrorCode
from odradek.plan.commands import brokers
from odradek.plan.facts import ClusterFacts, Finding, Severity, named

PROCESSES: Final = "processes"
CLUSTER: Final = "cluster"
REPORTS: Final = "reports"
NO_REPORTS: Final = (
    "not brokers of Odradek, or older ones: refused clients, errors of clients, log directories, "
    "disks, the cleaner, options, open listeners, the coordination store, controllers and "
    "rebalances are not reported there"
)
NO_CLIENTS: Final = (
    "refused clients, errors and throttled clients are shown to principals with Alter on the "
    "cluster; topics and groups to those with Describe on them"
)
AREA_OF: Final[Mapping[str, str]] = {  # of each kind of finding
    "crashed": PROCESSES,
    **dict.fromkeys(
        (
            "offline",
            "replication-factor",
            "under-min-isr",
            "under-replicated",
            "leader-skew",
            "racks",
            "same-rack",
            "unreachable",
            "advertised",
            "unresolvable",
        ),
        CLUSTER,
    ),
    "throttle": "throttle",
    "moving": "throttle",
    "stuck": "stuck",
    "lag": "lag",
    "deleted-unread": "lag",
    "hanging": "hanging",
    "open-transaction": "hanging",
    "retention": "retention",
    "certificate": "certificate",
    **dict.fromkeys(
        (
            "log-dir",
            "disk",
            "cleaner",
            "unknown-option",
            "invalid-option",
            "unreadable-topic",
            "unreadable-topic",
            "in-the-clear",
            "refused",
            "log-in",
            "controller",
            "emptied",
            "group-stuck",
            "group-no-commit",
            "transactional-id",
            "instance-id",
            "group-protocol",
            "no-topic",
            "quota",
            "store",
            "cut",
            "set-aside",
            "store-restored",
            "refused-role",
            "disks-restored",
        ),
        REPORTS,
    ),
}
# Facts that every broker is asked for, and those that the leader of each partition is asked for.
_OF_EVERY_BROKER: Final = ("certificate", "lag", "throttle")
_OF_EVERY_LEADER: Final = ("hanging", "retention")
AREAS: Final = (CLUSTER, *sorted({*AREA_OF.values()} - {CLUSTER}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """The findings, the worst first, and what they do not cover."""

    findings: Sequence[Finding] = ()
    not_examined: Mapping[str, str] = field(default_factory=dict)  # an area: why
    unavailable: Mapping[str, str] = field(default_factory=dict)  # likewise
    unreported: frozenset[int] = frozenset()  # brokers of the cluster without a report

    def covers(self, finding: Finding) -> bool:
        """Whether an earlier finding that is absent now is solved."""
        area = AREA_OF.get(finding.kind, CLUSTER)
        if area == PROCESSES:
            return PROCESSES not in self.not_examined
        if CLUSTER in self.not_examined:
            return False
        if area == REPORTS:
            lacking = self.unreported
            return not lacking if finding.broker is None else finding.broker not in lacking
        return area not in self.not_examined and area not in self.unavailable

    @property
    def is_sound(self) -> bool:
        """Whether all that these brokers offer was examined, and nothing fails."""
        return not self.not_examined and not any_critical(self.findings)


def any_critical(findings: Iterable[Finding]) -> bool:
    return any(finding.severity is Severity.CRITICAL for finding in findings)


def examination(facts: ClusterFacts, findings: Sequence[Finding]) -> Examination:
    """What these findings of the doctor cover, from the facts that they are made of."""
    picture = facts.picture
    known = {*picture.racks, *facts.caller.local}
    known.update(broker for held in picture.partitions.values() for broker in held.brokers)
    not_examined = dict(facts.unknown)
    unavailable = dict(facts.unavailable)
    silent = {b: why for b, why in facts.unreported.items() if b in picture.racks}
    if silent and CLUSTER not in not_examined:
        not_examined[REPORTS] = "; ".join(f"broker {b}: {why}" for b, why in sorted(silent.items()))
    if facts.unreachable:
        for area in _OF_EVERY_BROKER:
            not_examined.setdefault(area, f"no answer from {brokers(facts.unreachable)}")
    unserved = [p for p, h in picture.partitions.items() if h.leader not in picture.racks]
    unserved += [p for p, h in picture.partitions.items() if h.leader in facts.unreachable]
    if unserved:
        for area in _OF_EVERY_LEADER:
            not_examined.setdefault(area, f"no leader of {named(unserved)} answers")
    if facts.foreign:
        unavailable[REPORTS] = f"{brokers(facts.foreign)}: {NO_REPORTS}"
    hiding = [b for b, r in sorted(facts.reports.items()) if r.get("shows_clients") is False]
    if hiding:
        unavailable["clients"] = f"{brokers(hiding)}: {NO_CLIENTS}"
    return Examination(
        findings=findings,
        not_examined=not_examined,
        unavailable=unavailable,
        unreported=frozenset(known - facts.reports.keys()),
    )


def summary(count: int, not_examined: Mapping[str, str]) -> str:
    """`2 findings`, `Nothing is wrong`, or that nothing was found in what was examined."""
    if count:
        return f"{count} finding{'s' * (count > 1)}"
    if CLUSTER in not_examined:
        return "Nothing was examined"
    return "Nothing is wrong in what was examined" if not_examined else "Nothing is wrong"


def failed(why: str, findings: Sequence[Finding] = ()) -> Examination:
    """An examination that failed as a whole, with what is known nevertheless."""
    return Examination(findings=findings, not_examined=dict.fromkeys(AREAS, why))


def is_never_offered(error: Exception) -> bool:
    """Whether facts are missing because of the brokers' version or the client's permissions."""
    if not isinstance(error, ApiError):
        return False
    name = ErrorCode(error.code).name
    return name == "UNSUPPORTED_VERSION" or name.endswith("_AUTHORIZATION_FAILED")
