"""The page in a real browser, on real brokers."""

import json
import re
import threading
import time

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect
from tests.page.running import RunningPage, run

from odradek.web.lanes.drawing import lanes_svg
from odradek.web.lanes.values import LaneRole, PartitionLanes, ReplicaLane
from odradek.web.rendering import STATIC

VIEWS = (
    "", "topics", "topics/orders", "brokers/0", "timeline", "access", "lab", "messages",
    "messages?topic=orders", "groups", "transactions", "moves", "stories",
    "stories/high-watermark",
)  # fmt: skip


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("colours", ["light", "dark"])
def test_every_view_is_accessible(served, open_page, view, colours):
    page = open_page(served.url + view, color_scheme=colours)
    page.wait_for_load_state("load")

    found = Axe().run(page).response["violations"]
    assert [(rule["id"], [node["target"] for node in rule["nodes"]]) for rule in found] == []


# Elements that are beyond the window's sides and in nothing that scrolls, or whose text is cut off.
CLIPPED = """() => {
  const scrolls = (node) => node.closest(".scroll, pre, .skip") !== null;
  const isCut = (node) => {
    const { left, right, width } = node.getBoundingClientRect();
    const isBeyond = width && (left < -1 || right > innerWidth + 1);
    const hides = getComputedStyle(node).overflowX === "hidden";
    return isBeyond || (hides && node.scrollWidth > node.clientWidth);
  };
  return [...document.querySelectorAll("body *")]
    .filter((node) => node.checkVisibility() && !scrolls(node) && isCut(node))
    .map((node) => node.outerHTML.slice(0, 80));
}"""


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("size", [(360, 640), (3840, 2160)], ids=["phone", "4K"])
def test_every_view_fits_a_small_phone_and_a_large_screen(served, open_page, view, size):
    page = open_page(served.url + view, viewport={"width": size[0], "height": size[1]})

    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    assert page.evaluate(CLIPPED) == []


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_can_be_read_without_javascript(served, open_page, view):
    page = open_page(served.url + view, java_script_enabled=False)

    expect(page.locator("h1")).to_be_visible()
    expect(page.locator("button:visible:not(form[method=get] button)")).to_have_count(0)


def test_a_view_weighs_at_most_200_kilobytes(served, open_page):
    page = open_page("about:blank")
    finished = []

    def note(request):  # playwright takes no method of a built-in type
        finished.append(request)

    page.on("requestfinished", note)
    page.goto(served.url + "topics/orders", wait_until="load")

    names = {request.url.rpartition("/")[2].partition("?")[0] for request in finished}
    assert names >= {"orders", "page.css", "page.js", "idiomorph.min.js"}
    assert sum(request.sizes()["responseBodySize"] for request in finished) <= 200_000


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
    page = open_page(served.url + "lab", token=served.token)
    row = page.locator("#lab-1")
    row.get_by_role("button", name="pause", exact=True).click()
    expect(row).to_contain_text("paused")
    row.get_by_role("button", name="resume", exact=True).click()
    expect(row).to_contain_text("running")


def test_the_lab_fills_a_topic_with_sample_data(served, open_page):
    page = open_page(served.url + "lab", token=served.token)
    page.get_by_role("button", name=re.compile("^Fill the topic")).click()
    expect(page.locator("form[action='/lab/fill'] output")).to_have_text(
        "1000 records are in sample"
    )
    page.goto(served.url + "topics/sample")
    expect(page.locator("#partition-0")).to_contain_text("leader, in sync")


# Texts of a picture that overlap, or are not within it.
OVERLAPS = """() => {
  const box = document.querySelector("svg.lanes").getBoundingClientRect();
  const texts = [...document.querySelectorAll("svg.lanes text")]
    .map((node) => [node.textContent, node.getBoundingClientRect()]);
  const isBeyond = ([, at]) => at.left < box.left - 1 || at.right > box.right + 1;
  const cross = (a, b) => a.left < b.right && b.left < a.right;
  const meet = ([, a], [, b]) => cross(a, b) && a.top + 2 < b.bottom && b.top + 2 < a.bottom;
  return texts
    .filter((each, i) => isBeyond(each) || texts.slice(i + 1).some((other) => meet(each, other)))
    .map(([text]) => text);
}"""


@pytest.mark.parametrize("width", [360, 1920])
def test_the_texts_of_lanes_with_long_numbers_do_not_overlap(open_page, width):
    end = 1_234_567_890
    lanes = tuple(
        ReplicaLane(
            broker=1_000 + number, role=role, rack="rack-1", in_sync=role is LaneRole.LEADER,
            leo=end - missing, high_watermark=end - 150, last_stable_offset=end - 200,
            log_start_offset=0, reason=f"it fetched last 41.0 s ago, {missing} records behind",
        )
        for number, (role, missing) in enumerate([(LaneRole.LEADER, 0), (LaneRole.FOLLOWER, 120)])
    )  # fmt: skip
    page = open_page("about:blank", viewport={"width": width, "height": 640})
    picture = lanes_svg(PartitionLanes(topic="orders", partition=0, lanes=lanes))
    page.set_content(f"<main>{picture}</main>")
    for sheet in ("page.css", "lanes.css"):
        page.add_style_tag(path=STATIC / sheet)

    assert page.evaluate(OVERLAPS) == []


def test_the_lab_adds_a_broker(tmp_path, open_page):
    path = tmp_path / "D"
    run("up", "--dir", path, "--detach")
    own = RunningPage(path, "--write")
    try:
        page = open_page(own.url + "lab", token=own.token)
        expect(page.locator("#lab tbody tr")).to_have_count(1)
        page.get_by_role("button", name="Add a broker").click()
        expect(page.locator("#lab-1")).to_contain_text("running")
        expect(page.locator("#lab-1 td").nth(2)).to_have_text("yes")
        now = open_page(own.url)
        expect(now.locator("#brokers")).to_contain_text("2")
        page.close()
        now.close()
    finally:
        own.end()
        run("down", "--dir", path)


def test_lanes_move_slowly_unless_the_user_wants_no_motion(served, open_page):
    durations = [
        open_page(served.url + "topics/orders", reduced_motion=wish)
        .locator("svg.lanes rect")
        .first.evaluate("node => getComputedStyle(node).transitionDuration")
        for wish in ("no-preference", "reduce")
    ]
    assert durations == ["0.35s, 0.35s", "0s"]


def test_a_live_tail_shows_what_is_written_and_pauses(served, open_page):
    served.kafka("kafka-topics", "--create", "--topic", "tailed")
    page = open_page(served.url + "messages?topic=tailed&tail=1")
    expect(page.locator("#pause")).to_have_text("Pause")
    served.kafka("kafka-console-producer", "--topic", "tailed", typed="first\n")
    expect(page.locator("#found")).to_contain_text("first")

    page.locator("#pause").click()
    expect(page.locator("#pause")).to_have_text("Go on")
    served.kafka("kafka-console-producer", "--topic", "tailed", typed="second\n")
    expect(page.locator("#found > li")).to_have_count(1)
    page.locator("#pause").click()
    expect(page.locator("#found")).to_contain_text("second")


def test_the_lab_cuts_a_broker_off_and_its_lane_says_so(served, open_page):
    topic = open_page(served.url + "topics/orders?partition=0")
    expect(topic.locator("#lanes-orders-0")).not_to_contain_text("out of sync")
    page = open_page(served.url + "lab", token=served.token)
    row = page.locator("#lab-2")
    row.get_by_role("button", name="cut off").click()
    expect(row).to_contain_text("running, cut off")
    expect(topic.locator("#lanes-orders-0")).to_contain_text("out of sync")

    row.get_by_role("button", name="connect again").click()
    expect(row).not_to_contain_text("cut off,")
    expect(topic.locator("#lanes-orders-0")).not_to_contain_text("out of sync")


def test_the_code_of_the_address_gives_one_tab_the_right_to_write(cluster, open_page):
    own = RunningPage(cluster, "--write")
    try:
        page = open_page(own.writing)
        expect(page).to_have_url(own.url)
        page.goto(own.url + "lab")
        expect(page.locator("#lab-0").get_by_role("button", name="kill")).to_be_visible()
        second = open_page(own.writing, expected="status of 403")
        expect(second.locator("#link")).to_contain_text("was used before")
        second.goto(own.url + "lab")
        expect(second.locator("#lab-0")).to_contain_text("running")
        expect(second.locator("#lab-0").get_by_role("button", name="kill")).to_have_count(0)
        page.close()
        second.close()
    finally:
        own.end()


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
    expect(page).to_have_url(re.compile(r"at=\d+"))
    shown = page.locator("#then h2").inner_text().removeprefix("The cluster at ")
    expect(page.locator("form.slider output")).to_have_text(shown)


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


def test_a_story_is_played_to_its_end(served, open_page):
    page = open_page(served.url + "stories")
    page.get_by_role("link", name=re.compile("high watermark", re.IGNORECASE)).first.click()
    steps = int(page.locator("#story").get_attribute("data-steps") or 0)
    assert steps > 5
    for step in range(2, steps + 1):
        page.locator("#step-on").click()
        expect(page.locator("#step-number")).to_have_text(f"{step} of {steps}")
    expect(page.locator("svg.lanes").first).to_contain_text("in sync")


def test_two_runs_are_side_by_side_at_the_same_moment_of_the_plan(served, open_page):
    page = open_page(
        served.url + "stories/unclean-election", viewport={"width": 1280, "height": 900}
    )
    steps = int(page.locator("#story").get_attribute("data-steps") or 0)
    left, right = page.locator("#run-1"), page.locator("#run-2")

    def go(step):
        page.locator("#step").fill(str(step))
        expect(page.locator("#step-number")).to_have_text(f"{step} of {steps}")

    def tops(part):
        return {round(run.locator(part).first.bounding_box()["y"]) for run in (left, right)}

    waiting = []
    for step in range(1, steps + 1):
        go(step)
        said = [run.locator(".said").inner_text() for run in (left, right)]
        assert any("nothing happens" not in each and "the end" not in each for each in said)
        # Both see broker 0 start again at one step, though seconds lie between.
        assert ["Broker 0 registers" in said[0]] == ["Broker 0 registers" in said[1]]
        waiting += ["nothing happens in this run" in said[0]]
        assert [len(tops(part)) for part in (".said", "svg.lanes")] == [1, 1]
    assert any(waiting)
    expect(right.locator(".said")).to_contain_text("damage")

    page.locator("h1").click()
    page.keyboard.press("Home")
    expect(page.locator("#step-number")).to_have_text(f"1 of {steps}")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#step-number")).to_have_text(f"2 of {steps}")
    page.keyboard.press("End")
    expect(page.locator("#step-number")).to_have_text(f"{steps} of {steps}")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#step-number")).to_have_text(f"{steps - 1} of {steps}")


def test_one_message_is_found_among_a_million(served, open_page):
    served.kafka("kafka-topics", "--create", "--topic", "million", "--partitions", "2",
                 "--replication-factor", "1")  # fmt: skip
    served.perf("million", 500_000)
    served.kafka("kafka-console-producer", "--topic", "million", typed="the needle\n")
    served.perf("million", 500_000)

    page = open_page(served.url + "messages")
    page.get_by_label("Topic").first.fill("million")
    page.get_by_label("Text contains").fill("needle")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("main")).to_contain_text("This search reads")
    if page.locator("#begin").count():
        page.locator("#begin").click()
    expect(page.locator("#found > li")).to_have_count(1, timeout=240_000)
    expect(page.locator("#found")).to_contain_text("the needle")
    expect(page.locator("#progress")).to_contain_text("The search is complete", timeout=240_000)
    expect(page.locator("#progress")).to_contain_text("0 offset ranges were not searched")


def test_the_offsets_of_a_group_are_reset_after_a_dry_run(served, open_page):
    served.kafka("kafka-console-consumer", "--topic", "orders", "--group", "readers",
                 "--from-beginning", "--max-messages", "3")  # fmt: skip
    page = open_page(served.url + "groups/readers", token=served.token)
    expect(page.locator("#group-partitions")).to_contain_text("orders-0")
    page.locator("select[name=scenario]").select_option("to-earliest")
    page.get_by_role("button", name="Dry run").click()
    expect(page.locator("output.rows")).to_contain_text("orders")
    assert committed(served) == 3
    page.get_by_role("button", name="Commit").click()
    expect(page.locator("#group-state")).to_contain_text("3")
    wait_for_committed(served, 0)


def committed(served) -> int:
    """The sum of the committed offsets of the group."""
    found = json.loads(served.json("groups/readers"))
    return sum(each["committed_offset"] or 0 for each in found["group"]["partitions"])


def wait_for_committed(served, wanted: int) -> None:
    deadline = time.monotonic() + 60
    while committed(served) != wanted and time.monotonic() < deadline:
        threading.Event().wait(0.2)
    assert committed(served) == wanted
