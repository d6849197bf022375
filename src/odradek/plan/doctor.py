"""What is wrong with a cluster now, why and since when, and what to do. Pure rules on facts.

    here, and in the modules of `rules`:

    offline             a partition without a leader: clients can neither write nor read
    replication-factor  fewer replicas than min.insync.replicas: acks=all can never succeed
    under-min-isr       too few in sync: acks=all is refused
    under-replicated    a replica is offline or behind
    leader-skew         leaders are not the preferred replicas
    throttle            a replication throttle is left, and nothing is being moved
    moving              replicas are moved under a throttle: a plan runs, or was interrupted
    stuck               a reassignment waits for an offline broker, or copies nothing
    racks               racks on some brokers only: no topic can be made rack-aware
    same-rack           replicas of a partition share a rack though there are others

    crashed, unreachable, advertised, unresolvable, unknown-option, in-the-clear, certificate,
    refused, controller, open-files                                        of single brokers

    log-dir, disk, cleaner, cut, set-aside                                 of disks and logs

    unreadable-topic    a topic's znode cannot be read: no broker serves it
    invalid-option      a stored option of a topic is invalid, and has no effect

    store-restored, refused-role, disks-restored    put back from a backup: `rules.restored`

    hanging, open-transaction, group-stuck, group-no-commit, lag, deleted-unread,
    retention                                                              clients, records

    transactional-id, instance-id, group-protocol, no-topic, quota     errors of clients, counted

Findings are sorted by severity. Facts that could not be collected are not findings:
`odradek.plan.examination` has what was not examined, and why.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from odradek.model.command import Command, command, flag
from odradek.model.partition import TopicPartition
from odradek.model.sentence import Sentence, Words, joined, sentence
from odradek.placement.balance import leader_imbalance
from odradek.plan.commands import SHOWN, brokers
from odradek.plan.examination import Examination, examination
from odradek.plan.facts import ClusterFacts, Finding, Severity, named
from odradek.plan.fetch_problems import Problems, by_problem
from odradek.plan.rules.brokers import BROKER_RULES
from odradek.plan.rules.clients import CLIENT_RULES
from odradek.plan.rules.cut_off import CUT_OFF_RULES
from odradek.plan.rules.errors import ERROR_RULES
from odradek.plan.rules.open_files import OPEN_FILES_RULES
from odradek.plan.rules.restored import RESTORED_RULES
from odradek.plan.rules.stored import STORE_RULES

IMBALANCE_PERCENT: Final = 10
_MiB: Final = 1 << 20


def diagnose(facts: ClusterFacts) -> list[Finding]:
    """All findings, the worst first."""
    found = [finding for rule in _RULES for finding in rule(facts)]
    return sorted(found, key=lambda f: (f.severity, f.kind, f.subject))


def examine(facts: ClusterFacts) -> Examination:
    """All findings, and what was not examined."""
    return examination(facts, diagnose(facts))


# -------------------------------------------------------------------------------------- replicas

_Away = dict[tuple[int, ...], list[TopicPartition]]


def _availability(facts: ClusterFacts) -> Iterator[Finding]:
    picture = facts.picture
    live = set(picture.racks)
    offline: _Away = defaultdict(list)
    under_min: _Away = defaultdict(list)
    under: _Away = defaultdict(list)
    behind: _Away = defaultdict(list)
    impossible: list[TopicPartition] = []
    for partition, held in picture.partitions.items():
        isr_min = picture.isr_min.get(partition.topic, 1)
        away = tuple(sorted(set(held.brokers) - live))
        missing = set(held.brokers) - set(held.in_sync)
        if held.leader < 0:
            offline[away].append(partition)
        elif len(held.brokers) < isr_min:
            impossible.append(partition)
        elif len(held.in_sync) < isr_min:
            under_min[away or tuple(sorted(missing))].append(partition)
        elif missing and away:
            under[away].append(partition)
        elif missing and partition not in facts.moves:
            behind[tuple(sorted(missing))].append(partition)
    yield from (_offline(facts, away, found) for away, found in offline.items())
    yield from _impossible(facts, impossible)
    yield from (
        _under_min(facts, lacking, found, problems)
        for lacking, found, problems in _by_problem(facts, under_min)
    )
    yield from (_under_replicated(facts, away, found) for away, found in under.items())
    yield from (
        _behind(facts, lacking, found, problems)
        for lacking, found, problems in _by_problem(facts, behind)
    )


def _by_problem(
    facts: ClusterFacts, groups: _Away
) -> Iterator[tuple[Sequence[int], Sequence[TopicPartition], Problems]]:
    for lacking, found in groups.items():
        leaders = {partition: facts.picture.partitions[partition].leader for partition in found}
        for problems, partitions in by_problem(facts.reports, leaders, lacking).items():
            yield lacking, partitions, problems


def _offline(
    facts: ClusterFacts, away: Sequence[int], partitions: Sequence[TopicPartition]
) -> Finding:
    first = min(partitions)
    since = facts.since(facts.first_of("LEFT_WITHOUT_LEADER", partitions))
    unclean = facts.caller.kafka(
        "kafka-leader-election",
        *("--election-type", "UNCLEAN", *flag("--topic", first.topic)),
        *flag("--partition", first.partition),
    )
    return Finding(
        Severity.CRITICAL,
        "offline",
        named(partitions),
        f"no leader{since}: clients can neither write nor read; "
        f"{facts.away(away) or 'no replica in sync can lead: see its log directory'}",
        joined(
            (
                facts.bring_all_back(away),
                sentence("or, if records that only the last leader had may be lost: ", unclean),
            )
        ),
    )


def _impossible(facts: ClusterFacts, partitions: Sequence[TopicPartition]) -> Iterator[Finding]:
    for topic in sorted({partition.topic for partition in partitions}):
        found = [partition for partition in partitions if partition.topic == topic]
        count = min(len(facts.picture.partitions[p].brokers) for p in found)
        isr_min = facts.picture.isr_min[topic]
        yield Finding(
            Severity.CRITICAL,
            "replication-factor",
            named(found),
            f"min.insync.replicas is {isr_min} and there {'is' if count == 1 else 'are'} only "
            f"{count} {'replica' if count == 1 else 'replicas'}: every write with acks=all is "
            "refused (NOT_ENOUGH_REPLICAS)",
            sentence(
                facts.caller.set_option("topics", topic, f"min.insync.replicas={count}"),
                "; or add replicas with kafka-reassign-partitions",
            ),
        )


def _under_min(
    facts: ClusterFacts,
    lacking: Sequence[int],
    partitions: Sequence[TopicPartition],
    problems: Problems,
) -> Finding:
    away = [broker for broker in lacking if broker not in facts.picture.racks]
    reason = facts.away(away) or _lagging(facts, lacking, problems)
    return Finding(
        Severity.CRITICAL,
        "under-min-isr",
        named(partitions),
        f"fewer replicas are in sync than min.insync.replicas, so acks=all is refused: {reason}",
        facts.bring_all_back(away) or _look(facts, lacking, partitions, problems),
    )


def _under_replicated(
    facts: ClusterFacts, away: Sequence[int], partitions: Sequence[TopicPartition]
) -> Finding:
    return Finding(
        Severity.WARNING,
        "under-replicated",
        named(partitions),
        f"{facts.away(away)}: its replicas miss new records",
        sentence(
            facts.bring_all_back(away),
            "; or, if it stays away: ",
            command("odradek", "plan", "drain", ",".join(map(str, away)), *facts.caller.server),
        ),
    )


def _behind(
    facts: ClusterFacts,
    lacking: Sequence[int],
    partitions: Sequence[TopicPartition],
    problems: Problems,
) -> Finding:
    return Finding(
        Severity.WARNING,
        "under-replicated",
        named(partitions),
        _lagging(facts, lacking, problems),
        _look(facts, lacking, partitions, problems),
    )


def _lagging(facts: ClusterFacts, lacking: Sequence[int], problems: Problems) -> str:
    """Why replicas on registered brokers are not in sync."""
    failed = [b for b in lacking if any(d["is_offline"] for d in _directories(facts, b))]
    if failed:
        return f"a log directory of {brokers(failed)} is offline"
    paused = [b for b in lacking if facts.caller.local.get(b) == "paused"]
    if paused:
        return f"the process of {brokers(paused)} is paused (SIGSTOP)"
    if problems:
        said = "; ".join(problem.said(facts.since(problem.since_ms)) for problem in problems)
        return f"the replicas on {brokers(lacking)} are not in sync: {said}"
    return (
        f"the replicas on {brokers(lacking)} are not in sync: they are copying what they missed, "
        "or fetch more slowly than is written, or are throttled"
    )


def _directories(facts: ClusterFacts, broker: int) -> Sequence[dict[str, object]]:
    report = facts.reports.get(broker)
    return report["log_dirs"] if report is not None else ()


def _look(
    facts: ClusterFacts,
    lacking: Sequence[int],
    partitions: Sequence[TopicPartition],
    problems: Problems,
) -> Sentence:
    paused = [b for b in lacking if facts.caller.local.get(b) == "paused"]
    if paused:
        return facts.caller.bring_all_back(paused)
    if problems:
        return joined(problem.fix(facts.caller) for problem in problems)
    first = min(partitions)
    return sentence(
        "it ends by itself when they have caught up; how far they are: ",
        facts.caller.why("topic", first.topic, *flag("--partition", first.partition)),
    )


def _leader_skew(facts: ClusterFacts) -> Iterator[Finding]:
    picture = facts.picture
    imbalances = leader_imbalance(
        (partition, held.brokers[0], held.leader if held.leader >= 0 else None)
        for partition, held in picture.partitions.items()
        if held.brokers
    )
    skewed = {
        broker: due
        for broker, due in imbalances.items()
        if due.exceeds(IMBALANCE_PERCENT) and broker in picture.racks
    }
    if not skewed:
        return
    led_by_others = [p for due in skewed.values() for p in due.led_by_others]
    since = facts.since(facts.first_of("LEADER_ELECTED", led_by_others))
    shares = ", ".join(
        f"{len(due.led_by_others)} of {due.preferred_count} of broker {broker}"
        for broker, due in sorted(skewed.items())
    )
    yield Finding(
        Severity.NOTE,
        "leader-skew",
        brokers(skewed),
        f"other brokers lead partitions whose preferred leader this is{since}: {shares}; the load "
        "is not spread as planned",
        sentence(
            facts.caller.kafka(
                "kafka-leader-election", "--election-type", "PREFERRED", "--all-topic-partitions"
            )
        ),
    )


def _racks(facts: ClusterFacts) -> Iterator[Finding]:
    picture = facts.picture
    without = sorted(broker for broker, rack in picture.racks.items() if rack is None)
    if without and len(without) < len(picture.racks):
        yield Finding(
            Severity.WARNING,
            "racks",
            brokers(without),
            "the other brokers have a rack and these have none: new topics are refused, or "
            "spread without racks",
            sentence(f"set broker.rack in server.properties of {brokers(without)}, and restart"),
        )
    if not picture.knows_racks:
        return
    count = len(set(picture.racks.values()))
    shared = [
        partition
        for partition, held in picture.partitions.items()
        if len({picture.rack_of(b) for b in held.brokers}) < min(count, len(held.brokers))
    ]
    if shared:
        yield Finding(
            Severity.WARNING,
            "same-rack",
            named(shared),
            f"replicas share a rack though there are {count}: the loss of one rack takes several",
            sentence(command("odradek", "plan", "rebalance", *facts.caller.server)),
        )


# ----------------------------------------------------------------------------------------- moving


def _throttles(facts: ClusterFacts) -> Iterator[Finding]:
    if "throttle" in facts.gaps or "stuck" in facts.gaps:
        return
    throttled = sorted(broker for broker, options in facts.broker_throttles.items() if options)
    topics = sorted(topic for topic, options in facts.topic_throttles.items() if options)
    if facts.moves:
        if throttled or topics:
            yield _moving(facts)
        return
    if not throttled and not topics:
        return
    parts = [brokers(throttled)] if throttled else []
    if topics:
        parts.append(f"topics {', '.join(topics[:SHOWN])}")
    rates = sorted(
        {rate for broker in throttled for rate in facts.broker_throttles[broker].values()}
    )
    yield Finding(
        Severity.WARNING,
        "throttle",
        ", ".join(parts),
        f"replication is throttled{f' (to {rates[0]} B/s)' if rates else ''} and "
        "nothing is being moved: a plan or kafka-reassign-partitions --execute was not followed "
        "by --verify; followers that fall behind may never catch up",
        joined(_unthrottle(facts)),
    )


def _unthrottle(facts: ClusterFacts) -> Iterator[Command]:
    throttled = sorted(broker for broker, options in facts.broker_throttles.items() if options)
    topics = sorted(topic for topic, options in facts.topic_throttles.items() if options)
    for broker in throttled:
        yield _unset(facts, "brokers", str(broker), facts.broker_throttles[broker])
    for topic in topics[:SHOWN]:
        yield _unset(facts, "topics", topic, facts.topic_throttles[topic])


def _unset(facts: ClusterFacts, kind: str, name: str, options: Iterable[str]) -> Command:
    return facts.caller.kafka(
        "kafka-configs",
        *("--alter", "--entity-type", kind, *flag("--entity-name", name)),
        *flag("--delete-config", ",".join(sorted(options))),
    )


def _moving(facts: ClusterFacts) -> Finding:
    since = facts.since(facts.first_of("REASSIGNMENT_STARTED", facts.moves))
    return Finding(
        Severity.NOTE,
        "moving",
        named(facts.moves),
        f"replicas are being moved{since} under a replication throttle: if the odradek plan or "
        "kafka-reassign-partitions that began it was interrupted, the moves go on, the rest of the "
        "plan is not started, and the throttle stays",
        sentence(
            "run the same odradek plan --execute again, which continues from here and clears the "
            "throttle; or cancel it: ",
            command("odradek", "plan", "rebalance", "--cancel", *facts.caller.server),
        ),
    )


def _stuck(facts: ClusterFacts) -> Iterator[Finding]:
    live = set(facts.picture.racks)
    waiting: _Away = defaultdict(list)
    idle: _Away = defaultdict(list)
    for partition, move in facts.moves.items():
        away = tuple(sorted(set(move.adding) - live))
        still = tuple(b for b in sorted(move.adding) if _is_still(facts, partition, b))
        if away:
            waiting[away].append(partition)
        elif still:
            idle[still].append(partition)
    cancel = facts.caller.kafka(
        "kafka-reassign-partitions", "--cancel", "--reassignment-json-file", "FILE"
    )
    for away, partitions in waiting.items():
        yield Finding(
            Severity.WARNING,
            "stuck",
            named(partitions),
            "a replica is being added on a broker that is offline"
            f"{facts.since(facts.first_of('REASSIGNMENT_STARTED', partitions))}: "
            f"{facts.away(away)}",
            sentence(facts.bring_all_back(away), "; or cancel it: ", cancel),
        )
    for still, partitions in idle.items():
        yield _no_progress(facts, still, partitions, cancel)


def _is_still(facts: ClusterFacts, partition: TopicPartition, broker: int) -> bool:
    """Whether an adding replica is incomplete and did not grow between two observations."""
    if broker in facts.unreachable:
        return True
    seen = facts.progress.get((partition, broker))
    return seen is not None and seen.after_bytes == seen.before_bytes < seen.leader_bytes


def _no_progress(
    facts: ClusterFacts, still: Sequence[int], partitions: Sequence[TopicPartition], cancel: Command
) -> Finding:
    seen = facts.progress.get((min(partitions), still[0]))
    copied = (
        f"{seen.after_bytes / _MiB:.1f} of {seen.leader_bytes / _MiB:.1f} MiB are copied and "
        f"nothing arrived in {seen.seconds:.0f} s"
        if seen is not None
        else "nothing is copied"
    )
    why = ""
    fix: Words = f"see the log of {brokers(still)}"
    rates = {
        rate
        for broker, options in facts.broker_throttles.items()
        for name, rate in options.items()
        if "replication" in name
    }
    silent = [broker for broker in still if broker in facts.unreachable]
    if silent:
        why = f"; {brokers(silent)} does not answer"
        fix = facts.caller.bring_all_back(silent)
    elif rates:
        why = f"; replication is throttled to {min(rates, key=float)} B/s"
        fix = sentence("raise or remove the throttle: ", joined(_unthrottle(facts)))
    return Finding(
        Severity.WARNING,
        "stuck",
        named(partitions),
        f"the move to {brokers(still)} makes no progress"
        f"{facts.since(facts.first_of('REASSIGNMENT_STARTED', partitions))}: {copied}{why}",
        sentence(fix, "; or cancel it: ", cancel),
    )


_RULES: Final = (
    _availability,
    _leader_skew,
    _racks,
    _throttles,
    _stuck,
    *BROKER_RULES,
    *CLIENT_RULES,
    *ERROR_RULES,
    *RESTORED_RULES,
    *STORE_RULES,
    *CUT_OFF_RULES,
    *OPEN_FILES_RULES,
)
