"""Explains the state of a consumer group from its coordinator's report: sentences and a table.

group orders: Stable since 10:00:00, generation 5, 3 members; coordinator broker 1 (...)
its last rebalance was at 09:59:58 because member c-1 joined
strategy range, leader c-1:
orders: 10 partitions for 3 members: 4, 3 and 3 (10 / 3 = 3, and 1 more for the first 1)
member  client  host       heartbeat  partitions
c-1     app     127.0.0.1  0.3 s ago  orders: 0-3
c-4 is idle: no partition is left for it
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from odradek.client.group.protocol import decode_assignment
from odradek.explain.replicas import ago
from odradek.explain.reports import Asked
from odradek.model.clock import WallMs
from odradek.model.command import flag
from odradek.model.errors import MalformedRequestError
from odradek.model.names import GROUP_TOPIC
from odradek.model.partition import TopicPartition
from odradek.model.printable import printable
from odradek.model.sentence import Sentence, sentence
from odradek.plan.commands import brokers, clock, some

_REBALANCING: Final = ("PreparingRebalance", "CompletingRebalance")
_HEADINGS: Final = ("member", "client", "host", "heartbeat", "partitions")
_ASKED_FOR: Final = {"PreparingRebalance": "JoinGroup", "CompletingRebalance": "SyncGroup"}

Group = Mapping[str, Any]
Parts = Mapping[
    str, Sequence[TopicPartition] | None
]  # by member; None: its protocol type is not "consumer"


def explain_group(asked: Asked, name: str, wall_ms: WallMs) -> list[Sentence]:
    """The lines of `odradek why group`."""
    reports = asked.by_broker("groups")
    for broker, group in sorted(reports.items()):
        if group["is_here"] and group["exists"]:
            return [sentence(line) for line in _group(group, broker, wall_ms)]
    if any(group["is_here"] for group in reports.values()):
        return [
            sentence(f"group {name} does not exist: it has no members and no committed offsets")
        ]
    if asked.foreign and not reports:
        return [
            sentence(
                f"{brokers(asked.foreign)}: not of Odradek, or older: states of groups, and errors "
                "of their clients, are not reported there; what Kafka's protocol offers: ",
                asked.caller.kafka("kafka-consumer-groups", "--describe", *flag("--group", name)),
            )
        ]
    reasons = sorted({group["why"] for group in reports.values()})
    return [
        sentence(
            f"no broker coordinates group {name} ({', '.join(reasons) or 'none answers'}): its "
            "partition of __consumer_offsets has no leader, or is being loaded, or no group was "
            "ever used; ",
            asked.caller.why("topic", GROUP_TOPIC),
            " says more",
        )
    ]


def _group(group: Group, broker: int, wall_ms: WallMs) -> Iterator[str]:
    count = group["member_count"]
    generation = f", generation {group['generation']}" if group["generation"] else ""
    since = f" since {clock(group['since_ms'], wall_ms)}" if group["since_ms"] > 0 else ""
    yield (
        f"group {group['group']}: {group['state']}{since}{generation}, {count} "
        f"member{'s' * (count != 1)}; coordinator broker {broker} "
        f"({group['coordinator_partition']})"
    )
    yield from _rebalance(group, wall_ms)
    parts = {m["member_id"]: _parts(m["assignment"]) for m in group["members"]}
    if group["members"]:
        leader = group["leader"]
        yield f"strategy {group['protocol'] or 'not chosen yet'}, leader {leader}"
        yield from (f"  {line}" for line in _trace(group, parts))
        yield from (f"  {line}" for line in _table(group, parts))
    if group["state"] == "Stable":
        yield from _idle(parts)
    commit_ms = group["last_commit_ms"]
    yield (
        "no offset is committed"
        if commit_ms is None
        else f"the last offset was committed at {clock(commit_ms, wall_ms)}"
    )


def _rebalance(group: Group, wall_ms: WallMs) -> Iterator[str]:
    reason, began_ms = group["rebalance_reason"], group["rebalance_ms"]
    because = f" because {reason}" if reason else ""
    if group["state"] in _REBALANCING:
        left_ms = group["awaited_for_ms"]
        bound = (
            ""
            if left_ms is None
            else f"; in {left_ms / 1000:.0f} s it continues without these members"
        )
        waits = some(group["awaited"]) or "more members"
        yield (
            f"it rebalances{because}: it waits for {_ASKED_FOR[group['state']]} of {waits}{bound}"
        )
    elif began_ms > 0:
        yield f"its last rebalance began at {clock(began_ms, wall_ms)}{because}"


def _parts(assignment: str) -> Sequence[TopicPartition] | None:
    data = bytes.fromhex(assignment)
    if not data:
        return ()
    try:
        return tuple(decode_assignment(data))
    except MalformedRequestError:
        return None


def _trace(group: Group, parts: Parts) -> Iterator[str]:
    """How the strategy has computed this assignment, topic by topic."""
    assigned = [p for part in parts.values() if part for p in part]
    strategy = group["protocol"]
    counts = Counter(p.topic for p in assigned)
    if strategy == "range":
        for topic, count in sorted(counts.items()):
            readers = [m["member_id"] for m in group["members"] if topic in (m["topics"] or ())]
            each, more = divmod(count, max(1, len(readers)))
            rest = f", and 1 more for the first {more}" if more else ""
            yield (
                f"range: {topic} has {count} partitions for {len(readers)} members: "
                f"{count} / {len(readers)} = {each} each{rest}"
            )
    elif strategy == "roundrobin" and assigned:
        yield (
            f"roundrobin: the {len(assigned)} partitions of {some(sorted(counts))} are dealt one "
            f"by one to the {len(group['members'])} members in the order of their ids"
        )
    elif assigned:
        loads = sorted(len(part) for part in parts.values() if part is not None)
        yield (
            f"{strategy}: {len(assigned)} partitions, from {loads[0]} to {loads[-1]} for each "
            "member, as few as possible moved"
        )


def _table(group: Group, parts: Parts) -> Iterator[str]:
    rows: list[Sequence[str]] = [_HEADINGS]
    for m in group["members"]:
        silent = m["silent_ms"]
        seen = f"in {m['waits']}" if m["waits"] else "-" if silent is None else ago(silent)
        name = m["instance_id"] or m["member_id"]
        cells = (name, m["client_id"], m["host"], seen, _ranges(parts[m["member_id"]]))
        rows.append(tuple(map(printable, cells)))
    widths = [max(len(row[n]) for row in rows) for n in range(len(_HEADINGS))]
    for row in rows:
        yield "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()


def _ranges(part: Sequence[TopicPartition] | None) -> str:
    """`orders: 0-3, 7; payments: 1`."""
    if part is None:
        return "?"
    by_topic: dict[str, list[int]] = {}
    for p in sorted(part):
        by_topic.setdefault(p.topic, []).append(p.partition)
    return "; ".join(f"{topic}: {_runs(numbers)}" for topic, numbers in by_topic.items()) or "none"


def _runs(numbers: Sequence[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _idle(parts: Parts) -> Iterator[str]:
    idle = sorted(member for member, part in parts.items() if part is not None and not part)
    if idle:
        total = sum(len(part) for part in parts.values() if part)
        verb = "is" if len(idle) == 1 else "are"
        yield (
            f"{some(idle)} {verb} idle: {total} partitions for {len(parts)} members; more "
            "partitions or fewer members put that right"
        )
