"""Replicas are moved with the mouse and by keyboard."""

import json
import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

TOPIC = "hand-moved"


@pytest.fixture(scope="module")
def grid(served):
    """The address of a topic's grid, of which broker 2 has no replica."""
    served.kafka("kafka-topics", "--create", "--topic", TOPIC, "--replica-assignment", "0:1,0:1")
    return served.url + f"moves/plan?kind=place&topic={TOPIC}"


def cell(page, partition, broker):
    return page.locator(f'td[data-partition="{partition}"][data-broker="{broker}"]')


def test_a_grid_is_accessible_and_can_be_used_without_javascript(grid, open_page):
    page = open_page(grid)
    expect(page.get_by_role("button", name="replica of partition 0 on broker 1")).to_be_visible()
    assert Axe().run(page).response["violations"] == []

    plain = open_page(grid, java_script_enabled=False)
    plain.get_by_label("partition", exact=True).fill("0")
    plain.get_by_label("from broker").fill("1")
    plain.get_by_label("to broker").fill("2")
    plain.get_by_role("button", name="Put").click()
    expect(cell(plain, 0, 2)).to_contain_text("follower, new")


def test_a_replica_is_moved_with_the_mouse_another_by_keyboard_and_the_plan_is_executed(
    served, grid, open_page
):
    page = open_page(grid, token=served.token)
    cell(page, 0, 1).locator("[data-chip]").drag_to(cell(page, 0, 2))
    expect(cell(page, 0, 2)).to_contain_text("follower, new")

    cell(page, 1, 0).locator("[data-chip]").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#grid-status")).to_have_text("to broker 2: Enter puts it there")
    page.keyboard.press("Enter")
    expect(cell(page, 1, 2)).to_contain_text("leader, new")

    page.get_by_role("button", name="Execute this plan").click()
    expect(page).to_have_url(re.compile("/moves$"))
    expect(page.locator("#state")).to_contain_text(f"Single replicas of {TOPIC} is done.")
    described = served.kafka("kafka-topics", "--describe", "--topic", TOPIC)
    assert re.findall(r"Replicas: (\S+)", described) == ["0,2", "2,1"]


def test_a_large_plan_is_shown_in_pages_and_its_file_has_all_of_it(served, open_page):
    served.kafka("kafka-topics", "--create", "--topic", "many", "--partitions", "120",
                 "--replication-factor", "1")  # fmt: skip
    page = open_page(served.url + "moves/plan?kind=replication-factor&topic=many&factor=2")
    rows = page.locator("#partitions + .scroll tbody tr")
    expect(rows).to_have_count(100)
    # The balance may move a partition of another topic, too.
    changed = int(page.locator("dd").first.inner_text())
    assert changed >= 120
    assert Axe().run(page).response["violations"] == []

    page.get_by_role("navigation", name="Pages").get_by_role("link", name="2").click()
    expect(page).to_have_url(re.compile(r"/moves/plans/\w+\?page=2#partitions$"))
    expect(rows).to_have_count(changed - 100)
    expect(page.locator("dd").first).to_have_text(str(changed))
    with page.expect_download() as download:
        page.get_by_role("link", name="plan.json").click()
    assert len(json.loads(download.value.path().read_text())["partitions"]) == changed
