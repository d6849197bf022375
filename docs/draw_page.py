"""Takes docs/page-*.png, pictures of the page on frozen facts: `python docs/draw_page.py`.

    python docs/draw_page.py --look FOLDER     each view in light and dark, of a phone and of a
                                               large screen, to look at

It needs chromium, the packages of `./run page`, and Pillow.
"""

import asyncio
import io
import itertools
import pathlib
import shutil
import sys
import threading
from typing import Any

from frozen_page import frozen_app
from PIL import Image
from playwright.sync_api import sync_playwright

from odradek.web.serve import PageServer, listen

HERE = pathlib.Path(__file__).parent
COLOURS = 64  # of a picture, which is then some 20 KB
# The name of a picture, its view and its height.
PICTURES = (
    ("now", "", 620),
    ("topic", "topics/orders", 560),
    ("messages", "messages/found#found-title", 620),
    ("groups", "groups/billing", 760),
    ("moves", "moves", 560),
    ("plan", "moves/planned", 640),
    ("broker", "brokers/1", 480),
    ("timeline", "timeline", 400),
    ("story", "stories/unclean-election?step=32", 760),
)
VIEWS = (
    "", "topics", "topics/orders", "topics/clicks", "topics/none", "messages/found", "groups",
    "groups/billing", "transactions", "moves", "moves/planned", "brokers/1", "timeline", "access",
    "stories", "stories/unclean-election?step=32", "stories/rebalance?step=18",
)  # fmt: skip


def look(browser: Any, url: str, folder: pathlib.Path) -> None:
    """Take each view, whole, in two widths and two themes."""
    folder.mkdir(parents=True, exist_ok=True)
    for view, width, theme in itertools.product(VIEWS, (360, 1920), ("light", "dark")):
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=theme)
        page.goto(url + view, timeout=120_000)  # a story is played first
        page.wait_for_timeout(300)
        name = view.replace("/", "-").partition("?")[0] or "now"
        page.screenshot(path=folder / f"{name}-{width}-{theme}.png", full_page=True)
        page.close()


def draw(browser: Any, url: str) -> None:
    for name, view, height in PICTURES:
        page = browser.new_page(viewport={"width": 1000, "height": height}, color_scheme="light")
        answer = page.goto(url + view, timeout=120_000)  # a story is played first
        if answer is None or not answer.ok:
            raise SystemExit(f"{view} is not there")
        page.wait_for_timeout(500)
        path = HERE / f"page-{name}.png"
        picture = Image.open(io.BytesIO(page.screenshot()))
        picture.quantize(COLOURS).save(path, optimize=True)
        page.close()
        print(f"{path}: {path.stat().st_size} bytes")


def main() -> None:
    """Serve the frozen page, and take the pictures."""
    bound, ready = listen("127.0.0.1", 0), threading.Event()
    server = PageServer(frozen_app(), ready.set)
    threading.Thread(target=lambda: asyncio.run(server.serve([bound])), daemon=True).start()
    ready.wait(30)
    url = f"http://127.0.0.1:{bound.getsockname()[1]}/"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        if sys.argv[1:2] == ["--look"]:
            look(browser, url, pathlib.Path(sys.argv[2]))
        else:
            draw(browser, url)
        browser.close()
    server.should_exit = True


if __name__ == "__main__":
    main()
