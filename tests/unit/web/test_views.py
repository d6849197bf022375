"""The values of the views."""

import pytest

from odradek.model.clock import WallMs
from odradek.plan.facts import Finding, Severity
from odradek.web.facts.cluster import BrokerOverview, ClusterOverview, TopicCounts
from odradek.web.facts.doctor import Diagnosis
from odradek.web.facts.poller import Collected, FactKey
from odradek.web.facts.topic import PartitionFacts, ReplicaFacts, TopicDetail
from odradek.web.lanes.values import LaneMove, LaneRole
from odradek.web.now.view import CLUSTER, DOCTOR, now_view
from odradek.web.rendering import plain
from odradek.web.topics.view import lanes_of, topic_view, topics_view

AT = WallMs(1_000)
OFFLINE = Finding(Severity.CRITICAL, "offline", "t-0", "no leader", "odradek start 1")


def topic(name: str, **counts) -> TopicCounts:
    plain_counts = {"partitions": 2, "replication_factor": 3, "offline": 0, "under_replicated": 0}
    return TopicCounts(name=name, is_internal=name.startswith("__"), **{**plain_counts, **counts})


CLUSTER_NOW = ClusterOverview(
    cluster_id="c",
    controller=1,
    brokers=(
        BrokerOverview(id=0, is_registered=True, rack="b"),
        BrokerOverview(id=1, is_registered=True, rack="a"),
        BrokerOverview(id=2, is_registered=False, process="killed"),
    ),
    topics=(topic("__consumer_offsets"), topic("t", offline=1, under_replicated=2), topic("a")),
)


def test_now_counts_what_is_missing():
    view = now_view(
        {
            CLUSTER: Collected(AT, CLUSTER_NOW),
            DOCTOR: Collected(AT, Diagnosis(findings=(OFFLINE,), unknown={"lag": "no answer"})),
        }
    )

    assert [(f.name, f.value, f.of, f.is_bad) for f in view.figures] == [
        ("brokers registered", 2, 3, True),
        ("partitions without a leader", 1, 6, True),
        ("partitions not fully replicated", 2, 6, True),
        ("findings of the doctor", 1, None, True),
    ]
    assert [(rack.name, [b.id for b in rack.brokers]) for rack in view.racks] == [
        ("a", [1]), ("b", [0]), (None, [2]),
    ]  # fmt: skip
    assert plain(view)["findings"][0] == {
        "severity": "critical", "kind": "offline", "subject": "t-0", "why": "no leader",
        "fix": "odradek start 1",
    }  # fmt: skip


def test_a_cluster_that_does_not_answer_keeps_what_was_known():
    view = now_view({CLUSTER: Collected(AT, CLUSTER_NOW, "refused")})

    assert view.problem == "refused"
    assert view.figures[0].value == 2
    assert view.findings is None


def test_nothing_is_known_before_the_first_answer():
    view = now_view({})

    assert (view.figures, view.findings, view.racks) == ((), None, ())


def test_topics_are_listed_worst_first_and_internal_ones_apart():
    view = topics_view({CLUSTER: Collected(AT, CLUSTER_NOW)})

    assert [t.name for t in view.topics] == ["t", "a"]
    assert [t.name for t in view.internal] == ["__consumer_offsets"]


def replica(broker: int, **more) -> ReplicaFacts:
    return ReplicaFacts(broker=broker, in_sync=True, **more)


def partition(number: int = 0, *, leader: int | None = 1, **more) -> PartitionFacts:
    replicas = more.pop("replicas", (replica(1, is_leader=True, leo=10), replica(2, leo=10)))
    isr = tuple(r.broker for r in replicas if r.in_sync)
    return PartitionFacts(
        partition=number, leader=leader, leader_epoch=3, isr=isr, replicas=replicas, **more
    )


@pytest.mark.parametrize(
    ("state", "role", "reason"),
    [
        ({"is_leader": True}, LaneRole.LEADER, ""),
        ({}, LaneRole.FOLLOWER, ""),
        (
            {"is_offline": True, "in_sync": False},
            LaneRole.OFFLINE,
            "broker 2 is not registered, or its log directory is offline",
        ),
        (
            {"in_sync": False, "leo": 7, "fetched_ms_ago": 1_500},
            LaneRole.FOLLOWER,
            "it fetched last 1.5 s ago, 3 records behind",
        ),
        (
            {"in_sync": False, "fetched_ms_ago": None},
            LaneRole.FOLLOWER,
            "no fetch is known since broker 1 leads",
        ),
    ],
)
def test_a_lane_says_why_its_replica_is_not_in_sync(state, role, reason):
    second = ReplicaFacts(**{"broker": 2, "in_sync": True, **state})
    lanes = lanes_of("t", partition(replicas=(replica(1, is_leader=True, leo=10), second)))

    assert (lanes.lanes[1].role, lanes.lanes[1].reason) == (role, reason)


def test_a_replica_that_is_added_is_being_copied():
    added = ReplicaFacts(broker=3, in_sync=False, leo=4, fetched_ms_ago=10)
    lanes = lanes_of(
        "t", partition(replicas=(replica(1, is_leader=True, leo=10), added), adding=(3,))
    )

    assert lanes.lanes[1].move is LaneMove.ADDING
    assert lanes.lanes[1].reason == "it is being copied to this broker"


def detail(count: int, **more) -> dict:
    found = tuple(partition(number) for number in range(count))
    value = TopicDetail(name="t", exists=True, at_ms=AT, partitions=found, **more)
    return {FactKey("topic", "t"): Collected(AT, value)}


def test_a_large_topic_is_a_strip_with_the_lanes_of_the_worst():
    view = topic_view(detail(60), "t")

    assert view.strip is not None
    assert len(view.partitions) == 20
    assert topic_view(detail(50), "t").strip is None
    assert [p.lanes.partition for p in topic_view(detail(60), "t", 55).partitions] == [55]


def test_the_size_is_not_known_if_that_of_a_partition_is_not():
    sized = partition(replicas=(replica(1, is_leader=True, size_bytes=7),))
    value = TopicDetail(name="t", exists=True, at_ms=AT, partitions=(sized,))

    assert topic_view({FactKey("topic", "t"): Collected(AT, value)}, "t").size_bytes == 7
    assert topic_view(detail(2), "t").size_bytes is None


def test_decisions_are_shown_newest_first_and_those_of_the_partition():
    journal = tuple(
        {"at_ms": at, "partition": number, "says": str(at)}
        for at, number in ((1, 0), (2, 1), (3, None))
    )

    assert [e["at_ms"] for e in topic_view(detail(2, journal=journal), "t").journal] == [3, 2, 1]
    assert [e["at_ms"] for e in topic_view(detail(2, journal=journal), "t", 0).journal] == [3, 1]


def test_a_topic_that_is_missing_is_told_from_one_that_could_not_be_read():
    missing = {FactKey("topic", "t"): Collected(AT, TopicDetail(name="t", exists=False, at_ms=AT))}
    unread = {FactKey("topic", "t"): Collected(AT, None, "no broker answers")}

    assert not topic_view(missing, "t").exists
    assert topic_view(unread, "t").exists
    assert topic_view(unread, "t").problem == "no broker answers"
