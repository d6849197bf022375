"""Which requests the page refuses."""

import pytest
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from tests.asgi import request

from odradek.web.app import create_app
from odradek.web.guard import TOKEN_HEADER, WriteAccess, writes


@writes
async def change(_request):
    return PlainTextResponse("changed")


def app_of(access: WriteAccess | None = None, **more):
    routes = [Route("/change", change, methods=["POST"])]
    return create_app(None, write_access=access, routes=routes, **more)


def asked(method: str, path: str, headers=None, access=None, body=None, **more):
    return request(app_of(access, **more), method, path, headers, body)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8080", 404),
        ("127.0.0.1", 404),
        ("[::1]:80", 404),
        ("LOCALHOST", 404),
        ("evil.example", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example:80", 403),
        ("", 403),
        ("page.internal", 404),
    ],
)
def test_host_must_be_an_address_localhost_or_allowed(host, status):
    answer = asked("GET", "/none", {"host": host}, allowed_hosts=["page.internal"])

    assert answer.status_code == status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 404),
        ({"sec-fetch-site": "same-origin"}, 404),
        ({"sec-fetch-site": "none"}, 404),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, 404),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, 403),
        ({"sec-fetch-site": "same-site", "sec-fetch-mode": "cors"}, 403),
        ({"origin": "http://127.0.0.1:1234"}, 404),
        ({"origin": "http://127.0.0.1:9"}, 403),
        ({"origin": "null"}, 403),
    ],
)
def test_requests_that_another_site_causes_are_refused(headers, status):
    assert (asked("GET", "/none", headers)).status_code == status


def test_another_site_cannot_post_by_navigation():
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}

    assert (asked("POST", "/change", headers)).status_code == 403


def test_nothing_is_written_by_a_page_that_is_read_only():
    answer = asked("POST", "/change")

    assert answer.status_code == 403
    assert "--write" in answer.json()["error"]


def test_writing_needs_the_token_and_the_code_is_exchanged_once():
    access = WriteAccess(is_enabled=True)
    code = access.code
    app = app_of(access)
    assert (request(app, "POST", "/change")).status_code == 403
    assert (request(app, "POST", "/change", {TOKEN_HEADER: code})).status_code == 403
    assert (request(app, "POST", "/token", body={"code": "wrong"})).status_code == 403
    token = (request(app, "POST", "/token", body={"code": code})).json()["token"]
    assert (request(app, "POST", "/token", body={"code": code})).status_code == 403
    answer = request(app, "POST", "/change", {TOKEN_HEADER: token})
    assert (answer.status_code, answer.text) == (200, "changed")


def test_a_write_is_one_line_of_the_audit_log(caplog):
    access = WriteAccess(is_enabled=True)
    token = access.exchange(access.code)
    asked("POST", "/change", {TOKEN_HEADER: token}, access)

    assert [r.getMessage() for r in caplog.records if r.name == "odradek.web.audit"] == [
        "127.0.0.1: POST /change: 200"
    ]


def test_every_answer_has_the_headers_that_confine_the_page():
    for answer in (asked("GET", "/none"), asked("GET", "/none", {"host": "x.example"})):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "set-cookie" not in answer.headers


def test_a_large_body_is_refused():
    answer = asked("POST", "/token", body={"code": "x" * (2 << 20)})

    assert answer.status_code == 413
