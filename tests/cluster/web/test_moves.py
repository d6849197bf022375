"""Plans made, executed, cancelled and rolled back on the page, with real brokers."""

import asyncio
import re
import subprocess
import sys
import time
from contextlib import asynccontextmanager

import pytest

pytest.importorskip("scipy", reason="the extra `plan`")
pytest.importorskip("starlette", reason="the extra `web`")

from peers import Peer
from tests.asgi import requested
from tests.served import ServedPage

from odradek.client.admin.topics import BROKER, Alteration, alter_configs, describe_topics
from odradek.client.cluster import Cluster
from odradek.record.records import Record, build_batch
from odradek.web.app import create_app
from odradek.web.facts.source import Source
from odradek.web.guard import TOKEN_HEADER, WriteAccess

WAIT_S = 90
RATE = "follower.replication.throttled.rate"


def odradek(*arguments):
    command = [sys.executable, "-m", "odradek", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, (arguments, done.stdout, done.stderr)
    return done.stdout


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory):
    path = tmp_path_factory.mktemp("moves") / "D"
    output = odradek("up", "--brokers", "3", "--dir", path, "--detach")
    yield output.strip().splitlines()[-1]
    odradek("down", "--dir", path)


@pytest.fixture(autouse=True)
def _state_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def create(bootstrap, topic, assignment="0:1,0:1"):
    """A topic with more bytes in a partition than the first fetch takes, which is not throttled."""
    odradek("topics", "--bootstrap-server", bootstrap, "--create", "--topic", topic,
            "--replica-assignment", assignment)  # fmt: skip
    now_ms = time.time_ns() // 1_000_000
    batch = bytes(build_batch([Record(None, b"x" * 500, now_ms) for _ in range(1000)]))
    deadline_s = time.monotonic() + WAIT_S
    with Peer(int(bootstrap.split(",")[0].rpartition(":")[2])) as peer:
        for partition in (0, 1) * 6:
            while peer.produce(topic, partition, batch).error_code:
                assert time.monotonic() < deadline_s
                time.sleep(0.05)  # the broker is not yet the leader


class Page:
    """The page in this process, with the right to write."""

    def __init__(self, app, token):
        self._app, self._token = app, token

    async def get(self, path):
        answer = await requested(self._app, "GET", path, {"accept": "application/json"})
        return answer.status_code, answer.json()

    async def html(self, path):
        answer = await requested(self._app, "GET", path, {"accept": "text/html"})
        assert answer.status_code == 200, answer.text
        return answer.text

    async def post(self, path, **body):
        answer = await requested(self._app, "POST", path, {TOKEN_HEADER: self._token}, body)
        return answer.status_code, answer.json()

    async def planned(self, query):
        status, plan = await self.get(f"/moves/plan?{query}")
        assert status == 200, plan
        return plan

    async def begin(self, query):
        plan = await self.planned(query)
        status, answer = await self.post("/moves/begin", plan=plan["id"])
        assert status == 200, answer
        return plan

    async def until(self, holds, path="/moves"):
        async with asyncio.timeout(WAIT_S):
            while True:
                status, view = await self.get(path)
                assert status == 200
                assert view["problem"] is None
                if holds(view):
                    return view
                await asyncio.sleep(0.1)  # polled: what is fresh is not collected again


@asynccontextmanager
async def opened(bootstrap):
    access = WriteAccess(is_enabled=True)
    token = access.exchange(access.code)
    app = create_app(Source({"bootstrap.servers": bootstrap}), write_access=access)
    async with app.router.lifespan_context(app):
        yield Page(app, token)


async def replicas(bootstrap, topic):
    async with await Cluster.bootstrap(bootstrap) as cluster:
        (found,) = await describe_topics(cluster, [topic])
        return {p.partition_index: sorted(p.replica_nodes) for p in found.partitions}


async def become(bootstrap, topic, expected):
    """Wait until a broker that is asked has these replicas: metadata reaches each in its time."""
    async with asyncio.timeout(WAIT_S):
        while True:
            if await replicas(bootstrap, topic) == expected:
                return
            await asyncio.sleep(0.1)  # polled: there is no event to wait for from outside


def new_lane(view):
    """The lane of a replica that is being added."""
    lanes = view["partitions"][0]["lanes"]["lanes"]
    return next(lane for lane in lanes if lane["move"] == "adding")


def unthrottled(view):
    return not view["throttled_brokers"] and not view["throttled_topics"]


def test_a_plan_is_shown_executed_and_rolled_back_and_leaves_no_throttle(bootstrap):
    create(bootstrap, "moved")

    async def run():
        async with opened(bootstrap) as page:
            query = "kind=replication-factor&topic=moved&factor=3&throttle=50MB&batch=1"
            shown = await page.planned(query)
            assert (shown["changed"], shown["copied"], shown["batches"]) == (2, 2, 2)
            assert shown["copied_bytes"] > 2 * 2_000_000
            assert shown["bound_bytes"] == pytest.approx(shown["copied_bytes"], rel=0.001)
            assert [p["added"] for p in shown["partitions"]] == [[2], [2]]
            assert "At 50.0 MB/s it takes about" in shown["duration"]
            assert "Execute this plan" in await page.html(f"/moves/plan?{query}")
            await become(bootstrap, "moved", {0: [0, 1], 1: [0, 1]})

            await page.begin(query)
            done = await page.until(lambda view: view["state"] == "done" and unthrottled(view))
            assert done["saved"]["done"] == 2
            assert done["run_problem"] is None
            await become(bootstrap, "moved", {0: [0, 1, 2], 1: [0, 1, 2]})
            text = await page.html("/moves")
            assert "Replication factor 3 for moved is done." in text

            plan = await page.begin("kind=roll-back&throttle=50MB")
            assert [p["removed"] for p in plan["partitions"]] == [[2], [2]]
            await page.until(lambda view: view["saved"]["title"] == "Roll back"
                             and view["state"] == "done" and unthrottled(view))  # fmt: skip
            await become(bootstrap, "moved", {0: [0, 1], 1: [0, 1]})

    asyncio.run(run())


def test_a_move_is_seen_after_a_restart_of_the_page_and_cancelled(bootstrap):
    create(bootstrap, "slow")

    async def run():
        async with opened(bootstrap) as page:
            query = "kind=place&topic=slow&put=0:0,1,2&put=1:0,1,2&throttle=1&batch=1"
            plan = await page.begin(query)
            view = await page.until(lambda v: v["moving"] and v["moving"][0]["copies"][0]["note"])
            assert view["state"] == "running"
            assert await page.post("/moves/begin", plan=plan["id"]) == (
                409, {"error": "a plan is being executed: pause or cancel it first"},
            )  # fmt: skip
            assert (await page.post("/moves/pause"))[0] == 200
            await page.until(lambda v: v["state"] == "pausing" and v["throttled_topics"])

        async with opened(bootstrap) as page:  # the process was restarted
            view = await page.until(lambda v: v["moving"])
            assert view["state"] == "interrupted"
            assert view["saved"]["done"] == 0
            assert view["throttled_topics"] == ["slow"]
            assert (view["can_continue"], view["can_cancel"]) == (True, True)
            (moving,) = view["moving"]
            assert moving["adding"] == [2]
            assert moving["copies"][0]["left_bytes"] > 0
            assert "bytes_left" not in moving  # the lanes are only drawn
            assert "<svg" in await page.html("/moves")
            # The lane of the topic has what is left, too, and from the second look on the rate.
            path = f"/topics/slow?partition={moving['name'].rpartition('-')[2]}"
            topic = await page.until(lambda v: new_lane(v)["bytes_per_s"] is not None, path)
            assert new_lane(topic)["bytes_left"] > 0
            assert (await page.post("/moves/continue"))[0] == 200
            await page.until(lambda v: v["state"] == "running")
            assert (await page.post("/moves/cancel"))[1]["says"] == (
                "1 reassignments cancelled; throttles cleared"
            )
            view = await page.until(lambda v: not v["moving"] and unthrottled(v))
            assert view["state"] == "paused"
            await become(bootstrap, "slow", {0: [0, 1], 1: [0, 1]})

            assert (await page.post("/moves/continue"))[0] == 200
            await page.until(lambda v: v["moving"] and v["can_change_throttle"])
            answer = await page.post("/moves/throttle", throttle="50MB")
            assert answer[1]["says"] == "brokers 0, 1, 2: 50.0 MB/s"
            done = await page.until(lambda v: v["state"] == "done" and unthrottled(v))
            assert done["saved"]["throttle"] == 50_000_000  # of a process that would continue
        await become(bootstrap, "slow", {0: [0, 1, 2], 1: [0, 1, 2]})

    asyncio.run(run())


def test_throttles_that_are_left_are_shown_and_cleared(bootstrap):
    async def run():
        async with await Cluster.bootstrap(bootstrap) as cluster:
            await alter_configs(cluster, {(BROKER, "0"): [Alteration(RATE, "1000")]})
        async with opened(bootstrap) as page:
            view = await page.until(lambda v: v["is_throttle_left"])
            assert view["throttled_brokers"] == {"0": 1000}
            assert "left from a run that ended early" in await page.html("/moves")
            assert (await page.post("/moves/clear-throttles"))[0] == 200
            await page.until(unthrottled)

    asyncio.run(run())


def test_a_replica_is_put_on_another_broker_and_partitions_are_added(bootstrap):
    create(bootstrap, "placed")

    async def run():
        async with opened(bootstrap) as page:
            empty = await page.html("/moves/plan?kind=place&topic=placed")
            assert "No change is needed." in empty
            assert 'data-chip="replica of partition 0 on broker 1, stays"' in empty
            plan = await page.begin("kind=place&topic=placed&put=1:2,0&partition=0&from=1&to=2")
            assert [(p["before"], p["after"]) for p in plan["partitions"]] == [
                ([0, 1], [0, 2]), ([0, 1], [2, 0]),
            ]  # fmt: skip
            await page.until(lambda view: view["state"] == "done")
            await become(bootstrap, "placed", {0: [0, 2], 1: [0, 2]})

            added = await page.begin("kind=partitions&topic=placed&count=3")
            assert [d["kind"] for d in added["dangers"]] == ["keys"]
            await become(bootstrap, "placed", {0: [0, 2], 1: [0, 2], 2: [0, 2]})
            # The plan was made before: the cluster has changed since.
            status, answer = await page.post("/moves/begin", plan=plan["id"])
            assert status == 409
            assert "has changed since this was planned" in answer["error"]

    asyncio.run(run())


def test_a_page_without_the_solver_says_what_to_install_and_makes_the_other_plans(
    bootstrap, tmp_path, monkeypatch
):
    create(bootstrap, "unsolved")
    (tmp_path / "scipy.py").write_text("raise ModuleNotFoundError('hidden', name='scipy')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    page = ServedPage("--bootstrap-server", bootstrap)
    try:
        for kind in ("rebalance", "replication-factor&topic=unsolved&factor=3"):
            status, answer = page.ask(f"moves/plan?kind={kind}")
            assert status == 422
            assert re.search("scipy, and it is not installed: .*pip install", answer["error"])
        put = "kind=place&topic=unsolved&partition=0&from=1&to=2"
        status, plan = page.ask(f"moves/plan?{put}")
        assert (status, plan["changed"]) == (200, 1)
    finally:
        page.end()


def test_a_plan_that_was_shown_has_pages(bootstrap):
    create(bootstrap, "paged")

    async def run():
        async with opened(bootstrap) as page:
            query = "kind=place&topic=paged&put=0:0,2&put=1:0,2"
            plan = await page.planned(f"{query}&limit=1")
            assert (plan["page"], plan["pages"], plan["changed"]) == (1, 2, 2)
            assert [p["name"] for p in plan["partitions"]] == ["paged-0"]
            status, second = await page.get(f"/moves/plans/{plan['id']}?page=2&limit=1")
            assert (status, second["id"], second["page"]) == (200, plan["id"], 2)
            assert [p["name"] for p in second["partitions"]] == ["paged-1"]
            status, whole = await page.get(f"/moves/plans/{plan['id']}/plan.json")
            assert (status, len(whole["partitions"])) == (200, 2)
            assert (await page.get("/moves/plans/none"))[0] == 404

    asyncio.run(run())


def test_a_plan_that_is_not_possible_is_refused_with_the_reason(bootstrap):
    async def run():
        async with opened(bootstrap) as page:
            assert await page.get("/moves/plan?kind=replication-factor&topic=none&factor=2") == (
                422, {"error": "there is no topic none"},
            )  # fmt: skip
            status, answer = await page.get("/moves/plan?kind=drain&broker=0&broker=1&broker=2")
            assert status == 422
            assert "there would be 0" in answer["error"]
            assert (await page.post("/moves/begin", plan="x"))[0] == 409
            assert (await page.post("/moves/pause"))[0] == 409

    asyncio.run(run())
