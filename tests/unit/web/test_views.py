"""The values of the views."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

import pytest
from starlette.applications import Starlette
from tests.asgi import request

from odradek.model.clock import WallMs
from odradek.model.command import command
from odradek.model.partition import TopicPartition
from odradek.model.sentence import sentence
from odradek.plan.cluster import ClusterPicture, Replicas
from odradek.plan.commands import Caller
from odradek.plan.facts import Finding, Severity
from odradek.plan.permissions import PermissionTextError
from odradek.web.access.view import ACCESS, access_view, acls_of, permission
from odradek.web.app import KINDS, create_app
from odradek.web.brokers.view import consequences, disk_view
from odradek.web.facts.access import AccessFacts
from odradek.web.facts.broker import DirectoryFacts, DiskSample
from odradek.web.facts.cluster import (
    BrokerOverview,
    ClusterOverview,
    RackSeen,
    TopicCounts,
    state_of,
)
from odradek.web.facts.copies import CopyFacts, whole_bytes
from odradek.web.facts.doctor import Diagnosis
from odradek.web.facts.journal import ClusterHistory, Happening, differences, happening_of
from odradek.web.facts.poller import Collected, FactKey, FactKind
from odradek.web.facts.source import Source
from odradek.web.facts.topic import PartitionFacts, ReplicaFacts, TopicDetail
from odradek.web.lab.pages import lab_view
from odradek.web.lanes.values import LaneMove, LaneRole
from odradek.web.now.view import CLUSTER, DOCTOR, now_view
from odradek.web.rendering import clock, plain
from odradek.web.timeline.view import JOURNAL, timeline_view
from odradek.web.topics.view import lanes_of, topic_view, topic_view_at, topics_view
from odradek.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

AT = WallMs(1_000)
OFFLINE = Finding(
    Severity.CRITICAL, "offline", "t-0", "no leader", sentence(command("odradek", "start", "1"))
)
START = {"words": ["odradek", "start", "1"], "text": "odradek start 1"}


def topic(name: str, **counts) -> TopicCounts:
    plain_counts = {"partitions": 2, "replication_factor": 3, "offline": 0, "under_replicated": 0}
    return TopicCounts(name=name, is_internal=name.startswith("__"), **{**plain_counts, **counts})


CLUSTER_NOW = ClusterOverview(
    cluster_id="c",
    controller=1,
    brokers=(
        BrokerOverview(id=0, is_registered=True, rack="b"),
        BrokerOverview(id=1, is_registered=True, rack="a"),
        BrokerOverview(id=2, is_registered=False, process="killed", rack_seen=RackSeen.NEVER),
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
    assert racks_of(CLUSTER_NOW) == [("a", True, [1]), ("b", True, [0]), (None, False, [2])]
    assert plain(view)["findings"][0] == {
        "severity": "critical", "kind": "offline", "subject": "t-0", "why": "no leader",
        "fix": {"text": "odradek start 1", "commands": [START]}, "broker": None,
    }  # fmt: skip


def racks_of(cluster):
    racks = now_view({CLUSTER: Collected(AT, cluster)}).racks
    return [(rack.name, rack.is_known, [b.id for b in rack.brokers]) for rack in racks]


def metadata(*brokers):
    partition = MetadataResponsePartition(replica_nodes=[0, 1, 2], leader_id=0)
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=id_, rack=rack) for id_, rack in brokers],
        topics=[MetadataResponseTopic(name="t", partitions=[partition])],
    )


def test_a_broker_that_is_away_keeps_the_rack_that_it_had():
    there = state_of(metadata((0, "a"), (1, "b"), (2, None)), {}, {})
    away = state_of(metadata((0, "a")), {}, {}, there.brokers)
    still_away = state_of(metadata((0, "c")), {}, {}, away.brokers)

    assert [(b.rack, b.rack_seen) for b in away.brokers] == [
        ("a", RackSeen.NOW), ("b", RackSeen.BEFORE), (None, RackSeen.BEFORE),
    ]  # fmt: skip
    assert racks_of(away) == [("a", True, [0]), ("b", True, [1]), (None, True, [2])]
    assert racks_of(still_away) == [("b", True, [1]), ("c", True, [0]), (None, True, [2])]


def test_the_rack_of_a_broker_that_was_never_seen_is_not_known():
    first = state_of(metadata((0, "a")), {}, {})
    second = state_of(metadata((0, "a")), {}, {}, first.brokers)
    back = state_of(metadata((0, "a"), (1, None)), {}, {}, second.brokers)

    assert racks_of(first) == racks_of(second) == [("a", True, [0]), (None, False, [1, 2])]
    assert racks_of(back) == [("a", True, [0]), (None, True, [1]), (None, False, [2])]


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
            {"is_offline": True, "is_registered": False, "in_sync": False},
            LaneRole.OFFLINE,
            "broker 2 is not registered",
        ),
        (
            {"is_offline": True, "in_sync": False},
            LaneRole.OFFLINE,
            "its log directory on broker 2 is offline",
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


def test_the_lane_of_a_replica_that_is_added_has_what_is_left_and_the_time_for_it():
    copy = CopyFacts(broker=2, held_bytes=400, left_bytes=600, bytes_per_s=70.0, left_per_s=60.0)
    second = ReplicaFacts(broker=2, leo=7, copy=copy)
    moving = partition(replicas=(replica(1, is_leader=True, leo=10), second), adding=(2,))

    lane = lanes_of("t", moving).lanes[1]
    assert (lane.move, lane.bytes_left) == (LaneMove.ADDING, 600)
    assert (lane.bytes_per_s, lane.seconds_left) == (70.0, 10.0)


@pytest.mark.parametrize(
    ("sizes", "whole"),
    [({1: 5, 2: 9}, 5), ({1: None, 2: 9, 3: 3}, 9), ({1: None}, None), ({}, None)],
)
def test_a_partition_has_the_bytes_of_its_leader_or_those_of_the_largest_replica(sizes, whole):
    assert whole_bytes(sizes, 1) == whole


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


def test_a_lane_of_another_moment_says_how_far_it_is_from_the_leaders():
    second = ReplicaFacts(broker=2, in_sync=True, leo=12, apart_ms=-400)
    lanes = lanes_of("t", partition(replicas=(replica(1, is_leader=True, leo=10), second)))

    said = "offsets of its own report, 0.4 s before the leader's"
    assert [lane.reason for lane in lanes.lanes] == ["", said]


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


def decided(at_ms: int, number: int, leader: int, isr: tuple[int, ...]) -> dict:
    after = {"leader": leader, "leader_epoch": at_ms, "isr": isr, "recovering": False}
    return {"at_ms": at_ms, "partition": number, "says": "", "after": after}


def test_a_moment_that_was_not_observed_has_the_leaders_and_isrs_of_the_journal():
    journal = (decided(10, 0, 1, (1, 2)), decided(20, 0, 2, (2,)), decided(30, 0, 1, (1, 2)))
    view = topic_view_at({}, detail(2, journal=journal), "t", 25)

    assert view.is_rebuilt
    assert [p.lanes.partition for p in view.partitions] == [0]  # 1 did not exist yet
    lanes = {lane.broker: lane for lane in view.partitions[0].lanes.lanes}
    assert (lanes[2].role, lanes[2].in_sync, lanes[2].leo) == (LaneRole.LEADER, True, None)
    assert (lanes[1].role, lanes[1].in_sync) == (LaneRole.FOLLOWER, False)
    assert [e["at_ms"] for e in view.journal] == [20, 10]


def test_a_moment_that_was_observed_is_shown_as_it_was():
    view = topic_view_at(detail(1), detail(3), "t", 25)

    assert not view.is_rebuilt
    assert view.count == 1


# --------------------------------------------------------------------------------- a broker


def test_what_happens_if_a_broker_fails_is_told_by_partition():
    held = {
        0: Replicas((1, 2), 0, 1, (1,)),  # no other in sync
        1: Replicas((1, 2), 0, 2, (1, 2)),  # one is left, two are needed
        2: Replicas((1, 2, 3), 0, 1, (1, 2, 3)),  # another leads
        3: Replicas((2, 1, 3), 0, 2, (1, 2, 3)),
        4: Replicas((2, 3), 0, 2, (2, 3)),  # not concerned
        5: Replicas((2, 3, 1), 0, 2, (2, 3)),  # it is out of sync already
    }
    picture = ClusterPicture(
        {1: None, 2: None, 3: None},
        {TopicPartition("t", number): replicas for number, replicas in held.items()},
        {"t": 2},
    )

    assert [(c.kind, c.partitions) for c in consequences(picture, 1)] == [
        ("offline", ("t-0",)),
        ("under-min-isr", ("t-1",)),
        ("election", ("t-2",)),
        ("under-replicated", ("t-3", "t-5")),
    ]


def directory(*samples: tuple[int, int]) -> DirectoryFacts:
    return DirectoryFacts(
        path="/d", is_offline=False, replicas=1, held_bytes=5, total_bytes=1_000,
        usable_bytes=samples[-1][1], samples=tuple(DiskSample(*each) for each in samples),
    )  # fmt: skip


def test_a_disk_that_fills_up_has_the_time_until_it_is_full():
    disk = disk_view(directory((0, 400), (60_000, 340), (120_000, 280)))

    assert disk.fills_bytes_per_s == pytest.approx(1.0)
    assert disk.full_in_s == pytest.approx(280)
    assert disk.used_percent == pytest.approx(72)


@pytest.mark.parametrize(
    "samples", [((0, 400),), ((0, 400), (59_000, 300)), ((0, 300), (60_000, 400))]
)
def test_no_forecast_is_made_of_too_little_or_of_a_disk_that_empties(samples):
    assert disk_view(directory(*samples)).full_in_s is None


# ------------------------------------------------------------------------------- the timeline


def overview(**more) -> ClusterOverview:
    return replace(CLUSTER_NOW, **more)


def test_polls_of_a_foreign_cluster_show_what_changed():
    brokers = (CLUSTER_NOW.brokers[0], replace(CLUSTER_NOW.brokers[1], is_registered=False))
    after = overview(controller=0, brokers=brokers, topics=(topic("t", offline=2), topic("b")))

    assert [h.says for h in differences(CLUSTER_NOW, after, 7)] == [
        "the controller is broker 0, and was broker 1",
        "broker 1 is no longer registered",
        "topic t has 2 partitions offline, and had 1",
        "topic t has 0 partitions under-replicated, and had 2",
        "topic b exists",
        "topic __consumer_offsets does not exist any more",
        "topic a does not exist any more",
    ]
    assert list(differences(CLUSTER_NOW, CLUSTER_NOW, 7)) == []


def test_the_timeline_of_a_moment_has_what_happened_until_then():
    happened = tuple(Happening(at_ms=at, says=str(at), kind="NOTE") for at in (1, 5, 9))
    journal = ClusterHistory(happenings=happened, begins_ms=0, is_reported=True)
    facts = {JOURNAL: Collected(WallMs(10), journal)}

    assert [h.at_ms for h in timeline_view(facts, {}, None).happenings] == [9, 5, 1]
    view = timeline_view(facts, {CLUSTER: Collected(AT, CLUSTER_NOW)}, 5)
    assert [h.at_ms for h in view.happenings] == [5, 1]
    assert view.now is not None
    assert timeline_view(facts, {}, 5).now is None


def test_the_command_beside_a_reason_names_the_properties_of_the_client(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    detail = TopicDetail(
        name="t",
        exists=True,
        at_ms=1,
        partitions=(partition(),),
        sentences=(sentence("t-0: it is so"),),
    )
    source = Source({"bootstrap.servers": "127.0.0.1:1"}, config="c.properties")

    text = request(page_of(source, {"topic": detail}), "GET", "/topics/t", lifespan=True).text
    shown = "odradek why topic t --bootstrap-server 127.0.0.1:1 --command-config c.properties"
    assert f"<code>{shown}</code>" in text


def page_of(source: Source, values: Mapping[str, object]) -> Starlette:
    """The page on these facts, by their kinds."""

    def kind(value: object) -> FactKind:
        async def collect(*_arguments: object) -> object:
            return value

        return FactKind(collect)

    kinds = {name: kind(value) for name, value in values.items()}
    return create_app(source, kinds={**KINDS, **kinds})


def test_the_timeline_of_a_moment_has_the_address_that_the_other_views_have(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    happened = tuple(Happening(at_ms=at, says=str(at), kind="NOTE") for at in (1, 5, 9))
    history = ClusterHistory(happenings=happened, begins_ms=0, is_reported=True)
    found = {"cluster": CLUSTER_NOW, "doctor": Diagnosis(findings=(), unknown={})}
    app = page_of(Source({"bootstrap.servers": "127.0.0.1:1"}), {**found, "journal": history})

    view = request(app, "GET", "/timeline?at=5", {"accept": "application/json"}, lifespan=True)
    assert [each["at_ms"] for each in view.json()["happenings"]] == [5, 1]
    assert view.json()["at_ms"] == 5


# --------------------------------------------------------------------------------------- access


def test_permissions_are_shown_in_words_with_the_command_that_removes_them():
    acls = acls_of(permission({"principal": "app", "operations": "read", "kind": "topic",
                               "name": "orders-*"}))  # fmt: skip
    facts = {ACCESS: Collected(AT, AccessFacts(acls=tuple(acls), users={"app": (("S", 1),)}))}
    view = access_view(facts, Caller(bootstrap="b:1"))

    (each,) = view.permissions
    assert each.principal == "User:app"
    assert "orders-" in each.sentences[0]
    assert tuple(map(str, each.removals)) == (
        (
            "kafka-acls --bootstrap-server b:1 --remove --allow-principal User:app "
            "--operation Read --topic orders- --resource-pattern-type prefixed"
        ),
    )
    assert [user.name for user in view.users] == ["app"]


@pytest.mark.parametrize(
    "fields",
    [
        {"principal": "app", "operations": "fly", "kind": "topic", "name": "t"},
        {"principal": "app", "operations": "read", "kind": "topic"},
        {"principal": "app", "operations": "read", "kind": "house", "name": "t"},
        {"principal": "", "operations": "read", "kind": "topic", "name": "t"},
    ],
)
def test_words_that_are_no_permission_are_refused(fields):
    with pytest.raises(PermissionTextError):
        permission(fields)


def test_the_lab_offers_what_a_process_allows():
    brokers = (
        BrokerOverview(id=0, is_registered=True, process="running"),
        BrokerOverview(id=1, is_registered=False, process="killed"),
        BrokerOverview(id=2, is_registered=True, process="paused"),
        BrokerOverview(id=3, is_registered=True),
    )
    view = lab_view({CLUSTER: Collected(AT, overview(brokers=brokers))}, "")

    assert [each.actions for each in view.brokers] == [
        ("pause", "kill", "stop", "restart"),
        ("start",),
        ("resume", "kill"),
        (),
    ]


def test_one_partition_has_the_sentences_about_it_and_about_the_topic():
    lines = ("t-1: replica 2 is out of sync", "  because it is slow", "t-10: has no leader")
    facts = detail(11, sentences=("on topic t", *lines))

    assert topic_view(facts, "t", 1).sentences == ("on topic t", *lines[:2])
    assert topic_view(facts, "t", 10).sentences == ("on topic t", lines[2])
    assert topic_view(facts, "t").sentences == ("on topic t", *lines)


def test_a_moment_of_another_day_has_its_date():
    today = datetime.now().astimezone().replace(hour=12, minute=0, second=5, microsecond=0)
    then = today.replace(year=2020, month=2, day=3)

    assert clock(int(today.timestamp() * 1000)) == "12:00:05"
    assert clock(int(then.timestamp() * 1000)) == f"{then:%Y-%m-%d} 12:00:05"


def test_topics_are_listed_in_pages_and_filtered_by_name():
    topics = tuple(topic(f"Topic-{n:03}", offline=int(n == 240)) for n in range(250))
    facts = {CLUSTER: Collected(AT, replace(CLUSTER_NOW, topics=topics))}

    first, last = topics_view(facts), topics_view(facts, page=3)
    assert [t.name for t in first.topics[:2]] == ["Topic-240", "Topic-000"]
    assert (len(first.topics), first.found, first.page, first.pages) == (100, 250, 1, 3)
    assert (len(last.topics), last.page) == (50, 3)
    found = topics_view(facts, "topic-01")
    assert [t.name for t in found.topics] == [f"Topic-{n:03}" for n in range(10, 20)]


@pytest.mark.parametrize(
    ("broker", "says", "shown"),
    [
        (1, "1: broker offline because x", "broker 1: broker offline because x"),
        (1, "t-0: leader elected", "t-0: leader elected"),
        (None, "controller epoch 1 begins", "controller epoch 1 begins"),
    ],
)
def test_a_decision_about_a_broker_names_it_as_one(broker, says, shown):
    entry = {"at_ms": 1, "says": says, "verdict": "BROKER_GONE", "broker": broker}

    assert happening_of(entry).says == shown
