"""Takes docs/page.png, a picture of the page on invented facts: `python docs/draw_page.py`.

It needs chromium and the packages of `./run page`. The facts are values, so the picture shows what
the page makes of them today, without a cluster.
"""

import asyncio
import pathlib
import shutil
import threading

from playwright.sync_api import sync_playwright

from odradek.model.clock import WallMs
from odradek.web.app import KINDS, create_app
from odradek.web.facts.poller import FactKind
from odradek.web.facts.source import Source
from odradek.web.facts.topic import PartitionFacts, ReplicaFacts, TopicDetail
from odradek.web.serve import PageServer, listen

PICTURE = pathlib.Path(__file__).parent / "page.png"
AT = WallMs(1_795_420_800_000)


def replica(broker: int, leo: int, **more: object) -> ReplicaFacts:
    known = {"rack": "abc"[broker - 1], "in_sync": True, "high_watermark": min(leo, 1180)}
    known |= {"log_start_offset": 0, "leader_epoch": 4, "leo": leo, "size_bytes": 100 * leo}
    return ReplicaFacts(broker=broker, **{**known, **more})  # type: ignore[arg-type]


TOPIC = TopicDetail(
    name="orders",
    exists=True,
    at_ms=AT,
    isr_min=2,
    is_reported=True,
    partitions=(
        PartitionFacts(
            partition=0,
            leader=1,
            leader_epoch=4,
            isr=(1, 2),
            replicas=(
                replica(1, 1200, is_leader=True),
                replica(2, 1180),
                replica(3, 940, in_sync=False, fetched_ms_ago=41_000, high_watermark=930),
            ),
        ),
    ),
    sentences=("orders-0: replica 3 is out of sync since 10:59:19 because it fetched too slowly",),
)


async def topic(*_arguments: object) -> TopicDetail:
    return TOPIC


def main() -> None:
    """Serve the topic, and take the picture."""
    bound, ready = listen("127.0.0.1", 0), threading.Event()
    kinds = {**KINDS, "topic": FactKind(topic)}
    server = PageServer(
        create_app(Source({"bootstrap.servers": "kafka1:9092"}), kinds=kinds), ready.set
    )
    threading.Thread(target=lambda: asyncio.run(server.serve([bound])), daemon=True).start()
    ready.wait(30)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 1000, "height": 455}, color_scheme="light")
        page.goto(f"http://127.0.0.1:{bound.getsockname()[1]}/topics/orders")
        page.wait_for_timeout(500)
        page.screenshot(path=PICTURE)
        browser.close()
    server.should_exit = True
    print(f"wrote {PICTURE}")


if __name__ == "__main__":
    main()
