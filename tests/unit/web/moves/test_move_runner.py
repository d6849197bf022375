"""Plans that are kept until they are executed, and the routes before any cluster answers."""

import asyncio

import pytest
from tests.asgi import request

from odradek.model.clock import WallMs
from odradek.model.partition import TopicPartition
from odradek.plan.cluster import ClusterPicture, Replicas
from odradek.plan.execute import MovePace
from odradek.plan.movement import MovementPlan, PlanError
from odradek.web.app import create_app
from odradek.web.facts.source import Source
from odradek.web.moves.mover import KEPT, MoveRunner, plan_file, rest_of
from odradek.web.moves.planned import PlannedMove, plan_id, planned_move
from odradek.web.moves.request import PlanKind, PlanRequest
from odradek.web.moves.saved import SavedPlan, load_newest, save_pace, save_plan

REQUEST = PlanRequest(kind=PlanKind.REBALANCE)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def plan_to_broker(broker: int) -> MovementPlan:
    return MovementPlan({T0: (0,)}, {T0: (broker,)}, {T0: 1}, 1, 1.0, 0.0, 0.0)


def view_of(plan: MovementPlan) -> PlannedMove:
    return planned_move(REQUEST, ClusterPicture({0: None}, {T0: Replicas((0,), 1)}), plan, {})


async def unreachable():
    raise ConnectionError("no broker answers")


def test_the_plans_that_were_shown_last_are_kept(tmp_path):
    runner = MoveRunner(unreachable, tmp_path)
    plans = [plan_to_broker(broker) for broker in range(1, KEPT + 2)]
    for plan in plans:
        runner.keep(REQUEST, plan, view_of(plan))

    assert runner.shown(plan_id(plans[1])).plan == plans[1]
    with pytest.raises(PlanError, match="not kept any more"):
        runner.shown(plan_id(plans[0]))


def test_a_plan_has_a_file_and_a_file_of_the_way_back():
    plan = plan_to_broker(7)

    assert '"replicas": [\n    7\n   ]' in plan_file(plan)
    assert '"replicas": [\n    0\n   ]' in plan_file(plan, back=True)


def test_what_is_left_of_a_plan_leaves_out_what_is_done_and_what_was_deleted():
    saved = SavedPlan(
        path="p", is_done=False, title="x", begun_ms=1, pace=MovePace(), sizes={}, before={},
        after={T0: (1,), T1: (1,), TopicPartition("deleted", 0): (1,)},
    )  # fmt: skip
    held = {T0: Replicas((1,), 5), T1: Replicas((0,), 5)}

    assert rest_of(saved, ClusterPicture({0: None, 1: None}, held)).changed == [T1]


def test_nothing_runs_that_could_be_paused(tmp_path):
    runner = MoveRunner(unreachable, tmp_path)

    with pytest.raises(PlanError, match="no plan is being executed"):
        asyncio.run(runner.pause())
    assert not runner.status.is_running


@pytest.mark.parametrize("button", ["begin", "continue", "pause", "cancel", "throttle"])
def test_a_page_that_is_read_only_moves_nothing(button):
    app = create_app(Source({"bootstrap.servers": "127.0.0.1:1"}))

    assert request(app, "POST", f"/moves/{button}", body={}).status_code == 403


def test_a_field_that_is_not_valid_is_answered_with_the_reason():
    app = create_app(Source({"bootstrap.servers": "127.0.0.1:1"}))
    answer = request(
        app, "GET", "/moves/plan?kind=x", {"accept": "application/json"}, lifespan=True
    )

    assert answer.status_code == 422
    assert "must be one of rebalance" in answer.json()["error"]


def test_a_throttle_that_was_changed_is_in_the_file_of_the_plan(tmp_path):
    plan = plan_to_broker(1)
    path = save_plan(tmp_path, "c", "x", plan, MovePace(throttle=10, batch=3), WallMs(1))
    save_pace(path, MovePace(throttle=99, batch=3))
    saved = load_newest(tmp_path, "c")

    assert saved is not None
    assert (saved.pace, saved.after) == (MovePace(throttle=99, batch=3), {T0: (1,)})
