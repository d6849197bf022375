"""A real cluster, its page, and Debian's chromium."""

import pathlib
import shutil
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright
from tests.page.running import RunningPage, run

WAIT_MS = 60_000

expect.set_options(timeout=WAIT_MS)  # not 5 seconds, in which a busy machine may change nothing


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[pathlib.Path]:
    """Three brokers with racks, and the topic `orders` with records."""
    path = tmp_path_factory.mktemp("page") / "D"
    run("up", "--brokers", "3", "--racks", "a,b,c", "--dir", path, "--detach", "--faults")
    yield path
    run("down", "--dir", path)


@pytest.fixture(scope="module")
def served(cluster) -> Iterator[RunningPage]:
    page = RunningPage(cluster, "--write")
    try:
        page.kafka("kafka-topics", "--create", "--topic", "orders", "--partitions", "3",
                   "--replication-factor", "3")  # fmt: skip
        page.kafka("kafka-console-producer", "--topic", "orders", typed="a\nb\nc\n")
        yield page
    finally:
        page.end()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        yield found
        found.close()


@pytest.fixture
def open_page(browser) -> Iterator[Callable[..., Page]]:
    """Opens a page; no error but those with the text `expected` may be in its console."""
    errors: list[str] = []
    contexts = []

    def opened(url: str, *, expected: str = "nothing", token: str = "", **options) -> Page:
        def note(message: ConsoleMessage) -> None:
            if message.type in ("error", "warning") and expected not in message.text:
                errors.append(message.text)

        context = browser.new_context(**options)
        contexts.append(context)
        if token:
            context.add_init_script(f"sessionStorage.setItem('token', '{token}')")
        page = context.new_page()
        page.set_default_timeout(WAIT_MS)
        page.on("console", note)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(url)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert errors == []
