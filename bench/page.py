"""How fluent the page is with a large cluster, whose facts are invented.

    ./run bench page [--brokers 100] [--topics 200] [--partitions 50] [--seconds 4] [--view NAME]
    ./run bench page --cost [--brokers 3] [--seconds 60] [--groups 0]

The page of a cluster of so many brokers and topics, of one topic with all partitions together, of
800 groups, of plans that drain a broker and that put a replica of every partition elsewhere, of the
grid of a topic with a column for each broker, and of the moves that such a plan begins, in Debian's
chromium: the time until a view is there, the bytes
it weighs, the frames a second while it is scrolled, and the bytes of the changes that are pushed.
The facts change every second. What collecting costs a broker is not part of it; the time to make a
plan is.

With --cost: the processor time of the brokers of a real cluster, first without the page, then while
one viewer has Now and a topic open, and then with each other view, in turn. With --groups so many
groups have committed offsets, and the time until their list is there is measured, too.

One JSON line is appended to bench/results/page.jsonl.
"""

import asyncio
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from contextlib import ExitStack
from typing import Any

import click
from kit import machine
from kit.results import keep_result
from starlette.requests import Request
from starlette.routing import Route

from odradek.client.admin.groups import commit_offsets
from odradek.client.cluster import Cluster
from odradek.client.settings import ClientSettings
from odradek.model.clock import WallMs
from odradek.model.partition import TopicPartition
from odradek.plan.cluster import ClusterPicture, Replicas
from odradek.web.app import KINDS, create_app
from odradek.web.facts.cluster import BrokerOverview, ClusterOverview, TopicCounts
from odradek.web.facts.copies import CopyFacts
from odradek.web.facts.doctor import Diagnosis
from odradek.web.facts.poller import FactKind
from odradek.web.facts.source import Source
from odradek.web.facts.topic import PartitionFacts, ReplicaFacts, TopicDetail
from odradek.web.groups import view as group_values
from odradek.web.groups.collect import GroupsView
from odradek.web.groups.history import GroupHistory
from odradek.web.groups.values import ObservedGroup, PartitionLag
from odradek.web.live.view import page_asked
from odradek.web.moves.collect import MovesFacts, MovingPartition
from odradek.web.moves.mover import plan_file
from odradek.web.moves.planned import PlannedMove, page_of, planned_move
from odradek.web.moves.request import PlanKind, PlanRequest, make_plan
from odradek.web.serve import PageServer, listen

GROUPS = 800
# Frames while the page is scrolled down and up again, and a wide table aside; the browser counts.
FRAMES = """async (seconds) => {
  const times = [];
  const begun = performance.now();
  const wide = document.querySelector("#grid .scroll");
  let down = 1;
  let right = 1;
  await new Promise((done) => {
    const step = (now) => {
      times.push(now);
      if (scrollY + innerHeight >= document.body.scrollHeight - 2) down = -1;
      if (scrollY <= 0) down = 1;
      scrollBy(0, 40 * down);
      if (wide) {
        if (wide.scrollLeft + wide.clientWidth >= wide.scrollWidth - 2) right = -1;
        if (wide.scrollLeft <= 0) right = 1;
        wide.scrollBy(40 * right, 0);
      }
      if (now - begun < seconds * 1000) requestAnimationFrame(step); else done();
    };
    requestAnimationFrame(step);
  });
  const gaps = times.slice(1).map((time, i) => time - times[i]).sort((a, b) => a - b);
  return { frames: gaps.length / ((times.at(-1) - times[0]) / 1000),
           p99_ms: gaps[Math.floor(gaps.length * 0.99)] };
}"""


class Invented:
    """Facts of a cluster that does not exist; each collection changes some of them."""

    def __init__(self, brokers: int, topics: int, partitions: int) -> None:
        self.brokers, self._topics, self._partitions = brokers, topics, partitions
        self._draw = random.Random(1)
        self._picture: ClusterPicture | None = None
        self._history = GroupHistory()

    async def cluster(self, *_arguments: object) -> ClusterOverview:
        draw, count = self._draw, self.brokers
        return ClusterOverview(
            cluster_id="invented",
            controller=0,
            brokers=tuple(
                BrokerOverview(
                    id=id_, is_registered=draw.random() < 0.98, host=f"broker{id_}.example",
                    port=9092, rack=f"rack-{id_ % 5}", leads=100, replicas=300,
                )
                for id_ in range(count)
            ),
            topics=tuple(
                TopicCounts(
                    name=f"topic-{number:05}", is_internal=False, partitions=self._partitions,
                    replication_factor=3, offline=int(draw.random() < 0.01),
                    under_replicated=draw.randrange(3) if draw.random() < 0.1 else 0,
                )
                for number in range(self._topics)
            ),
        )  # fmt: skip

    async def doctor(self, *_arguments: object) -> Diagnosis:
        return Diagnosis(findings=(), unknown={})

    async def topic(self, _source: object, name: str, _before: object) -> TopicDetail:
        draw = self._draw
        count = self._topics * self._partitions if name == "all" else self._partitions
        found = []
        for number in range(count):
            leo = 1_000_000 + draw.randrange(5_000)
            behind = draw.random() < 0.02
            found.append(
                PartitionFacts(
                    partition=number, leader=number % self.brokers, leader_epoch=3,
                    isr=(1, 2) if behind else (1, 2, 3),
                    replicas=tuple(
                        ReplicaFacts(
                            broker=(number + place) % self.brokers, is_leader=place == 0,
                            in_sync=not (behind and place == 2), leo=leo - 10 * place,
                            high_watermark=leo - 20, log_start_offset=0, leader_epoch=3,
                            size_bytes=leo * 100, fetched_ms_ago=120, caught_up_ms_ago=120,
                        )
                        for place in range(3)
                    ),
                )
            )  # fmt: skip
        at_ms = WallMs(int(time.time() * 1000))
        return TopicDetail(
            name=name, exists=True, at_ms=at_ms, partitions=tuple(found), isr_min=2,
            is_reported=True,
        )  # fmt: skip

    async def groups(self, *_arguments: object) -> GroupsView:
        draw = self._draw
        history = self._history
        now_ms = WallMs(int(time.time() * 1000))
        rows = []
        for number in range(GROUPS):
            group = ObservedGroup(
                group_id=f"group-{number:04}", state="Stable", wall_ms=now_ms,
                protocol_type="consumer", assignor="range", coordinator=(number % 100, "h", 9092),
                partitions=tuple(
                    PartitionLag(partition=TopicPartition(f"topic-{number % 100:05}", each),
                                 committed=100_000 - draw.randrange(500), log_start=0, end=100_000)
                    for each in range(12)
                ),
            )  # fmt: skip
            history.observe(group)
            rows.append(group_values.summary(group, history))
        rows.sort(key=lambda row: (-(row["lag"] or 0), row["group"]))
        return GroupsView(groups=tuple(rows), unobserved={})

    async def moves(self, *_arguments: object) -> MovesFacts:
        draw = self._draw
        return MovesFacts(
            at_ms=int(time.time() * 1000),
            moving=tuple(
                MovingPartition(
                    partition=partition, leader=held.leader, replicas=(*held.brokers, 99),
                    adding=(99,), removing=(held.brokers[-1],), leader_bytes=held.size_bytes,
                    copies=(CopyFacts(broker=99, held_bytes=draw.randrange(held.size_bytes),
                                      left_bytes=draw.randrange(held.size_bytes)),),
                )
                for partition, held in self.picture().partitions.items()
            ),
        )  # fmt: skip

    def picture(self) -> ClusterPicture:
        """The cluster as plans see it: three replicas in three of five racks."""
        if self._picture is None:
            self._picture = self._new_picture()
        return self._picture

    def _new_picture(self) -> ClusterPicture:
        count = self.brokers
        held = {
            TopicPartition(f"topic-{topic:05}", number): Replicas(
                tuple((topic + number + place) % count for place in range(3)),
                100_000_000 + 1_000 * number, (topic + number) % count,
                tuple((topic + number + place) % count for place in range(3)),
            )
            for topic in range(self._topics)
            for number in range(self._partitions)
        }  # fmt: skip
        return ClusterPicture({id_: f"rack-{id_ % 5}" for id_ in range(count)}, held)

    def everywhere(self) -> dict[TopicPartition, tuple[int, ...]]:
        """The replicas if the last one of every partition is put on another broker."""
        return {
            partition: (*held.brokers[:-1], (held.brokers[-1] + 5) % self.brokers)
            for partition, held in self.picture().partitions.items()
        }


def planned(invented: Invented) -> tuple[dict[str, object], list[Route]]:
    """How long plans take, and routes on which they are shown as the page shows them."""
    took: dict[str, object] = {}
    routes = []
    picture = invented.picture()
    drain = PlanRequest(kind=PlanKind.DRAIN, brokers=(0,))
    whole = PlanRequest(kind=PlanKind.ROLL_BACK)
    topic = "topic-00000"
    grid = PlanRequest(kind=PlanKind.PLACE, topics=(topic,), puts={0: (0, 1, invented.brokers - 1)})
    for name, request in (("drain", drain), ("everything", whole), ("grid", grid)):
        begun_s = time.monotonic()
        plan = make_plan(request, picture, invented.everywhere())
        made_s = time.monotonic()
        view = planned_move(request, picture, plan, {})
        shown_s = time.monotonic()
        took[name] = {
            "changed": view.changed,
            "plan_s": round(made_s - begun_s, 2),
            "view_s": round(shown_s - made_s, 2),
            "plan_json_bytes": len(plan_file(plan)),
        }
        routes.append(Route(f"/moves/{name}", shown(view)))
    return took, routes


def shown(view: PlannedMove) -> Any:
    async def answer(request: Request) -> Any:
        _, page, limit = page_asked(request)
        return request.app.state.render(request, "move_plan.html", page_of(view, page, limit))

    return answer


def served(invented: Invented, routes: list[Route]) -> tuple[str, Any]:
    """The address of the page, served by a thread, and its server."""
    kinds = {
        **KINDS,
        "groups": FactKind(invented.groups, 1.0),
        "moves": FactKind(invented.moves, 1.0),
        "cluster": FactKind(invented.cluster, 1.0),
        "doctor": FactKind(invented.doctor, 1.0),
        "topic": FactKind(invented.topic, 1.0),
    }
    bound = listen("127.0.0.1", 0)
    ready = threading.Event()
    app = create_app(Source({"bootstrap.servers": "invented:9092"}), kinds=kinds, routes=routes)
    server = PageServer(app, ready.set)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([bound])), daemon=True)
    thread.start()
    ready.wait(30)
    return f"http://127.0.0.1:{bound.getsockname()[1]}/", server


class Viewer(threading.Thread):
    """Reads the stream of a view, as an open page does; `sizes` are those of its events."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.sizes: list[int] = []
        self._request = urllib.request.Request(url, headers={"accept": "text/event-stream"})
        self._is_closed = False

    def run(self) -> None:
        with urllib.request.urlopen(self._request) as answer:
            for line in answer:
                if line.startswith(b"data: "):
                    self.sizes.append(len(line))
                if self._is_closed:
                    return

    def __enter__(self) -> "Viewer":
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._is_closed = True


def measured(page: Any, url: str, seconds: int) -> dict[str, float]:
    """One view: from opening it to scrolling it while it changes."""
    sizes: list[float] = []
    devtools = page.context.new_cdp_session(page)
    devtools.send("Network.enable")
    devtools.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
    begun_s = time.monotonic()
    page.goto(url, wait_until="load")
    there_s = time.monotonic() - begun_s
    weight = sum(sizes)  # as transferred
    page.wait_for_timeout(1500)
    frames = page.evaluate(FRAMES, seconds)
    events = []
    if page.locator("main[data-live]").count():
        with Viewer(url) as viewer:
            page.wait_for_timeout(3_500)
        events = viewer.sizes
    begun_s = time.monotonic()
    with urllib.request.urlopen(
        urllib.request.Request(url, headers={"accept": "application/json"})
    ) as answer:
        json_bytes = len(answer.read())
    json_s = time.monotonic() - begun_s
    changes = events[1:]
    return {
        "there_s": round(there_s, 3),
        "weight_bytes": round(weight),
        "json_s": round(json_s, 3),
        "json_bytes": json_bytes,
        "frames_per_s": round(frames["frames"], 1),
        "frame_p99_ms": round(frames["p99_ms"], 1),
        "snapshot_bytes": events[0] if events else 0,
        "change_bytes": round(sum(changes) / len(changes)) if changes else 0,
    }


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--brokers", default=100, show_default=True)
@click.option("--topics", default=200, show_default=True)
@click.option("--partitions", default=50, show_default=True, help="Of each topic.")
@click.option("--seconds", default=4, show_default=True, help="Of scrolling.")
@click.option("--view", "chosen", multiple=True, help="Only this one; may be repeated.")
@click.option("--groups", default=0, help="With --cost: groups with committed offsets.")
@click.option("--cost", is_flag=True, help="What the page costs the brokers of a real cluster.")
def main(  # noqa: PLR0913
    *,
    brokers: int,
    topics: int,
    partitions: int,
    seconds: int,
    chosen: tuple[str, ...],
    groups: int,
    cost: bool,
) -> None:
    """Open each view, append to the results, print."""
    if cost:
        given = click.get_current_context().get_parameter_source
        is_default = given("brokers") == click.core.ParameterSource.DEFAULT
        wait_s = 60 if given("seconds") == click.core.ParameterSource.DEFAULT else seconds
        append(
            {"groups": groups, "cost": cost_of_views(3 if is_default else brokers, wait_s, groups)}
        )
        return
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - --cost needs none

    invented = Invented(brokers, topics, partitions)
    plans, routes = planned(invented)
    print(f"plans: {plans}")
    url, server = served(invented, routes)
    views = {
        "now": "", "topics": "topics", "a topic": "topics/t", "a huge topic": "topics/all",
        "groups": "groups", "plan: drain": "moves/drain", "plan: everything": "moves/everything",
        "plan: grid": "moves/grid", "moves": "moves",
    }  # fmt: skip
    found = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for name in chosen or views:
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            found[name] = measured(page, url + views[name], seconds)
            page.close()
            print(f"{name}: {found[name]}")
        browser.close()
    server.should_exit = True
    append({"brokers": brokers, "partitions": topics * partitions, "groups": GROUPS,
            "plans": plans, "views": found})  # fmt: skip


COST: dict[str, tuple[str, ...]] = {
    "no page": (),
    "Now and a topic": ("", "topics/orders"),
    "topics": ("topics",),
    "a broker": ("brokers/0",),
    "groups": ("groups",),
    "a group": ("groups/readers",),
    "transactions": ("transactions",),
    "moves": ("moves",),
    "timeline": ("timeline",),
    "access": ("access",),
}


GROUP_COST = {name: COST[name] for name in ("no page", "groups", "a group")}


def first_answer(url: str) -> float:
    """The seconds until a view that was not open is answered as JSON."""
    begun_s = time.monotonic()
    request = urllib.request.Request(url, headers={"accept": "application/json"})
    with urllib.request.urlopen(request) as answer:
        answer.read()
    return round(time.monotonic() - begun_s, 2)


async def commit_groups(servers: str, count: int) -> None:
    """Let so many groups without members have committed offsets of each partition of `orders`."""
    partitions = [TopicPartition("orders", number) for number in range(12)]
    cluster = await Cluster.connect(ClientSettings(bootstrap_servers=tuple(servers.split(","))))
    try:
        for number in range(count):
            await commit_offsets(cluster, f"group-{number:04}", dict.fromkeys(partitions, 10))
    finally:
        await cluster.close()


def odradek(*arguments: str) -> str:
    command = [sys.executable, "-m", "odradek", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def cpu_s(pids: list[int]) -> list[float]:
    """The processor seconds of each process so far."""
    ticks = os.sysconf("SC_CLK_TCK")
    fields = [pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2] for pid in pids]
    return [sum(map(int, each.split()[11:13])) / ticks for each in fields]


def cost_of_views(brokers: int, seconds: int, groups: int) -> dict[str, list[float]]:
    """Percent of a processor that each broker takes while these views are open."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        where = ("--dir", f"{folder}/D")
        servers = odradek("up", "--brokers", str(brokers), "--detach", *where).strip()
        try:
            pids = [b["pid"] for b in json.loads(odradek("status", "--json", *where))["brokers"]]
            fill(servers, brokers)
            asyncio.run(commit_groups(servers, groups))
            command = [sys.executable, "-m", "odradek", "web", *where]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as page:
                url = (page.stdout.readline() if page.stdout else "").strip()
                if groups:
                    found["list of groups there after, s"] = [first_answer(url + "groups")]
                    print(f"the list of {groups} groups: {found}")
                for name, views in (GROUP_COST if groups else COST).items():
                    found[name] = busy(pids, [url + view for view in views], seconds)
                    print(f"{name}: {found[name]} % of a processor for each broker")
                page.terminate()
        finally:
            odradek("down", *where)
    return found


def busy(pids: list[int], urls: list[str], seconds: int) -> list[float]:
    with ExitStack() as open_pages:
        for url in urls:
            open_pages.enter_context(Viewer(url))
        time.sleep(5)  # the first collection opens the connections
        before = cpu_s(pids)
        time.sleep(seconds)
        after = cpu_s(pids)
    return [round((b - a) / seconds * 100, 2) for a, b in zip(before, after, strict=True)]


def fill(servers: str, brokers: int) -> None:
    """A topic of 12 partitions and a group that has read a part of it."""
    server = ("--bootstrap-server", servers)
    odradek("topics", *server, "--create", "--topic", "orders", "--partitions", "12",
            "--replication-factor", str(min(3, brokers)))  # fmt: skip
    tool = pathlib.Path(sys.executable).parent
    subprocess.run([tool / "kafka-producer-perf-test", "--topic", "orders", "--num-records", "1000",
                    "--record-size", "100", "--throughput", "-1", "--producer-props",
                    f"bootstrap.servers={servers}"], check=True, capture_output=True)  # fmt: skip
    subprocess.run([tool / "kafka-console-consumer", *server, "--topic", "orders", "--group",
                    "readers", "--from-beginning", "--max-messages", "500"],
                   check=True, capture_output=True)  # fmt: skip


def append(line: dict[str, object]) -> None:
    line["machine"] = machine.describe()
    keep_result("page", line)


if __name__ == "__main__":
    main()
