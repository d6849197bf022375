"""A user logs in to the page of a secure cluster with the password of the cluster."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect
from tests.page.running import RunningPage, run

from odradek.local.client_files import ClientFiles


@pytest.fixture(scope="module")
def secure(tmp_path_factory):
    path = tmp_path_factory.mktemp("log-in") / "D"
    run("up", "--secure", "--dir", path, "--detach")
    config = ClientFiles(path / "clients").java("admin")
    page = RunningPage(path, "--log-in", "--write")
    try:
        page.kafka("kafka-topics", "--command-config", config, "--create", "--topic", "orders")
        yield page
    finally:
        page.end()
        run("down", "--dir", path)


def log_in(page, secure, user="admin", password=None):
    known = ClientFiles(secure.path / "clients").login(user)
    page.get_by_label("User").fill(user)
    page.get_by_label("Password").fill(password or known.password)
    page.get_by_role("button", name="Log in").click()


def test_a_view_is_there_after_the_log_in_and_goes_on_by_itself(secure, open_page):
    page = open_page(secure.url + "topics/orders", ignore_https_errors=True, expected="401")
    expect(page.locator("h1")).to_have_text("Log in")
    assert Axe().run(page).response["violations"] == []
    log_in(page, secure, password="wrong")
    expect(page.locator("#login output")).to_have_text("the user or the password is wrong")
    log_in(page, secure)
    expect(page.locator("h1")).to_contain_text("orders")
    expect(page).to_have_url(secure.url + "topics/orders")
    assert page.context.cookies() == []

    page.locator("nav").get_by_role("link", name="Messages").click()
    page.get_by_label("Topic").first.fill("orders")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("main")).to_contain_text("This search reads 0 offsets")

    page.goto(secure.url + "topics/orders")
    expect(page.locator("#lanes-orders-0")).to_contain_text("in sync")
    writer = open_page(secure.url + "messages?topic=orders", ignore_https_errors=True)
    log_in(writer, secure)
    writer.locator("form[action='/messages'][data-write] textarea[name=value]").fill("one")
    writer.get_by_role("button", name="Produce", exact=True).click()
    expect(writer.locator("main")).to_contain_text("written to orders-0 at offset 0")
    # The stream of changes has the token, too.
    expect(page.locator("#lanes-orders-0")).to_contain_text("LEO 1")

    with writer.expect_download() as download:
        writer.goto(secure.url + "messages?topic=orders")
        writer.get_by_role("link", name="jsonl").click()
    assert download.value.suggested_filename == "orders.jsonl"


def test_another_tab_has_to_log_in_and_the_log_out_ends_it(secure, open_page):
    page = open_page(secure.url + "topics", ignore_https_errors=True, expected="401")
    log_in(page, secure)
    expect(page.locator("h1")).to_have_text("Topics")
    page.reload()
    expect(page.locator("#topic-orders")).to_be_visible()
    second = page.context.new_page()
    second.goto(secure.url + "topics")
    expect(second.locator("h1")).to_have_text("Log in")

    page.get_by_role("button", name="Log out").click()
    expect(page.locator("h1")).to_have_text("Log in")
    page.reload()
    expect(page.get_by_label("User")).to_be_visible()
