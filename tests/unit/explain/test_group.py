"""`odradek why group` and the replicas of `why topic --partition`, from what brokers report."""

import pytest

from odradek.client.group.protocol import encode_assignment
from odradek.explain.group import explain_group
from odradek.explain.replicas import ago, explain_replicas
from odradek.explain.reports import Asked
from odradek.model.partition import TopicPartition
from odradek.plan.commands import Caller, clock

NOW_MS = 1_800_000_000_000


def texts(lines):
    return [str(line) for line in lines]


def member(name, *partitions, **changed):
    parts = [TopicPartition("t", number) for number in partitions]
    return {
        "member_id": name, "instance_id": None, "client_id": "app", "host": "h",
        "strategies": ["range"], "topics": ["t"], "session_timeout_ms": 45_000,
        "assignment": encode_assignment(parts).hex() if parts else "", "silent_ms": 200,
        "waits": None, **changed,
    }  # fmt: skip


def group(*members, **changed):
    return {
        "is_here": True, "exists": True, "group": "g", "state": "Stable",
        "since_ms": NOW_MS - 5_000, "generation": 3, "member_count": len(members),
        "coordinator_partition": "__consumer_offsets-7", "protocol": "range", "leader": "a",
        "members": list(members), "rebalance_reason": "member b joined",
        "rebalance_ms": NOW_MS - 6_000, "awaited": [], "awaited_for_ms": None,
        "last_commit_ms": None, **changed,
    }  # fmt: skip


def lines(report):
    asked = Asked(Caller(), reports={
        0: {"groups": {"group": "g", "is_here": False, "why": "NOT_COORDINATOR"}},
        1: {"groups": report},
    })  # fmt: skip
    return [str(line) for line in explain_group(asked, "g", NOW_MS)]


def test_a_stable_group_with_an_idle_member():
    text = lines(group(member("a", 0, 1, 2), member("b", 3, 4), member("c"), last_commit_ms=NOW_MS))

    assert text == [
        (
            f"group g: Stable since {clock(NOW_MS - 5_000, NOW_MS)}, generation 3, 3 members; "
            "coordinator broker 1 (__consumer_offsets-7)"
        ),
        f"its last rebalance began at {clock(NOW_MS - 6_000, NOW_MS)} because member b joined",
        "strategy range, leader a",
        "  range: t has 5 partitions for 3 members: 5 / 3 = 1 each, and 1 more for the first 2",
        "  member  client  host  heartbeat  partitions",
        "  a       app     h     now        t: 0-2",
        "  b       app     h     now        t: 3-4",
        "  c       app     h     now        none",
        "c is idle: 5 partitions for 3 members; more partitions or fewer members put that right",
        f"the last offset was committed at {clock(NOW_MS, NOW_MS)}",
    ]


def test_a_group_that_waits_for_a_member():
    waiting = member("b", waits="JoinGroup", silent_ms=None)
    text = lines(group(member("a", 0, 2), waiting, state="PreparingRebalance", awaited=["a"],
                      awaited_for_ms=8_000))  # fmt: skip

    assert text[1] == (
        "it rebalances because member b joined: it waits for JoinGroup of a; in 8 s it "
        "continues without these members"
    )
    assert "  a       app     h     now           t: 0, 2" in text
    assert "  b       app     h     in JoinGroup  none" in text
    assert text[-1] == "no offset is committed"


@pytest.mark.parametrize(
    ("strategy", "trace"),
    [
        ("roundrobin", "roundrobin: the 3 partitions of t are dealt one by one to the 2 members"),
        ("sticky", "sticky: 3 partitions, from 1 to 2 for each member"),
    ],
)
def test_how_other_strategies_divide(strategy, trace):
    text = lines(group(member("a", 0, 2), member("b", 1), protocol=strategy))

    assert text[3].startswith(f"  {trace}")


def test_a_group_that_is_not_there():
    (nothing,) = lines({"group": "g", "is_here": True, "exists": False})
    assert nothing == "group g does not exist: it has no members and no committed offsets"
    (line,) = lines({"group": "g", "is_here": False, "why": "COORDINATOR_LOAD_IN_PROGRESS"})
    assert line.startswith(
        "no broker coordinates group g (COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR)"
    )


# --------------------------------------------------------------------------------------- replicas


def leader(**changed):
    follower = {"leo": 150, "caught_up_ms_ago": 20, "fetched_ms_ago": 20, "in_sync": True}
    return {
        "topic": "t", "partition": 0, "role": "leader", "leader": 1, "leader_epoch": 5,
        "log_start_offset": 10, "leo": 150, "high_watermark": 120, "last_stable_offset": 120,
        "open_transaction_offset": None, "isr": [1, 2], "isr_min": 2, "is_under_min_isr": False,
        "followers": [
            {**follower, "broker": 2, "leo": 120, "caught_up_ms_ago": 4_000},
            {**follower, "broker": 3, "leo": 100, "in_sync": False, "caught_up_ms_ago": 300_000,
             "fetched_ms_ago": 290_000},
        ], **changed,
    }  # fmt: skip


FOLLOWER = {"topic": "t", "partition": 0, "role": "follower", "log_start_offset": 10,
            "leader_epoch": 5}  # fmt: skip


def test_the_high_watermark_waits_for_the_slowest_replica_in_sync():
    # Broker 3 still reports itself as leader: the later leader epoch counts.
    old = {**leader(leader_epoch=4), "leader": 3}
    reports = {
        1: {"replicas": [leader()], "lag_ms_max": 30_000},
        2: {"replicas": [FOLLOWER], "lag_ms_max": 30_000},
        3: {"replicas": [old], "lag_ms_max": 30_000},
    }

    assert texts(explain_replicas(reports, 0)) == [
        (
            "t-0: high watermark 120, the leader's LEO 150; leader 1 (leader epoch 5); ISR 1, 2; "
            "min.insync.replicas 2"
        ),
        "  replica  role      start  LEO  behind  in ISR  caught up  fetched",
        "  1        leader    10     150  0       yes     -          -",
        "  2        follower  10     120  30      yes     4 s ago    now",
        "  3        follower  10     100  50      no      5 min ago  5 min ago",
        "the high watermark is the smallest LEO of the ISR: it waits for replica 2",
        (
            "replica 3 is out of the ISR: it fetched last 5 min ago and 50 records are missing "
            "(replica.lag.time.max.ms is 30000)"
        ),
    ]
    assert explain_replicas(reports, 1) == []


def test_a_follower_that_cannot_connect_says_why():
    problem = {
        "leader": 1, "topic": None, "partition": None, "since_ms": 0,
        "problem": "h:9092 refuses the log-in: wrong password",
    }  # fmt: skip
    reports = {
        1: {"replicas": [leader()], "lag_ms_max": 30_000},
        3: {"replicas": [FOLLOWER], "lag_ms_max": 30_000, "fetch_problems": [problem]},
    }

    assert texts(explain_replicas(reports, 0))[-1].endswith(
        "broker 3 cannot fetch from broker 1: h:9092 refuses the log-in: wrong password"
    )


def test_an_isr_that_is_too_small_and_an_open_transaction():
    alone = leader(isr=[1], is_under_min_isr=True, open_transaction_offset=115,
                   last_stable_offset=115, followers=[
                       {"broker": 2, "leo": -1, "caught_up_ms_ago": 9, "fetched_ms_ago": None,
                        "in_sync": False}])  # fmt: skip
    text = texts(explain_replicas({1: {"replicas": [alone], "lag_ms_max": 30_000}}, 0))

    assert text[3:] == [
        "  2        follower  ?      ?    ?       no      ?          never",
        "the high watermark does not move: 1 in sync, and min.insync.replicas is 2",
        "replica 2 is out of the ISR: it has not fetched since broker 1 leads",
        (
            "the last stable offset is 115: a transaction is open since offset 115, and "
            "read_committed consumers wait there"
        ),
    ]


def test_how_long_ago():
    assert [ago(ms) for ms in (999, 1_000, 120_000, 7_200_000)] == [
        "now", "1 s ago", "2 min ago", "2 h ago"
    ]  # fmt: skip
