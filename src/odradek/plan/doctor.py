"""What is wrong with a cluster now, why, and the command that mends it. Rules on facts.

    unreachable         a broker that is registered and does not answer
    offline             a partition without a leader: nobody writes or reads
    under-min-isr       too few in sync: acks=all fails
    under-replicated    a replica is away or behind
    leader-skew         leaders are not where they are preferred
    throttle            a replication throttle is left, and nothing is being moved
    stuck               a reassignment waits for a broker that is away
    racks               racks on some brokers only: no topic can be made rack-aware
    same-rack           replicas of a partition share a rack though there are others
    hanging             a transaction that is open for longer than any may be, and that no
                        coordinator knows of
    lag                 a group that is behind, and nobody reads for it
    retention           records from the future keep everything in front of them from going
    unresolvable        an advertised name that cannot be resolved from here

What is found is sorted by how bad it is. Facts that could not be had are no findings: `unknown`
says which rules had to be left out, and why.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from odradek.model.partition import TopicPartition
from odradek.placement.balance import leader_imbalance
from odradek.plan.cluster import ClusterPicture

# As kafka-transactions find-hanging: the largest time-out there may be, and five minutes.
HANGING_SLACK_MS: Final = 300_000
IMBALANCE_PERCENT: Final = 10
FUTURE_MS: Final = 3_600_000
SHOWN: Final = 5


class Severity(IntEnum):
    """How bad it is."""

    CRITICAL = 0  # something does not work
    WARNING = 1  # something will not work when one thing more goes wrong
    NOTE = 2


class Finding(NamedTuple):
    """One thing that is wrong."""

    severity: Severity
    kind: str
    subject: str
    why: str
    mend: str  # a command, or what to do


class Address(NamedTuple):
    """Where a broker says that it can be reached."""

    host: str
    port: int
    problem: str | None = None  # why the name cannot be resolved


class Move(NamedTuple):
    """A reassignment under way."""

    adding: tuple[int, ...]
    removing: tuple[int, ...]


class Group(NamedTuple):
    """A consumer group."""

    name: str
    state: str
    lag: int  # records behind, over all its partitions


class Producer(NamedTuple):
    """A producer that has a transaction open in a partition."""

    producer_id: int
    producer_epoch: int
    first_offset: int
    last_timestamp: int
    coordinated: bool = False  # a coordinator knows of it, and will end it


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of a cluster; what could not be asked for is in `unknown`, by kind."""

    picture: ClusterPicture
    bootstrap: str
    addresses: Mapping[int, Address] = field(default_factory=dict)
    unreachable: Mapping[int, str] = field(default_factory=dict)  # brokers, and why
    # Options of brokers (by id) and topics (by name) that have to do with throttles.
    broker_throttles: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    topic_throttles: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    moves: Mapping[TopicPartition, Move] = field(default_factory=dict)
    groups: Sequence[Group] = ()
    open_transactions: Mapping[TopicPartition, Sequence[Producer]] = field(default_factory=dict)
    transaction_max_timeout_ms: int = 900_000
    # The largest timestamp of each partition of topics that retention by time works on.
    newest_timestamps: Mapping[TopicPartition, int] = field(default_factory=dict)
    now_ms: int = 0
    unknown: Mapping[str, str] = field(default_factory=dict)


def diagnose(facts: Facts) -> list[Finding]:
    """Everything that is wrong, the worst first."""
    found = [finding for rule in _RULES for finding in rule(facts)]
    return sorted(found, key=lambda f: (f.severity, f.kind, f.subject))


def _named(partitions: Iterable[TopicPartition]) -> str:
    names = [str(partition) for partition in sorted(partitions)]
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def _brokers(ids: Iterable[int]) -> str:
    return ",".join(map(str, sorted(ids)))


# -------------------------------------------------------------------------------------- replicas


def _availability(facts: Facts) -> Iterator[Finding]:
    picture = facts.picture
    live = set(picture.racks)
    offline: dict[tuple[int, ...], list[TopicPartition]] = defaultdict(list)
    under_min: dict[tuple[int, ...], list[TopicPartition]] = defaultdict(list)
    under: dict[tuple[int, ...], list[TopicPartition]] = defaultdict(list)
    behind: list[TopicPartition] = []
    for partition, held in picture.partitions.items():
        away = tuple(sorted(set(held.brokers) - live))
        missing = set(held.brokers) - set(held.in_sync)
        if held.leader < 0:
            offline[away].append(partition)
        elif len(held.in_sync) < picture.isr_min.get(partition.topic, 1):
            under_min[away].append(partition)
        elif missing and away:
            under[away].append(partition)
        elif missing and partition not in facts.moves:
            behind.append(partition)
    for away, partitions in offline.items():
        yield Finding(
            Severity.CRITICAL,
            "offline",
            _named(partitions),
            f"no leader: {_away(away) or 'none of the replicas in sync can lead'}",
            _start(away)
            or (
                "if what the last leader alone had may be lost: kafka-leader-election "
                f"--bootstrap-server {facts.bootstrap} --election-type UNCLEAN --topic "
                f"{min(partitions).topic} --partition {min(partitions).partition}"
            ),
        )
    for away, partitions in under_min.items():
        yield Finding(
            Severity.CRITICAL,
            "under-min-isr",
            _named(partitions),
            "fewer in sync than min.insync.replicas, so that acks=all fails: "
            f"{_away(away) or 'followers are behind'}",
            _start(away) or _look(partitions, facts),
        )
    for away, partitions in under.items():
        yield Finding(
            Severity.WARNING,
            "under-replicated",
            _named(partitions),
            _away(away),
            f"{_start(away)}; or, if it stays away: odradek plan drain {_brokers(away)} "
            f"--bootstrap-server {facts.bootstrap}",
        )
    if behind:
        yield Finding(
            Severity.WARNING,
            "under-replicated",
            _named(behind),
            "followers are alive and not in sync: they fetch slower than is written, or are "
            "throttled",
            _look(behind, facts),
        )


def _away(away: Sequence[int]) -> str:
    if not away:
        return ""
    return f"broker {away[0]} is away" if len(away) == 1 else f"brokers {_brokers(away)} are away"


def _start(away: Sequence[int]) -> str:
    if not away:
        return ""
    which = "broker" if len(away) == 1 else "brokers"
    return f"start {which} {_brokers(away)} (odradek start {away[0]})"


def _look(partitions: Sequence[TopicPartition], facts: Facts) -> str:
    topic = min(partitions).topic
    return (
        f"odradek why topic {topic}; kafka-topics --bootstrap-server {facts.bootstrap} "
        f"--describe --under-replicated-partitions"
    )


def _leader_skew(facts: Facts) -> Iterator[Finding]:
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
    if skewed:
        most = max(skewed, key=lambda broker: (skewed[broker].ratio, -broker))
        yield Finding(
            Severity.NOTE,
            "leader-skew",
            f"broker{'s' if len(skewed) > 1 else ''} {_brokers(skewed)}",
            f"others lead {sum(len(due.led_by_others) for due in skewed.values())} partitions of "
            f"which these are the preferred leaders; broker {most} lacks "
            f"{skewed[most].ratio:.0%} of its own",
            f"kafka-leader-election --bootstrap-server {facts.bootstrap} --election-type "
            "PREFERRED --all-topic-partitions",
        )


def _racks(facts: Facts) -> Iterator[Finding]:
    picture = facts.picture
    without = sorted(broker for broker, rack in picture.racks.items() if rack is None)
    if without and len(without) < len(picture.racks):
        yield Finding(
            Severity.WARNING,
            "racks",
            f"broker{'s' if len(without) > 1 else ''} {_brokers(without)}",
            "the other brokers have a rack and these have none: new topics are refused, or "
            "spread without regard to racks",
            f"set broker.rack in server.properties of {_brokers(without)}, and restart",
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
            _named(shared),
            f"replicas share a rack though there are {count}: the loss of one rack takes several",
            f"odradek plan rebalance --bootstrap-server {facts.bootstrap}",
        )


# ----------------------------------------------------------------------------------------- moving


def _throttles(facts: Facts) -> Iterator[Finding]:
    if facts.moves or "throttle" in facts.unknown:
        return
    brokers = sorted(broker for broker, options in facts.broker_throttles.items() if options)
    topics = sorted(topic for topic, options in facts.topic_throttles.items() if options)
    if not brokers and not topics:
        return
    parts = []
    commands = []
    if brokers:
        parts.append(f"brokers {_brokers(brokers)}")
        names = {name for broker in brokers for name in facts.broker_throttles[broker]}
        commands += [_unset(facts, "brokers", str(broker), names) for broker in brokers]
    if topics:
        parts.append(f"topics {', '.join(topics[:SHOWN])}")
        names = {name for topic in topics for name in facts.topic_throttles[topic]}
        commands += [_unset(facts, "topics", topic, names) for topic in topics[:SHOWN]]
    yield Finding(
        Severity.WARNING,
        "throttle",
        ", ".join(parts),
        "replication is throttled and nothing is being moved: followers that fall behind may "
        "never catch up",
        "; ".join(commands),
    )


def _unset(facts: Facts, kind: str, name: str, options: Iterable[str]) -> str:
    return (
        f"kafka-configs --bootstrap-server {facts.bootstrap} --alter --entity-type {kind} "
        f"--entity-name {name} --delete-config {','.join(sorted(options))}"
    )


def _stuck(facts: Facts) -> Iterator[Finding]:
    live = set(facts.picture.racks)
    stuck: dict[tuple[int, ...], list[TopicPartition]] = defaultdict(list)
    for partition, move in facts.moves.items():
        away = tuple(sorted(set(move.adding) - live))
        if away:
            stuck[away].append(partition)
    for away, partitions in stuck.items():
        yield Finding(
            Severity.WARNING,
            "stuck",
            _named(partitions),
            f"a replica is to be made on a broker that is not there: {_away(away)}",
            f"{_start(away)}; or cancel: kafka-reassign-partitions --bootstrap-server "
            f"{facts.bootstrap} --cancel --reassignment-json-file FILE",
        )


# --------------------------------------------------------------------------- clients and records


def _hanging(facts: Facts) -> Iterator[Finding]:
    oldest_ms = facts.now_ms - facts.transaction_max_timeout_ms - HANGING_SLACK_MS
    for partition, producers in sorted(facts.open_transactions.items()):
        for producer in producers:
            if producer.last_timestamp < oldest_ms and not producer.coordinated:
                minutes = (facts.now_ms - producer.last_timestamp) // 60_000
                yield Finding(
                    Severity.CRITICAL,
                    "hanging",
                    str(partition),
                    f"producer {producer.producer_id} has a transaction open since offset "
                    f"{producer.first_offset} and wrote last {minutes} minutes ago, and no "
                    "coordinator knows of it: read_committed consumers wait there, and the log "
                    "is not cleaned",
                    f"kafka-transactions --bootstrap-server {facts.bootstrap} abort --topic "
                    f"{partition.topic} --partition {partition.partition} --start-offset "
                    f"{producer.first_offset}",
                )


def _lagging(facts: Facts) -> Iterator[Finding]:
    for group in sorted(facts.groups):
        if group.lag > 0 and group.state in ("Empty", "Dead"):
            yield Finding(
                Severity.NOTE,
                "lag",
                f"group {group.name}",
                f"{group.lag} records behind, and it has no members",
                f"start its consumers; or, if it is not used any more: kafka-consumer-groups "
                f"--bootstrap-server {facts.bootstrap} --delete --group {group.name}",
            )


def _future(facts: Facts) -> Iterator[Finding]:
    future = {
        partition: timestamp
        for partition, timestamp in facts.newest_timestamps.items()
        if timestamp > facts.now_ms + FUTURE_MS
    }
    for topic in sorted({partition.topic for partition in future}):
        partitions = [partition for partition in future if partition.topic == topic]
        hours = (max(future[partition] for partition in partitions) - facts.now_ms) / 3_600_000
        yield Finding(
            Severity.WARNING,
            "retention",
            _named(partitions),
            f"records with timestamps up to {hours:.0f} hours ahead: retention by time goes by "
            "the largest of a segment, and so cannot run until then",
            f"kafka-configs --bootstrap-server {facts.bootstrap} --alter --entity-type topics "
            f"--entity-name {topic} --add-config message.timestamp.after.max.ms=3600000; what is "
            "there goes by retention.bytes, or kafka-delete-records",
        )


def _unreachable(facts: Facts) -> Iterator[Finding]:
    for broker, why in sorted(facts.unreachable.items()):
        address = facts.addresses.get(broker)
        if address is None or address.problem is None:  # else that is what is wrong
            yield Finding(
                Severity.CRITICAL,
                "unreachable",
                f"broker {broker}",
                f"it is registered and does not answer: {why}. It has just died, or hangs, or "
                "cannot be reached from here",
                f"look at its log; odradek status, odradek restart {broker}",
            )


def _addresses(facts: Facts) -> Iterator[Finding]:
    for broker, address in sorted(facts.addresses.items()):
        if address.problem is not None:
            yield Finding(
                Severity.CRITICAL,
                "unresolvable",
                f"broker {broker}",
                f"it says that it is reached at {address.host}:{address.port}, and from here that "
                f"cannot be resolved: {address.problem}",
                f"set advertised.listeners of broker {broker} to a name that clients can resolve",
            )


_RULES: Final = (
    _availability,
    _leader_skew,
    _racks,
    _throttles,
    _stuck,
    _hanging,
    _lagging,
    _future,
    _unreachable,
    _addresses,
)
