"""What one examination by the doctor found, and what it did not look at.

Each finding belongs to an area of facts. An area is in one of four states:

    examined       a finding that is absent is solved
    not examined   the facts could not be had this time: a finding that was there may still be
    unavailable    these brokers never offer the facts
    denied         this client lacks a permission; the ACL to add is known

Reports are had of each broker or not: a finding about one broker needs only that broker's report.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from odradek.model.acl import (
    CLUSTER_NAME,
    WILDCARD,
    AclEntry,
    AclOperation,
    Binding,
    ResourcePattern,
    ResourceType,
)
from odradek.model.errors import ErrorCode
from odradek.model.sentence import Sentence, sentence
from odradek.plan.commands import Caller, brokers
from odradek.plan.denied import acl_command
from odradek.plan.facts import ClusterFacts, Finding, Reason, Severity, named

PROCESSES: Final = "processes"
CLUSTER: Final = "cluster"
REPORTS: Final = "reports"
CLIENTS: Final = "clients"  # a part of the reports
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
            "open-files",
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


# The permissions that the facts of an area need, by the type of the resource.
_NEEDED: Final[Mapping[str, Mapping[ResourceType, AclOperation]]] = {
    REPORTS: {ResourceType.CLUSTER: AclOperation.DESCRIBE},
    CLIENTS: {ResourceType.CLUSTER: AclOperation.ALTER},
    "throttle": {
        ResourceType.CLUSTER: AclOperation.DESCRIBE_CONFIGS,
        ResourceType.TOPIC: AclOperation.DESCRIBE_CONFIGS,
    },
    "stuck": {ResourceType.CLUSTER: AclOperation.DESCRIBE},
    "lag": {
        ResourceType.GROUP: AclOperation.DESCRIBE,
        ResourceType.TOPIC: AclOperation.DESCRIBE,
    },
    "hanging": {
        ResourceType.TOPIC: AclOperation.READ,
        ResourceType.TRANSACTIONAL_ID: AclOperation.DESCRIBE,
    },
    "retention": {ResourceType.TOPIC: AclOperation.DESCRIBE_CONFIGS},
}
_TYPE_OF: Final = {
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ResourceType.CLUSTER,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: ResourceType.TOPIC,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: ResourceType.GROUP,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: ResourceType.TRANSACTIONAL_ID,
}


class Denied(NamedTuple):
    """An area that this client may not examine, and the ACL that would allow it."""

    why: str
    fix: Sentence

    def __str__(self) -> str:
        return f"{self.why}; {self.fix}"

    def as_plain(self) -> dict[str, Any]:
        """For JSON, as `Finding.as_plain`."""
        commands = [{"words": each.words, "text": str(each)} for each in self.fix.commands]
        return {"why": self.why, "fix": str(self.fix), "commands": commands}


def _denied(area: str, why: str, code: ErrorCode | None, caller: Caller) -> Denied:
    needed = _NEEDED[area]
    kind = _TYPE_OF.get(code, ResourceType.CLUSTER) if code else ResourceType.CLUSTER
    if kind not in needed:
        kind = next(iter(needed))
    name = CLUSTER_NAME if kind is ResourceType.CLUSTER else WILDCARD
    allow = AclEntry("User:NAME", WILDCARD, needed[kind], allowed=True)
    # This client's own properties are not those of somebody who may add ACLs.
    adding = acl_command(
        Binding(ResourcePattern(kind, name), allow), replace(caller, config=""), "add"
    )
    return Denied(why, sentence("to allow it to the user of this client: ", adding))


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """The findings, the worst first, and what they do not cover."""

    findings: Sequence[Finding] = ()
    not_examined: Mapping[str, str] = field(default_factory=dict)  # an area: why
    unavailable: Mapping[str, str] = field(default_factory=dict)  # likewise
    denied: Mapping[str, Denied] = field(default_factory=dict)
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
        return not any(area in gaps for gaps in (self.not_examined, self.unavailable, self.denied))

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
    not_examined = {a: g.why for a, g in facts.gaps.items() if g.reason is Reason.NO_ANSWER}
    unavailable = {a: g.why for a, g in facts.gaps.items() if g.reason is Reason.NOT_OFFERED}
    denied = {
        area: _denied(area, gap.why, gap.code, facts.caller)
        for area, gap in facts.gaps.items()
        if gap.reason is Reason.DENIED
    }
    silent = [b for b in facts.lacking(Reason.NO_ANSWER) if b in picture.racks]
    if silent and CLUSTER not in not_examined:
        not_examined[REPORTS] = "; ".join(f"broker {b}: {facts.unreported[b]}" for b in silent)
    refused = facts.lacking(Reason.DENIED)
    if refused:
        gap = facts.unreported[refused[0]]
        denied[REPORTS] = _denied(REPORTS, f"{brokers(refused)}: {gap}", gap.code, facts.caller)
    if facts.unreachable:
        for area in _OF_EVERY_BROKER:
            not_examined.setdefault(area, f"no answer from {brokers(facts.unreachable)}")
    unserved = [p for p, h in picture.partitions.items() if h.leader not in picture.racks]
    unserved += [p for p, h in picture.partitions.items() if h.leader in facts.unreachable]
    if unserved:
        for area in _OF_EVERY_LEADER:
            not_examined.setdefault(area, f"no leader of {named(unserved)} answers")
    foreign = facts.lacking(Reason.NOT_OFFERED)
    if foreign:
        unavailable[REPORTS] = f"{brokers(foreign)}: {NO_REPORTS}"
    hiding = [b for b, r in sorted(facts.reports.items()) if r.get("shows_clients") is False]
    if hiding:
        why = f"{brokers(hiding)}: {NO_CLIENTS}"
        denied[CLIENTS] = _denied(CLIENTS, why, None, facts.caller)
    return Examination(
        findings=findings,
        not_examined=not_examined,
        unavailable=unavailable,
        denied=denied,
        unreported=frozenset(known - facts.reports.keys()),
    )


def summary(count: int, not_examined: Mapping[str, object]) -> str:
    """`2 findings`, `Nothing is wrong`, or that nothing was found in what was examined."""
    if count:
        return f"{count} finding{'s' * (count > 1)}"
    if CLUSTER in not_examined:
        return "Nothing was examined"
    return "Nothing is wrong in what was examined" if not_examined else "Nothing is wrong"


def failed(why: str, findings: Sequence[Finding] = ()) -> Examination:
    """An examination that failed as a whole, with what is known nevertheless."""
    return Examination(findings=findings, not_examined=dict.fromkeys(AREAS, why))
