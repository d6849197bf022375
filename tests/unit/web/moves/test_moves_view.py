"""The page of moves, and the file of the plan that was begun."""

import json

import pytest

from odradek.model.clock import WallMs
from odradek.model.partition import TopicPartition
from odradek.plan.execute import MovePace, MoveProgress
from odradek.plan.movement import MovementPlan, PlanError
from odradek.plan.reassignment import parse_reassignment
from odradek.web.facts.copies import CopyFacts, copy_facts
from odradek.web.facts.poller import Collected
from odradek.web.facts.topic import PartitionFacts, ReplicaFacts
from odradek.web.moves.collect import MovesFacts, MovingPartition
from odradek.web.moves.mover import MoveRunStatus
from odradek.web.moves.saved import SavedPlan, load_newest, mark_done, newest_path, save_plan
from odradek.web.moves.view import MOVES, MoveState, moves_view, moving_lanes
from odradek.web.rendering import plain

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
SAVED = SavedPlan(
    path="/d/c.1.json", is_done=False, title="Drain broker 1", begun_ms=1, pace=MovePace(100, 1),
    before={T0: (0, 1), T1: (1, 0)}, after={T0: (0, 2), T1: (2, 0)}, sizes={},
)  # fmt: skip
COPY = CopyFacts(broker=2, held_bytes=400, left_bytes=600, bytes_per_s=60.0, left_per_s=50.0)
MOVING = MovingPartition(
    partition=T0, leader=0, replicas=(0, 2, 1), adding=(2,), removing=(1,), leader_bytes=1_000,
    copies=(COPY,),
)  # fmt: skip
RATES = {2: {"follower.replication.throttled.rate": "100"}}


def view_of(status=None, **facts):
    moves = MovesFacts(at_ms=5, **facts)
    return moves_view({MOVES: Collected(WallMs(5), moves)}, status or MoveRunStatus(), ("-b", "h"))


def buttons(view):
    names = ("can_pause", "can_continue", "can_cancel", "can_roll_back", "is_throttle_left")
    return [name.partition("_")[2] for name in names if getattr(view, name)]


def test_nothing_moves():
    view = view_of()

    assert (view.state, view.sentence, buttons(view)) == (
        MoveState.NONE, "No replica is being moved.", [],
    )  # fmt: skip


def test_moves_of_another_program_are_shown():
    view = view_of(moving=(MOVING,))

    assert view.state is MoveState.NONE
    assert view.sentence == "1 partitions are being moved, by another program."
    assert buttons(view) == ["cancel"]


def test_what_the_buttons_do_is_there_as_commands_of_kafkas_tools():
    view = view_of(
        moving=(MOVING,), saved=SAVED, unfinished=(T0,), broker_throttles=RATES,
        topic_throttles={"t": {"leader.replication.throttled.replicas": "0:0"}},
    )  # fmt: skip

    assert str(view.cancel_command) == (
        "kafka-reassign-partitions -b h --reassignment-json-file /d/c.1.json --cancel"
    )
    broker = "kafka-configs -b h --alter --entity-type brokers --entity-name 2"
    topic = "kafka-configs -b h --alter --entity-type topics --entity-name t"
    rate = "follower.replication.throttled.rate"
    assert tuple(map(str, view.throttle_commands)) == (f"{broker} --add-config {rate}=RATE",)
    assert tuple(map(str, view.clear_commands)) == (
        f"{broker} --delete-config {rate}",
        f"{topic} --delete-config leader.replication.throttled.replicas",
    )
    assert view_of(moving=(MOVING,)).cancel_command is None


def test_a_running_move_has_bytes_rate_and_time_left():
    status = MoveRunStatus(is_running=True, progress=MoveProgress(0, 2, 400, 2_000, (T0,)))
    view = view_of(
        status, moving=(MOVING,), saved=SAVED, unfinished=(T0, T1), broker_throttles=RATES
    )

    assert view.state is MoveState.RUNNING
    assert view.sentence == (
        "Drain broker 1 is being executed: 0 of 2 partitions are as planned, "
        "400 B of 2.0 kB are copied."
    )
    assert buttons(view) == ["pause", "cancel"]
    assert plain(view)["moving"][0] == {
        "name": "t-0", "leader": 0, "replicas": [0, 2, 1], "adding": [2], "removing": [1],
        "copies": [{"broker": 2, "held_bytes": 400, "whole_bytes": 1_000, "left_bytes": 600,
                    "bytes_per_s": 60.0, "seconds_left": 12.0, "note": ""}],
        "svg": None,
    }  # fmt: skip
    assert view.throttled_brokers == {2: 100}
    assert view.throttles == "broker 2 to 100 B/s"


@pytest.mark.parametrize(
    ("status", "facts", "state", "found"),
    [
        (MoveRunStatus(is_running=True, pauses=True), {"moving": (MOVING,)}, MoveState.PAUSING,
         ["continue", "cancel"]),
        (MoveRunStatus(), {"moving": (MOVING,)}, MoveState.INTERRUPTED, ["continue", "cancel"]),
        (MoveRunStatus(), {}, MoveState.PAUSED, ["continue", "roll_back"]),
        (MoveRunStatus(), {"broker_throttles": RATES}, MoveState.PAUSED,
         ["continue", "roll_back", "throttle_left"]),
    ],
)  # fmt: skip
def test_what_can_be_done_follows_from_the_cluster_and_the_file(status, facts, state, found):
    view = view_of(status, saved=SAVED, unfinished=(T1,), **facts)

    assert (view.state, buttons(view)) == (state, found)
    assert (view.saved.done, view.saved.partitions) == (1, 2)


def test_a_plan_whose_copies_ended_without_this_process_needs_its_end():
    view = view_of(saved=SAVED)

    assert view.state is MoveState.PAUSED
    assert view.sentence == (
        "Drain broker 1 is not executed at the moment: 2 of 2 partitions are as planned; its "
        "execution ended early. Continue elects the preferred leaders."
    )


def test_a_copy_that_does_not_catch_up_has_the_rates_as_the_reason():
    grows = CopyFacts(broker=2, held_bytes=1, left_bytes=9, bytes_per_s=100.0, left_per_s=-50.0)
    moving = MovingPartition(
        partition=T0, leader=0, replicas=(0, 2), adding=(2,), removing=(), leader_bytes=10,
        copies=(grows,),
    )  # fmt: skip
    (copy,) = view_of(moving=(moving,), broker_throttles=RATES).moving[0].copies

    assert copy.seconds_left is None
    assert copy.note == (
        "what is left does not shrink: 150 B/s are written meanwhile, and 100 B/s are copied, "
        "under a throttle of 100 B/s"
    )


def test_rates_are_means_of_what_two_looks_show():
    first = copy_facts(2, 100, 1_000, None, 0.0)
    assert (first.left_bytes, first.bytes_per_s, first.seconds_left) == (900, None, None)
    second = copy_facts(2, 300, 1_100, first, 2.0)
    assert (second.bytes_per_s, second.left_per_s, second.seconds_left) == (100, 50, 16)
    third = copy_facts(2, 300, 1_100, second, 1.0)
    assert (third.bytes_per_s, third.left_per_s) == (pytest.approx(70), pytest.approx(35))
    unknown = copy_facts(2, None, 1_100, third, 1.0)
    assert (unknown.left_bytes, unknown.bytes_per_s) == (None, third.bytes_per_s)


def test_the_lane_of_a_new_replica_has_what_is_left():
    facts = PartitionFacts(
        partition=0, leader=0, leader_epoch=1, isr=(0,), adding=(2,),
        replicas=(ReplicaFacts(broker=0, is_leader=True, in_sync=True), ReplicaFacts(broker=2)),
    )  # fmt: skip
    first, second = moving_lanes(MOVING, facts).lanes

    assert (first.bytes_left, second.bytes_left, second.seconds_left) == (None, 600, 12)


# ------------------------------------------------------------------------------------- the file

PLAN = MovementPlan(
    {T0: (0, 1), T1: (1, 0)}, {T0: (0, 2), T1: (1, 0)}, {T0: 7, T1: 9}, 7, 7.0, 0.0, 0.0
)


def saved(folder, at_ms=5, cluster="a/b"):
    return save_plan(folder, cluster, "Drain", PLAN, MovePace(10, 2, 3.0), WallMs(at_ms))


def test_the_file_is_the_way_back_for_kafkas_tool(tmp_path):
    path = saved(tmp_path / "new")

    assert parse_reassignment(json.loads(path.read_text())) == {T0: (0, 1)}
    assert path.name == "a_b.000000000000005.json"


def test_the_newest_file_of_the_cluster_is_read(tmp_path):
    assert load_newest(tmp_path, "a/b") is None
    saved(tmp_path, 5)
    path = saved(tmp_path, 6)
    saved(tmp_path, 7, "other")
    found = load_newest(tmp_path, "a/b")

    assert found == SavedPlan(
        path=str(path), is_done=False, title="Drain", begun_ms=6, pace=MovePace(10, 2, 3.0),
        before={T0: (0, 1)}, after={T0: (0, 2)}, sizes={"t-0": 7},
    )  # fmt: skip
    mark_done(path)
    assert load_newest(tmp_path, "a/b").is_done
    assert newest_path(tmp_path, "a/b") == str(tmp_path / "a_b.000000000000006.done.json")


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    path = saved(tmp_path)
    path.write_text("{")

    with pytest.raises(PlanError, match="cannot be read"):
        load_newest(tmp_path, "a/b")
