"""High watermark, LEO and ISR of a partition, and why a replica is not in the ISR.

t-0: high watermark 120 of 150; leader 1 (leader epoch 5); ISR 1, 2; min.insync.replicas 2
replica  role      start  LEO  behind  in ISR  caught up    fetched
1        leader    0      150  0       yes     -            -
2        follower  0      150  0       yes     now          0.2 s ago
3        follower  0      120  30      no      41.0 s ago   41.0 s ago
the high watermark is the smallest LEO of the ISR; replica 3 is out of the ISR: ...
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from odradek.model.partition import TopicPartition
from odradek.model.sentence import Sentence, sentence
from odradek.plan.fetch_problems import FetchProblem, fetch_problem

Replica = Mapping[str, Any]

NOW_MS: Final = 1_000
_HEADINGS: Final = ("replica", "role", "start", "LEO", "behind", "in ISR", "caught up", "fetched")


def explain_replicas(reports: Mapping[int, Mapping[str, Any]], partition: int) -> list[Sentence]:
    """The table of one partition, from the brokers' reports; empty if no leader answers."""
    held = {
        broker: replica
        for broker, report in sorted(reports.items())
        for replica in report["replicas"]
        if replica["partition"] == partition
    }
    led = leaders_of(reports).get(partition)
    if led is None:
        return []
    broker, leader = led
    lag_ms_max = reports[broker]["lag_ms_max"]
    problems = _problems(reports, TopicPartition(leader["topic"], partition), broker)
    rows = [_HEADINGS, *_rows(broker, leader, held)]
    widths = [max(len(row[n]) for row in rows) for n in range(len(_HEADINGS))]
    lines = [
        _head(broker, leader),
        *(
            "  " + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ),
        *_reasons(leader, lag_ms_max, problems),
    ]
    return [sentence(line) for line in lines]


def leaders_of(reports: Mapping[int, Mapping[str, Any]]) -> dict[int, tuple[int, Replica]]:
    """The leader of each partition of a topic, and what it reports.

    If two brokers report that they lead a partition, the one with the higher leader epoch does.
    """
    newest: dict[int, tuple[int, Replica]] = {}
    for broker, report in sorted(reports.items()):
        for replica in report["replicas"]:
            known = newest.get(replica["partition"])
            if replica["role"] == "leader" and (
                known is None or replica["leader_epoch"] > known[1]["leader_epoch"]
            ):
                newest[replica["partition"]] = (broker, replica)
    return newest


def _problems(
    reports: Mapping[int, Mapping[str, Any]], partition: TopicPartition, leader: int
) -> dict[int, FetchProblem]:
    """The followers whose fetches from this leader fail."""
    found = {
        follower: fetch_problem(
            report.get("fetch_problems", ()), partition, follower=follower, leader=leader
        )
        for follower, report in reports.items()
    }
    return {follower: problem for follower, problem in found.items() if problem is not None}


def _head(broker: int, leader: Replica) -> str:
    isr = ", ".join(map(str, leader["isr"]))
    return (
        f"{leader['topic']}-{leader['partition']}: high watermark {leader['high_watermark']}, the "
        f"leader's LEO {leader['leo']}; leader {broker} (leader epoch {leader['leader_epoch']}); "
        f"ISR {isr}; min.insync.replicas {leader['isr_min']}"
    )


def _rows(broker: int, leader: Replica, held: Mapping[int, Replica]) -> Iterator[Sequence[str]]:
    yield (
        str(broker), "leader", str(leader["log_start_offset"]), str(leader["leo"]), "0", "yes", "-",
        "-",
    )  # fmt: skip
    for follower in leader["followers"]:
        id_ = follower["broker"]
        own = held.get(id_)
        start = "?" if own is None or own["role"] == "offline" else str(own["log_start_offset"])
        leo = max(0, follower["leo"])
        is_known = follower["fetched_ms_ago"] is not None or follower["in_sync"]
        yield (
            str(id_),
            "offline" if own is not None and own["role"] == "offline" else "follower",
            start,
            str(leo) if is_known else "?",
            str(max(0, leader["leo"] - leo)) if is_known else "?",
            "yes" if follower["in_sync"] else "no",
            ago(follower["caught_up_ms_ago"]) if is_known else "?",
            "never" if follower["fetched_ms_ago"] is None else ago(follower["fetched_ms_ago"]),
        )


def _reasons(
    leader: Replica, lag_ms_max: int, problems: Mapping[int, FetchProblem]
) -> Iterator[str]:
    waiting = [
        f["broker"]
        for f in leader["followers"]
        if f["in_sync"] and leader["high_watermark"] < leader["leo"] > f["leo"]
    ]
    if leader["is_under_min_isr"]:
        yield (
            f"the high watermark does not move: {len(leader['isr'])} in sync, and "
            f"min.insync.replicas is {leader['isr_min']}"
        )
    elif waiting:
        yield (
            "the high watermark is the smallest LEO of the ISR: it waits for "
            f"replica {', '.join(map(str, waiting))}"
        )
    for f in leader["followers"]:
        if f["in_sync"]:
            continue
        missing = max(0, leader["leo"] - max(0, f["leo"]))
        if f["fetched_ms_ago"] is None:
            why = f"it has not fetched since broker {leader['leader']} leads"
        elif missing:
            why = (
                f"it fetched last {ago(f['fetched_ms_ago'])} and {missing} records are missing "
                f"(replica.lag.time.max.ms is {lag_ms_max})"
            )
        else:
            why = "it has caught up, and the controller has not stored the ISR with it yet"
        if f["broker"] in problems:
            why += f"; {problems[f['broker']].said('')}"
        yield f"replica {f['broker']} is out of the ISR: {why}"
    open_offset = leader["open_transaction_offset"]
    if open_offset is not None:
        yield (
            f"the last stable offset is {leader['last_stable_offset']}: a transaction is open "
            f"since offset {open_offset}, and read_committed consumers wait there"
        )


def ago(ms: int) -> str:
    """A time span before now, in one unit: `3 min ago`."""
    if ms < NOW_MS:
        return "now"
    if ms < 120_000:
        return f"{ms / 1000:.0f} s ago"
    if ms < 7_200_000:
        return f"{ms / 60_000:.0f} min ago"
    return f"{ms / 3_600_000:.0f} h ago"
