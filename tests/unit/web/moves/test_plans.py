"""A plan on the page: what is asked for, its table, its dangers, its commands."""

import sys

import pytest

from odradek.model.partition import TopicPartition
from odradek.plan.cluster import ClusterPicture, Replicas
from odradek.plan.execute import MovePace
from odradek.plan.movement import PlanError
from odradek.plan.reassignment import batches
from odradek.web.moves.grid import CHANGES_MAX, ROWS_MAX, ChipState
from odradek.web.moves.planned import DANGERS_MAX, page_of, planned_move
from odradek.web.moves.request import PLACED_MAX, PlanKind, PlanRequest, make_plan, parse_request
from odradek.web.rendering import plain

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
PICTURE = ClusterPicture(
    {0: "a", 1: "b", 2: "b"},
    {
        T0: Replicas((0, 1), 1_000, 0, (0, 1)),
        T1: Replicas((1, 0), 3_000, 1, (0, 1)),
        TopicPartition("u", 0): Replicas((2,), 7, 2, (2,)),
    },
    {"t": 1},
)


def parsed(**fields) -> PlanRequest:
    given = {name: value if isinstance(value, list) else [value] for name, value in fields.items()}
    return parse_request(lambda name: given.get(name.replace("from_", "from"), []))


def shown(inflow=None, **fields):
    request = parsed(**fields)
    plan = make_plan(request, PICTURE)
    return planned_move(request, PICTURE, plan, inflow or {}, server=("--bootstrap-server", "h:1"))


PLACE = {"kind": "place", "topic": "t"}


def test_the_fields_of_a_form_are_a_request():
    request = parsed(kind="drain", broker=["1", "2"], throttle="50MB", batch="3", batch_bytes="1GB")

    assert request == PlanRequest(
        kind=PlanKind.DRAIN, brokers=(1, 2), pace=MovePace(50_000_000, 3, 1_000_000_000.0)
    )
    assert parsed(kind="rebalance", throttle="", by="bytes").by_bytes
    assert parsed(kind="replication-factor", topic="a, b", factor="2").topics == ("a", "b")
    assert parsed(**PLACE, put=["0:2,1", "1:0"]).puts == {0: (2, 1), 1: (0,)}


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"kind": "x"}, "must be one of rebalance, drain"),
        ({}, "must be one of"),
        ({"kind": "drain", "broker": "-1"}, "broker='-1': must be a number from 0 on"),
        ({"kind": "rebalance", "throttle": "fast"}, "'fast' is not a number of bytes"),
        ({"kind": "rebalance", "throttle": "5i"}, "'5i' is not a number of bytes"),
        ({"kind": "rebalance", "throttle": "0"}, "must be 1 byte or more"),
        ({"kind": "rebalance", "batch": "0"}, "must be a number from 1 on"),
        ({"kind": "partitions", "topic": "t"}, "count='': must be a number from 1 on"),
        ({"kind": "place", "put": "0"}, "put='': must be a number"),
    ],
)
def test_a_field_that_is_not_valid_is_named(fields, why):
    with pytest.raises(PlanError, match=r".*") as caught:
        parsed(**fields)
    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"kind": "drain"}, "name a broker to drain"),
        ({"kind": "replication-factor", "factor": "2"}, "name a topic"),
        ({"kind": "place", "topic": "none"}, "there is no topic none"),
        ({**PLACE, "partition": "0", "from": "2", "to": "1"}, "t-0 has no replica on broker 2"),
        ({**PLACE, "partition": "0", "from": "0", "to": "1"}, "t-0 has a replica on broker 1"),
        ({**PLACE, "put": "0:0,9"}, "t-0: broker 9 is not registered"),
        ({**PLACE, "put": "0:2,2"}, "and none twice"),
        ({**PLACE, "put": "7:2"}, "there is no partition t-7"),
        ({"kind": "roll-back"}, "there is no file"),
    ],
)
def test_a_plan_that_is_not_possible_has_the_reason(fields, why):
    with pytest.raises(PlanError, match=r".*") as caught:
        make_plan(parsed(**fields), PICTURE)
    assert why in str(caught.value)


def test_a_replica_that_is_put_elsewhere_keeps_its_place_in_the_order():
    view = shown(**PLACE, put="1:2,0", partition="0", to="2", **{"from": "1"})

    assert plain(view.partitions) == [
        {"name": "t-0", "before": [0, 1], "after": [0, 2], "added": [2], "removed": [1],
         "preferred_leader_changes": False, "copied_bytes": 1_000},
        {"name": "t-1", "before": [1, 0], "after": [2, 0], "added": [2], "removed": [1],
         "preferred_leader_changes": True, "copied_bytes": 3_000},
    ]  # fmt: skip
    assert (view.changed, view.copied, view.copied_bytes, view.bound_bytes) == (2, 2, 4_000, None)
    assert [(x.broker, x.replicas, x.leaders, x.size_bytes) for x in view.loads] == [
        (0, (2, 2), (1, 1), (4_000, 4_000)),
        (1, (2, 0), (1, 0), (4_000, 0)),
        (2, (1, 3), (1, 2), (7, 4_007)),
    ]


def test_the_grid_has_a_chip_for_each_replica_and_its_changes_as_fields():
    grid = shown(**PLACE, put="0:2,0").grid

    assert [(c.broker, c.rack) for c in grid.columns] == [(0, "a"), (1, "b"), (2, "b")]
    assert [[chip and (chip.state, chip.is_preferred) for chip in row.chips] for row in grid.rows] \
        == [
            [(ChipState.STAYS, False), (ChipState.REMOVED, False), (ChipState.ADDED, True)],
            [(ChipState.STAYS, False), (ChipState.STAYS, True), None],
        ]  # fmt: skip
    assert grid.puts == ("0:2,0",)


def test_a_throttle_is_held_against_what_is_written_meanwhile():
    slow = shown({T0: 500.0}, **PLACE, put="0:0,2", throttle="400")
    assert [d.kind for d in slow.dangers] == ["throttle"]
    assert (
        "It would never end: the new replicas of broker 2 receive 500 B/s" in slow.dangers[0].text
    )
    assert slow.seconds is None

    enough = shown({T0: 500.0}, **PLACE, put="0:0,2", throttle="600")
    assert enough.dangers == ()
    assert enough.seconds == 10
    assert shown(**PLACE, put="0:0,2").dangers[0].kind == "no-throttle"


def test_replicas_in_one_rack_are_a_danger():
    view = shown(**PLACE, put="0:2,1", throttle="1MB")

    assert [(d.kind, d.text) for d in view.dangers] == [
        ("rack", "t-0: 2 replicas would be in rack b and none in rack a: they fail together")
    ]


def test_added_partitions_continue_the_assignment():
    view = shown(kind="partitions", topic="t", count="4")

    assert [(p.name, p.before, p.after) for p in view.partitions] == [
        ("t-2", (), (2, 0)), ("t-3", (), (0, 1)),
    ]  # fmt: skip
    assert (view.copied, view.copied_bytes, view.grid) == (0, 0, None)
    assert str(view.kafka_command) == (
        "kafka-topics --bootstrap-server h:1 --alter --topic t --partitions 4 "
        "--replica-assignment 0:1,1:0,2:0,0:1"
    )


def test_the_same_plan_is_a_command():
    view = shown(**PLACE, put="0:0,2", throttle="600")
    assert view.own_command is None
    assert str(view.kafka_command) == (
        "kafka-reassign-partitions --bootstrap-server h:1 --reassignment-json-file plan.json "
        "--throttle 600 --execute"
    )


def test_a_drain_is_a_command_and_has_a_bound():
    pytest.importorskip("scipy", reason="the extra `plan`")
    view = shown(kind="drain", broker="1", throttle="1MB", batch="2")

    assert str(view.own_command) == (
        "odradek plan drain 1 --throttle 1000000 --batch 2 --bootstrap-server h:1 --execute"
    )
    assert view.copied_bytes == 4_000
    assert view.bound_bytes == pytest.approx(4_000, rel=0.001)
    assert all(1 not in p.after for p in view.partitions)


def test_batches_are_limited_by_number_and_by_bytes():
    request = parsed(**PLACE, put=["0:0,2", "1:1,2"])
    plan = make_plan(request, PICTURE)

    assert list(batches(plan, [T0, T1], 2, None)) == [[T0, T1]]
    assert list(batches(plan, [T0, T1], 1, None)) == [[T0], [T1]]
    assert list(batches(plan, [T0, T1], 2, 3_999)) == [[T0], [T1]]
    assert list(batches(plan, [T0, T1], 2, 10)) == [[T0], [T1]]  # each is larger


def test_without_the_solver_the_reason_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)

    with pytest.raises(PlanError, match="scipy, and it is not installed: .*pip install"):
        make_plan(parsed(kind="rebalance"), PICTURE)


# ------------------------------------------------------------------------------ large plans


def large(count, put):
    """The view of a plan by which the first `put` of `count` partitions go to broker 2."""
    names = [TopicPartition("t", number) for number in range(count)]
    held = {name: Replicas((0, 1), 1_000, 0, (0, 1)) for name in names}
    picture = ClusterPicture(PICTURE.racks, held, {"t": 1})
    request = parsed(**PLACE, put=[f"{number}:0,2" for number in range(put)])
    return planned_move(request, picture, make_plan(request, picture), {})


def test_a_large_plan_is_shown_in_pages_and_its_figures_are_of_the_whole():
    whole = large(1_000, 250)
    pages = [page_of(whole, number, 100) for number in (1, 2, 3)]

    assert [(p.page, p.pages, len(p.partitions)) for p in pages] == [
        (1, 3, 100), (2, 3, 100), (3, 3, 50),
    ]  # fmt: skip
    assert [p.partitions[0].name for p in pages] == ["t-0", "t-100", "t-200"]
    assert {(p.id, p.changed, p.copied_bytes) for p in pages} == {(whole.id, 250, 250_000)}
    assert page_of(whole, 9, 100) == pages[2]


def test_a_grid_shows_some_partitions_and_goes_on_with_all_changes():
    grid = large(1_000, 250).grid

    assert (len(grid.rows), grid.more) == (ROWS_MAX, 1_000 - ROWS_MAX)
    assert all(row.is_changed for row in grid.rows)
    assert grid.puts == tuple(f"{number}:0,2" for number in range(250))
    assert large(1_000, CHANGES_MAX + 1).grid is None


def test_a_few_dangers_are_listed_and_the_rest_is_counted():
    names = [TopicPartition("t", number) for number in range(50)]
    # The broker to wait for is in the text, so each is a danger of its own.
    held = {p: Replicas((p.partition, 90), 1_000, -1, (p.partition,)) for p in names}
    picture = ClusterPicture({**dict.fromkeys(range(50)), 90: None, 91: None}, held, {"t": 1})
    request = parsed(**PLACE, put=[f"{p.partition}:{p.partition},91" for p in names])
    view = planned_move(request, picture, make_plan(request, picture), {})

    assert len(view.dangers) == DANGERS_MAX
    assert view.more_dangers == 51 - DANGERS_MAX


def test_a_command_names_the_replicas_of_a_few_partitions_only():
    few, many = (
        str(shown(kind="partitions", topic="t", count=str(count)).kafka_command)
        for count in (PLACED_MAX, PLACED_MAX + 1)
    )
    assert "--replica-assignment 0:1,1:0," in few
    assert many.endswith(f"--partitions {PLACED_MAX + 1}")
