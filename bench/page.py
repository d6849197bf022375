"""How fluent the page is with a large cluster, whose facts are invented.

    ./run bench page [--brokers 100] [--topics 200] [--partitions 50] [--seconds 4]

The page of a cluster of so many brokers and topics, and of one topic with all partitions together,
in Debian's chromium: the time until a view is there, the bytes it weighs, the frames a second while
it is scrolled, the bytes of the changes that are pushed, and how long the server renders it. The
facts change every second. What collecting costs a broker is not part of it.

One JSON line is appended to bench/results/page.jsonl.
"""

import asyncio
import json
import random
import shutil
import threading
import time
from typing import Any

import click
from kit import ROOT, machine

from odradek.model.clock import WallMs
from odradek.web.app import KINDS, create_app
from odradek.web.facts.cluster import BrokerOverview, ClusterOverview, TopicCounts
from odradek.web.facts.doctor import Diagnosis
from odradek.web.facts.poller import FactKind
from odradek.web.facts.source import Source
from odradek.web.facts.topic import PartitionFacts, ReplicaFacts, TopicDetail
from odradek.web.serve import PageServer, listen

RESULTS = ROOT / "bench" / "results" / "page.jsonl"
# Frames while the wheel scrolls down and up again, counted by the browser.
FRAMES = """async (seconds) => {
  const times = [];
  const begun = performance.now();
  let down = 1;
  await new Promise((done) => {
    const step = (now) => {
      times.push(now);
      if (scrollY + innerHeight >= document.body.scrollHeight - 2) down = -1;
      if (scrollY <= 0) down = 1;
      scrollBy(0, 40 * down);
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
        self._brokers, self._topics, self._partitions = brokers, topics, partitions
        self._draw = random.Random(1)

    async def cluster(self, *_arguments: object) -> ClusterOverview:
        draw, count = self._draw, self._brokers
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
                    partition=number, leader=number % self._brokers, leader_epoch=3,
                    isr=(1, 2) if behind else (1, 2, 3),
                    replicas=tuple(
                        ReplicaFacts(
                            broker=(number + place) % self._brokers, is_leader=place == 0,
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


def served(invented: Invented) -> tuple[str, Any]:
    """The address of the page, served by a thread, and its server."""
    kinds = {
        **KINDS,
        "cluster": FactKind(invented.cluster, 1.0),
        "doctor": FactKind(invented.doctor, 1.0),
        "topic": FactKind(invented.topic, 1.0),
    }
    bound = listen("127.0.0.1", 0)
    ready = threading.Event()
    app = create_app(Source({"bootstrap.servers": "invented:9092"}), kinds=kinds)
    server = PageServer(app, ready.set)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([bound])), daemon=True)
    thread.start()
    ready.wait(30)
    return f"http://127.0.0.1:{bound.getsockname()[1]}/", server


def measured(page: Any, url: str, seconds: int) -> dict[str, float]:
    """One view: from opening it to scrolling it while it changes."""
    sizes: list[float] = []
    events: list[int] = []
    devtools = page.context.new_cdp_session(page)
    devtools.send("Network.enable")
    devtools.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
    devtools.on(
        "Network.eventSourceMessageReceived", lambda event: events.append(len(event["data"]))
    )
    begun_s = time.monotonic()
    page.goto(url, wait_until="load")
    there_s = time.monotonic() - begun_s
    weight = sum(sizes)  # as transferred
    page.wait_for_timeout(1500)
    frames = page.evaluate(FRAMES, seconds)
    changes = events[1:]
    return {
        "there_s": round(there_s, 3),
        "weight_bytes": round(weight),
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
def main(*, brokers: int, topics: int, partitions: int, seconds: int) -> None:
    """Open each view, append to the results, print."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - ./run page installs it

    url, server = served(Invented(brokers, topics, partitions))
    views = {"now": "", "topics": "topics", "a topic": "topics/t", "a huge topic": "topics/all"}
    found = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for name, view in views.items():
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            found[name] = measured(page, url + view, seconds)
            page.close()
            print(f"{name}: {found[name]}")
        browser.close()
    server.should_exit = True
    line = {
        "brokers": brokers,
        "partitions": topics * partitions,
        "views": found,
        "machine": machine.describe(),
    }
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.open("a") as file:
        file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
