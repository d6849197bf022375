"""The page in a real browser, on real brokers."""

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect
from tests.page.running import run

VIEWS = ("", "topics", "topics/orders", "moves", "brokers/0", "timeline", "access", "lab")


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("colours", ["light", "dark"])
def test_every_view_is_accessible(served, open_page, view, colours):
    page = open_page(served.url + view, color_scheme=colours)
    page.wait_for_load_state("load")

    found = Axe().run(page).response["violations"]
    assert [(rule["id"], [node["target"] for node in rule["nodes"]]) for rule in found] == []


@pytest.mark.parametrize("view", VIEWS)
def test_no_view_is_wider_than_a_small_phone(served, open_page, view):
    page = open_page(served.url + view, viewport={"width": 360, "height": 640})

    assert page.evaluate("document.documentElement.scrollWidth") <= 360


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_can_be_read_without_javascript(served, open_page, view):
    page = open_page(served.url + view, java_script_enabled=False)

    expect(page.locator("h1")).to_be_visible()
    expect(page.locator("button:visible:not(form[method=get] button)")).to_have_count(0)


def test_a_view_weighs_at_most_200_kilobytes(served, open_page):
    page = open_page("about:blank")
    sizes = []
    page.on("response", lambda response: sizes.append(len(response.body())))
    with page.expect_response(re.compile("page.js")):
        page.goto(served.url + "topics/orders", wait_until="load")

    assert sum(sizes) <= 200_000
    assert len(sizes) >= 4


def test_a_broker_is_killed_and_its_lane_says_that_it_is_out_of_sync(served, open_page):
    page = open_page(served.url + "topics/orders?partition=0")
    lane = page.locator("#lanes-orders-0", has_text="Broker 2")
    expect(lane).to_contain_text("in sync")

    run("kill", "2", "--dir", served.path)
    expect(page.locator("#lanes-orders-0")).to_contain_text("out of sync")
    expect(page.locator("#lanes-orders-0")).to_contain_text("broker 2 is not registered")
    expect(page.locator("#why")).to_contain_text("its process was killed")

    now = open_page(served.url)
    expect(now.locator("#findings")).to_contain_text("broker 2 is offline")
    expect(now.locator("#brokers")).to_contain_text("not registered")

    run("start", "2", "--dir", served.path)
    expect(page.locator("#lanes-orders-0")).not_to_contain_text("out of sync")


def test_the_lab_pauses_and_resumes_a_broker(served, open_page):
    page = open_page(served.writing)
    expect(page).to_have_url(served.url)  # the code was exchanged
    page.goto(served.url + "lab")
    row = page.locator("#lab-1")
    row.get_by_role("button", name="pause", exact=True).click()
    expect(row).to_contain_text("paused")
    row.get_by_role("button", name="resume", exact=True).click()
    expect(row).to_contain_text("running")


def test_a_write_without_the_token_is_denied(served, open_page):
    page = open_page(served.url + "lab", expected="status of 403")
    status = page.evaluate(
        """async () => (await fetch("/lab", {method: "POST",
           body: JSON.stringify({action: "kill", broker: "0"})})).status"""
    )

    assert status == 403


def test_the_timeline_has_a_slider_that_shows_the_cluster_as_it_was(served, open_page):
    page = open_page(served.url + "timeline")
    expect(page.locator("#happenings")).to_contain_text("orders")
    slider = page.get_by_role("slider")
    slider.focus()
    slider.press("Home")
    expect(page.locator("#then")).to_contain_text("The cluster at")
    expect(page).to_have_url(re.compile(r"to=\d+"))


def test_the_keyboard_opens_views_and_the_filter(served, open_page):
    page = open_page(served.url)
    page.keyboard.press("g")
    page.keyboard.press("t")
    expect(page.locator("h1")).to_have_text("Topics")
    page.keyboard.press("/")
    page.keyboard.type("ord")
    expect(page.locator("#topic-orders")).to_be_visible()
    page.keyboard.type("x")
    expect(page.locator("#topic-orders")).to_be_hidden()
