"""Users log in to the page with their password of the cluster."""

import asyncio
import logging
from contextlib import asynccontextmanager

import pytest
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from tests.asgi import requested

from odradek.client.security.protocol import AuthenticationError
from odradek.model.clock import MonotonicMs
from odradek.web.app import create_app
from odradek.web.facts.source import Source
from odradek.web.guard import WriteAccess, writes
from odradek.web.sessions import (
    IDLE_MS,
    SESSION_MS,
    SESSIONS_MAX,
    TRIES,
    TRIES_MS,
    LogInError,
    LogInTries,
    Sessions,
    why_no_log_in,
)
from odradek.web.workspace import workspace

PROPERTIES = {"bootstrap.servers": "kafka1:9092", "security.protocol": "SASL_SSL",
              "sasl.mechanism": "SCRAM-SHA-512"}  # fmt: skip
JSON = {"accept": "application/json"}
HTML = {"accept": "text/html"}


class Cluster(Source):
    """Answers to the users whose password is their name."""

    def __init__(self, login=None):
        super().__init__(PROPERTIES)
        self.login = login
        self.is_closed = False

    def as_user(self, login):
        return Cluster(login)

    async def cluster(self):
        if self.login.password == "down":
            raise ConnectionError("no broker answers")
        if self.login.password != self.login.name:
            raise AuthenticationError("Authentication failed during authentication")

    async def close(self):
        self.is_closed = True


class Clock:
    def __init__(self):
        self.monotonic_ms = MonotonicMs(0)

    def __call__(self):
        return self.monotonic_ms


class Runner:
    """Stands for the runner of moves."""

    def __init__(self):
        self.is_running = False

    @property
    def status(self):
        return self


class Place:
    def __init__(self, source):
        self.source = source
        self.mover = Runner()

    async def close(self):
        await self.source.close()


def sessions_of(clock):
    return Sessions(Cluster(), Place, monotonic_ms=clock)


def refused(coroutine):
    with pytest.raises(LogInError) as caught:
        asyncio.run(coroutine)
    return caught.value.status


def test_a_token_is_valid_until_it_is_not_used_for_half_an_hour():
    clock = Clock()
    sessions = sessions_of(clock)
    token = asyncio.run(sessions.log_in("alice", "alice", "1.2.3.4"))
    assert sessions.find("") is None
    assert sessions.find(token + "x") is None
    clock.monotonic_ms += IDLE_MS - 1
    session = sessions.find(token)
    assert session.user == "alice"
    clock.monotonic_ms += IDLE_MS - 1
    assert sessions.goes_on(session)
    clock.monotonic_ms += 1
    assert not sessions.goes_on(session)
    assert sessions.find(token) is None


def test_a_token_that_is_used_all_the_time_expires_after_half_a_day():
    clock = Clock()
    sessions = sessions_of(clock)
    token = asyncio.run(sessions.log_in("alice", "alice", "1.2.3.4"))
    while clock.monotonic_ms < SESSION_MS:
        assert sessions.find(token) is not None
        clock.monotonic_ms += IDLE_MS // 2
    assert sessions.find(token) is None


def test_sessions_of_a_user_share_connections_which_are_closed_after_the_last_one():
    async def work():
        clock = Clock()
        sessions = sessions_of(clock)
        tokens = [await sessions.log_in("alice", "alice", "1.2.3.4") for _ in range(2)]
        other = await sessions.log_in("bob", "bob", "1.2.3.4")
        places = [sessions.find(each).workspace for each in (*tokens, other)]
        await sessions.log_out(tokens[0])
        first = places[0].source.is_closed
        await sessions.log_out(tokens[1])
        return sessions.find(tokens[1]), places, first

    ended, places, first = asyncio.run(work())

    assert ended is None
    assert places[0] is places[1]
    assert places[0] is not places[2]
    assert (first, places[0].source.is_closed, places[2].source.is_closed) == (False, True, False)


def test_the_connections_of_a_plan_that_is_executed_outlive_the_session():
    async def work():
        sessions = sessions_of(Clock())
        token = await sessions.log_in("alice", "alice", "1.2.3.4")
        place = sessions.find(token).workspace
        place.mover.is_running = True
        await sessions.log_out(token)
        during = place.source.is_closed
        place.mover.is_running = False
        await sessions.sweep()
        return during, place.source.is_closed

    assert asyncio.run(work()) == (False, True)


@pytest.mark.parametrize(
    ("user", "password", "status"),
    [("alice", "bob", 401), ("alice", "", 401), ("", "", 400), ("a" * 2_000, "a", 400),
     ("alice", "down", 503)],
)  # fmt: skip
def test_a_log_in_is_refused(user, password, status):
    assert refused(sessions_of(Clock()).log_in(user, password, "1.2.3.4")) == status


def test_an_address_has_five_tries_in_five_minutes():
    clock = Clock()
    sessions = sessions_of(clock)
    assert asyncio.run(sessions.log_in("alice", "alice", "1.2.3.4"))
    for _ in range(TRIES):
        assert refused(sessions.log_in("alice", "wrong", "1.2.3.4")) == 401
    assert refused(sessions.log_in("alice", "alice", "1.2.3.4")) == 429
    assert asyncio.run(sessions.log_in("alice", "alice", "1.2.3.5"))
    clock.monotonic_ms += TRIES_MS
    assert asyncio.run(sessions.log_in("alice", "alice", "1.2.3.4"))


def test_tries_while_no_broker_answers_do_not_count():
    sessions = sessions_of(Clock())
    for _ in range(TRIES + 1):
        assert refused(sessions.log_in("alice", "down", "1.2.3.4")) == 503
    assert asyncio.run(sessions.log_in("alice", "alice", "1.2.3.4"))


def test_the_addresses_of_one_ipv6_network_are_one_and_those_of_ipv4_are_not():
    tries = LogInTries()
    for number in range(TRIES):
        assert tries.begin(f"2001:db8::{number}", MonotonicMs(0)) == 0
        assert tries.begin(f"::ffff:10.0.0.{number}", MonotonicMs(0)) == 0
    assert tries.begin("2001:db8::ffff", MonotonicMs(0)) == TRIES_MS
    assert tries.begin("2001:db8:0:1::", MonotonicMs(0)) == 0
    assert tries.begin("10.0.0.9", MonotonicMs(0)) == 0


def test_more_users_than_the_limit_are_refused():
    async def work():
        sessions = sessions_of(Clock())
        for _ in range(SESSIONS_MAX):
            await sessions.log_in("alice", "alice", "1.2.3.4")
        await sessions.log_in("alice", "alice", "1.2.3.4")

    assert refused(work()) == 503


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({}, "security.protocol=PLAINTEXT"),
        ({"security.protocol": "SSL"}, "security.protocol=SSL"),
        ({"security.protocol": "sasl_ssl"}, "sasl.mechanism=GSSAPI"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, "OAUTHBEARER"),
    ],
)
def test_a_cluster_without_passwords_has_no_log_in(properties, text):
    assert text in why_no_log_in(properties)
    assert why_no_log_in(PROPERTIES) == ""


# ------------------------------------------------------------------------------- over HTTP


async def who(request):
    return PlainTextResponse(workspace(request).source.login.name)


@writes
async def change(_request):
    return PlainTextResponse("changed")


@asynccontextmanager
async def page(*, write=True):
    routes = [Route("/who", who), Route("/change", change, methods=["POST"])]
    access = WriteAccess(is_enabled=write, has_log_in=True)
    app = create_app(Cluster(), write_access=access, routes=routes)
    async with app.router.lifespan_context(app):

        async def ask(method, url, headers=JSON, body=None, token=""):
            bearer = {"authorization": f"Bearer {token}"} if token else {}
            return await requested(app, method, url, {**headers, **bearer}, body)

        yield ask


async def logged_in(ask, user):
    return (await ask("POST", "/login", body={"user": user, "password": user})).json()["token"]


def test_no_view_is_there_without_a_token_and_a_browser_gets_the_form():
    async def work():
        async with page() as ask:
            return [
                await ask("GET", "/topics/orders"),
                await ask("GET", "/stories"),
                await ask("GET", "/topics", HTML, token="wrong"),
                await ask("POST", "/change", HTML),
                await ask("GET", "/topics/orders", HTML),
                await ask("POST", "/token", body={"code": ""}),
            ]

    *refusals, form, code = asyncio.run(work())

    assert [each.status_code for each in refusals] == [401] * 4
    assert (form.status_code, code.status_code) == (200, 401)
    assert "Log in as a user of the cluster" in form.text
    assert "kafka1" not in form.text.partition("<main")[2]
    assert "set-cookie" not in form.headers


def test_each_token_has_the_connections_of_its_user():
    async def work():
        async with page() as ask:
            tokens = [await logged_in(ask, user) for user in ("alice", "bob")]
            names = [(await ask("GET", "/who", token=each)).text for each in tokens]
            await ask("POST", "/logout", token=tokens[0])
            return names, [(await ask("GET", "/who", token=each)).status_code for each in tokens]

    assert asyncio.run(work()) == (["alice", "bob"], [401, 200])


@pytest.mark.parametrize(("write", "status"), [(True, 200), (False, 403)])
def test_the_token_of_a_log_in_is_the_right_to_write_if_the_page_may_write(write, status, caplog):
    caplog.set_level(logging.WARNING, "odradek.web.audit")

    async def work():
        async with page(write=write) as ask:
            token = await logged_in(ask, "alice")
            await ask("POST", "/login", body={"user": "eve\n", "password": "x"})
            return (await ask("POST", "/change", token=token)).status_code

    assert asyncio.run(work()) == status
    lines = [record.getMessage() for record in caplog.records]
    changed = ["127.0.0.1: user 'alice': POST /change: 200"] * write
    assert lines == [
        "127.0.0.1: user 'alice' is logged in",
        "127.0.0.1: log-in as 'eve\\n': the user or the password is wrong",
        *changed,
    ]


def test_the_lab_is_not_there_for_those_who_log_in(tmp_path):
    source = Cluster()
    source.directory = tmp_path

    async def work():
        app = create_app(source, write_access=WriteAccess(is_enabled=True, has_log_in=True))
        async with app.router.lifespan_context(app):
            body = {"user": "alice", "password": "alice"}
            token = (await requested(app, "POST", "/login", JSON, body)).json()["token"]
            return await requested(app, "GET", "/lab", {"authorization": f"Bearer {token}"})

    assert asyncio.run(work()).status_code == 404
