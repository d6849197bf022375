"""The HTTP server for operators: what it answers, and what it refuses."""

import asyncio
import contextlib
import itertools
import json
from contextlib import AsyncExitStack, asynccontextmanager

import h11
import pytest
from prometheus_client.parser import text_string_to_metric_families

from odradek.broker import http
from odradek.broker.http import (
    Health,
    HttpServer,
    NegotiatedRoute,
    Response,
    health_route,
    json_response,
    metrics_route,
)
from odradek.obs.metrics import BrokerMetrics

HEALTH = Health(
    state="running",
    version="1.2.3",
    broker_id=1,
    cluster_id="abc",
    controller_id=1,
    listeners=("PLAINTEXT://127.0.0.1:9092",),
    offline_log_dirs=(),
)


@asynccontextmanager
async def serving(routes, **options):
    """A server, and a way to connect to it."""
    server = HttpServer(routes, **options)
    port = await server.start("127.0.0.1", 0)
    async with AsyncExitStack() as peers:

        async def connect():
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            peers.push_async_callback(hang_up, writer)
            return reader, writer

        try:
            yield server, connect
        finally:
            server.stop()


async def hang_up(writer):
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def rest(reader):
    return await asyncio.wait_for(reader.read(), 5)


def asked(sent, routes=None, **options):
    """Everything that the server answers to these bytes until it closes the connection."""

    async def conversation():
        async with serving(routes or {"/": json_response}, **options) as (_, connect):
            reader, writer = await connect()
            writer.write(sent)
            return await rest(reader)

    return asyncio.run(conversation())


def get(target, *, host="127.0.0.1:8080", method="GET", close=True, credentials=None):
    ending = "Connection: close\r\n" if close else ""
    ending += f"Authorization: {credentials}\r\n" if credentials is not None else ""
    return f"{method} {target} HTTP/1.1\r\nHost: {host}\r\n{ending}\r\n".encode()


def parsed(answer, method="GET"):
    """Status, headers and body of one complete answer."""
    peer = h11.Connection(h11.CLIENT)
    peer.send(h11.Request(method=method, target="/", headers=[("host", "x")]))
    peer.send(h11.EndOfMessage())
    peer.receive_data(answer)
    peer.receive_data(b"")  # the end of the input
    response, body = peer.next_event(), b""
    while isinstance(event := peer.next_event(), h11.Data):
        body += event.data
    headers = {name.decode(): value.decode() for name, value in response.headers}
    return response.status_code, headers, body


def test_metrics_are_text_that_prometheus_reads():
    metrics = BrokerMetrics({0: "Produce"})
    metrics.requests.answered(0, 9, 1)

    status, headers, body = parsed(asked(get("/metrics"), {"/metrics": metrics_route(metrics)}))

    assert status == 200
    assert headers["content-type"].startswith("text/plain")
    names = {family.name for family in text_string_to_metric_families(body.decode())}
    assert "kafka_network_requestmetrics_requests" in names


@pytest.mark.parametrize(("state", "status"), [("running", 200), ("shutting-down", 503)])
def test_health_is_good_while_the_broker_runs(state, status):
    now = Health(**{name: getattr(HEALTH, name) for name in Health.__slots__} | {"state": state})

    answered, headers, body = parsed(asked(get("/health"), {"/health": health_route(lambda: now)}))

    assert answered == status
    assert headers["content-type"] == "application/json"
    assert json.loads(body) == {
        "state": state,
        "version": "1.2.3",
        "broker_id": 1,
        "cluster_id": "abc",
        "controller_id": 1,
        "listeners": ["PLAINTEXT://127.0.0.1:9092"],
        "offline_log_dirs": [],
    }


def test_a_route_gets_the_fields_of_the_query():
    _, _, body = parsed(asked(get("/?topic=a%20b&partition=7")))

    assert json.loads(body) == {"topic": "a b", "partition": "7"}


def test_one_connection_may_ask_again_and_ahead():
    answer = asked(get("/?n=1", close=False) + get("/?n=2", close=False) + get("/?n=3"))

    assert [answer.count(f'"n": "{n}"'.encode()) for n in (1, 2, 3)] == [1, 1, 1]
    assert answer.index(b'"1"') < answer.index(b'"2"') < answer.index(b'"3"')


@pytest.mark.parametrize(
    ("sent", "status", "why"),
    [
        (get("/nothing"), 404, "there is no /nothing; there are /"),
        (get("/", method="POST"), 405, "GET and HEAD are all that is served"),
        (get("/", host="evil.example"), 421, "not served under the name evil.example; "),
        (get("/", host="127.0.0.1.evil.example"), 421, "not served under the name 127.0.0.1.evil"),
        (get("/", host="[::1"), 421, "not served under the name [::1; "),
        (get("/?" + "&".join(["a=1"] * 17)), 400, "more than 16 fields in the query"),
        (b"GET / HTTP/1.1\r\n\r\n", 400, ""),
        (b"nonsense\r\n\r\n", 400, ""),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, ""),
        (get("/" + "a" * 9_000), 431, ""),
        (
            b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc",
            413,
            "a request here has no body",
        ),
    ],
)
def test_what_is_not_asked_for_properly_is_refused(sent, status, why):
    answered, headers, body = parsed(asked(sent))

    assert answered == status
    assert json.loads(body)["error"].startswith(why)
    assert headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in headers


def test_head_is_answered_without_a_body():
    routes = {"/": json_response, "/metrics": metrics_route(BrokerMetrics())}
    for path in routes:
        status, _, body = parsed(asked(get(path, method="HEAD"), routes), "HEAD")
        assert (status, body) == (200, b"")


def test_metrics_are_openmetrics_for_a_client_that_accepts_them():
    request = get("/metrics").replace(
        b"\r\n\r\n", b"\r\nAccept: application/openmetrics-text;version=1.0.0\r\n\r\n"
    )
    status, headers, body = parsed(asked(request, {"/metrics": metrics_route(BrokerMetrics())}))

    assert status == 200
    assert headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert body.endswith(b"# EOF\n")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "[::1]:9", "10.0.0.1", "kafka.local"])
def test_operators_names_are_let_in(host):
    status, _, _ = parsed(asked(get("/", host=host), allowed_hosts=["Kafka.local"]))

    assert status == 200


def test_the_loop_turns_between_the_pieces_of_an_answer():
    turns = []

    def pieces():
        for number in range(3):
            turns.append(f"piece {number}")
            asyncio.get_running_loop().call_soon(turns.append, "turn")
            yield b"x"

    _, _, body = parsed(asked(get("/"), {"/": lambda _: Response(200, "text/plain", pieces())}))

    assert body == b"xxx"
    assert turns == ["piece 0", "turn", "piece 1", "turn", "piece 2", "turn"]


def test_a_route_that_fails_is_answered_and_the_next_request_served(caplog):
    def fails(_query):
        raise ZeroDivisionError

    routes = {"/fails": fails, "/works": lambda _: json_response("yes")}
    answer = asked(get("/fails", close=False) + get("/works"), routes)

    assert answer.startswith(b"HTTP/1.1 500 ")
    assert answer.endswith(b'"yes"\n')
    assert "GET /fails failed" in caplog.text


def test_an_answer_that_fails_half_way_is_not_taken_for_a_whole_one(caplog):
    def pieces():
        yield b"x"
        raise ZeroDivisionError

    answer = asked(get("/"), {"/": lambda _: Response(200, "text/plain", pieces())})

    with pytest.raises(h11.RemoteProtocolError, match="incomplete"):
        parsed(answer)
    assert "half-way" in caplog.text


def test_an_older_client_gets_an_answer_in_pieces_that_ends_with_the_connection():
    routes = {"/": lambda _: Response(200, "text/plain", iter([b"a", b"", b"b"]))}
    answer = asked(b"GET / HTTP/1.0\r\n\r\n", routes)

    assert parsed(answer)[2] == b"ab"
    assert answer.endswith(b"ab")


def test_a_long_answer_waits_for_a_peer_that_does_not_read():
    async def conversation():
        made = []

        def pieces():
            for _ in range(250):
                made.append(b"x" * 65_536)
                yield made[-1]

        routes = {"/": lambda _: Response(200, "text/plain", pieces())}
        async with serving(routes) as (server, connect):
            reader, writer = await connect()
            writer.transport.pause_reading()
            writer.write(get("/"))
            while not server.peers:  # noqa: ASYNC110
                await asyncio.sleep(0)
            (peer,) = server.peers
            while peer.reads:  # noqa: ASYNC110 - until the kernel takes no more
                await asyncio.sleep(0)
            made_then = len(made)
            for _ in range(10):
                await asyncio.sleep(0)
            assert 0 < len(made) == made_then < 250
            writer.transport.resume_reading()
            answer = await rest(reader)
            assert len(answer) > 250 * 65_536
            assert answer.endswith(b"\r\n0\r\n\r\n")

    asyncio.run(conversation())


def test_a_silent_connection_is_closed():
    assert asked(b"GET / HT", timeout_seconds=0.01) == b""


def test_no_more_is_made_of_an_answer_whose_peer_has_left():
    async def conversation():
        made = []

        def pieces():
            while True:
                made.append(b"x")
                yield made[-1]

        routes = {"/": lambda _: Response(200, "text/plain", pieces())}
        async with serving(routes) as (server, connect):
            _, writer = await connect()
            writer.write(get("/"))
            while not made:  # noqa: ASYNC110
                await asyncio.sleep(0)
            (peer,) = server.peers
            peer.hang_up()
            while server.peers:  # noqa: ASYNC110 - there is no signal when one is closed
                await asyncio.sleep(0)
            made_then = len(made)
            for _ in range(3):
                await asyncio.sleep(0)
            assert len(made) == made_then

    asyncio.run(conversation())


def test_connections_that_ask_nothing_make_room_for_one_that_asks():
    async def conversation():
        async with serving({"/": json_response}, peers_max=3) as (server, connect):
            oldest, _ = await connect()
            _, half = await connect()
            half.write(b"GET / HTTP/1.1\r\n")
            youngest, last = await connect()
            while len(server.peers) < 3:  # noqa: ASYNC110
                await asyncio.sleep(0)
            for _ in range(2):
                reader, writer = await connect()
                writer.write(get("/"))
                assert (await rest(reader)).startswith(b"HTTP/1.1 200 ")
            assert await rest(oldest) == b""
            last.write(get("/"))
            assert (await rest(youngest)).startswith(b"HTTP/1.1 200 ")

    asyncio.run(conversation())


def test_one_that_does_not_read_its_answer_makes_room_and_one_that_reads_does_not():
    async def conversation():
        def endless(_query):
            return Response(200, "text/plain", itertools.repeat(b"x" * 65_536))

        async with serving({"/": json_response, "/endless": endless}, peers_max=2) as (
            server,
            connect,
        ):
            reading, writer = await connect()
            writer.write(get("/endless"))
            reader = asyncio.create_task(_read_for_ever(reading))
            _, silent = await connect()
            silent.write(get("/endless"))
            while all(peer.reads for peer in server.peers) or len(server.peers) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0)
            third, writer = await connect()
            writer.write(get("/"))
            assert (await rest(third)).startswith(b"HTTP/1.1 200 ")
            assert not reader.done()
            reader.cancel()

    asyncio.run(conversation())


async def _read_for_ever(reader):
    while await reader.read(1 << 20):
        pass


def test_if_all_connections_are_answered_another_is_closed():
    async def conversation():
        async with serving({"/": json_response}, peers_max=0) as (_, connect):
            reader, _ = await connect()
            assert await rest(reader) == b""

    asyncio.run(conversation())


def test_stopping_closes_connections_and_accepts_none():
    async def conversation():
        async with serving({}) as (server, connect):
            reader, _ = await connect()
            while not server.peers:  # noqa: ASYNC110
                await asyncio.sleep(0)
            server.stop()
            assert await rest(reader) == b""
            with pytest.raises(ConnectionRefusedError):
                await connect()

    asyncio.run(conversation())


# ------------------------------------------------------------------------------- the token

TOKEN = b"0123456789abcdef"
OF_AN_OPERATOR = f"Bearer {TOKEN.decode()}"


def named(accept, shows_names):
    return Response(200, "text/plain", b"names" if shows_names else b"numbers")


ROUTES = {
    "/metrics": NegotiatedRoute(named),
    "/health": lambda _query: json_response("well"),
    "/groups": lambda _query: json_response(["payroll"]),
}


@pytest.mark.parametrize(
    ("target", "credentials", "status", "said"),
    [
        ("/groups", OF_AN_OPERATOR, 200, b'["payroll"]\n'),
        ("/metrics", OF_AN_OPERATOR, 200, b"names"),
        ("/health", OF_AN_OPERATOR, 200, b'"well"\n'),
        ("/metrics", None, 200, b"numbers"),
        ("/health", None, 200, b'"well"\n'),
        *((target, wrong, 401, None)
          for target in ("/groups", "/metrics", "/health", "/missing")
          for wrong in (f"{OF_AN_OPERATOR}x", OF_AN_OPERATOR[:-1], "Bearer ", TOKEN.decode(),
                        f"Basic {TOKEN.decode()}", "Bearer \xe9")),
        *((target, None, 401, None) for target in ("/groups", "/groups?group=x", "/missing", "/")),
        *((target, "", 401, None) for target in ("/groups", "/missing")),
        ("/missing", OF_AN_OPERATOR, 404, None),
    ],
)  # fmt: skip
def test_with_a_token_names_are_shown_to_those_who_have_it(target, credentials, status, said):
    answered, headers, body = parsed(
        asked(get(target, credentials=credentials), ROUTES, token=TOKEN)
    )

    assert answered == status
    assert said is None or body == said
    assert (headers.get("www-authenticate") == "Bearer") is (status == 401)
    assert TOKEN not in body
    assert b"payroll" not in body or status == 200


def test_metrics_of_a_topic_are_shown_to_those_who_have_the_token():
    metrics = BrokerMetrics()
    metrics.topics["payroll"].messages_in = 1
    routes = {"/metrics": metrics_route(metrics)}
    shown = [
        b"payroll" in asked(get("/metrics", credentials=given), routes, token=TOKEN)
        for given in (None, OF_AN_OPERATOR)
    ]

    assert shown == [False, True]


def test_without_a_token_everybody_sees_everything():
    for credentials in (None, "Bearer anything"):
        assert parsed(asked(get("/metrics", credentials=credentials), ROUTES))[2] == b"names"
        assert parsed(asked(get("/groups", credentials=credentials), ROUTES))[0] == 200


def test_a_token_is_compared_in_constant_time(monkeypatch):
    compared = []
    monkeypatch.setattr(http.hmac, "compare_digest", lambda *both: bool(compared.append(both)))

    assert parsed(asked(get("/groups", credentials=OF_AN_OPERATOR), ROUTES, token=TOKEN))[0] == 401
    assert compared == [(OF_AN_OPERATOR.encode(),) * 2]
