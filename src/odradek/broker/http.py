"""The broker's HTTP server: `/metrics`, `/health`, and the reports in its routes.

h11 reads and writes the protocol; the socket is asyncio's. The server is meant for operators on the
loopback interface, and therefore strict:

    GET and HEAD only; a request has at most 8 KiB and no body, and has to arrive in time
    `Host` must be an address, `localhost` or an allowed name - otherwise any web page that an
        operator opens could read the answers under a name of its own (DNS rebinding)
    a token for all but the routes of `OPEN`, where one is required (`odradek.broker.http_token`)
    a limited number of connections, of which those that ask nothing or do not read make room for a
        new one, the oldest first; no header that lets other sites read the answers

A body may be given in pieces, which are made while they are sent. Between two pieces the loop
serves other work, and while the client does not read, no piece is made: a long answer does not
delay producing and fetching. No task is needed: callbacks drive a connection.

It is imported after the broker has started, because nothing needs it before.
"""

import asyncio
import hmac
import ipaddress
import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Final, cast
from urllib.parse import parse_qsl, urlsplit

import h11

from odradek.obs.exposition import content_type, text_pieces
from odradek.obs.metrics import BrokerMetrics

log = logging.getLogger(__name__)

REQUEST_BYTES_MAX: Final = 8_192
QUERY_FIELDS_MAX: Final = 16
PEERS_MAX: Final = 32
AT_ONCE: Final = 4  # connections accepted in one turn of the loop, before any of them is refused
TIMEOUT_SECONDS: Final = 30.0
OPEN: Final = frozenset({"/metrics", "/health"})  # without a token they show no names


@dataclass(frozen=True, slots=True)
class Response:
    """An answer; if its body is given in pieces, one is made in each turn of the loop."""

    status: int
    content_type: str
    body: bytes | Iterable[bytes]


Route = Callable[[Mapping[str, str]], Response]  # from the fields of the query


@dataclass(frozen=True, slots=True)
class NegotiatedRoute:
    """A route whose format depends on the request's Accept header.

    The second argument is whether names may be shown.
    """

    answer: Callable[[str, bool], Response]


def json_response(value: object, status: int = 200) -> Response:
    return Response(status, "application/json", json.dumps(value).encode() + b"\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The broker's state, as in `/health`, which answers 200 while it is `running`, else 503."""

    state: str  # starting, recovering, running, shutting-down
    version: str
    broker_id: int
    cluster_id: str | None
    controller_id: int | None
    listeners: tuple[str, ...]
    offline_log_dirs: tuple[str, ...]


def metrics_route(metrics: BrokerMetrics) -> NegotiatedRoute:
    """The broker's metrics, in Prometheus' format or, if the client accepts it, OpenMetrics."""

    def answer(accept: str, shows_names: bool) -> Response:
        format_ = content_type(accept)
        return Response(200, format_, text_pieces(metrics, format_, shows_names=shows_names))

    return NegotiatedRoute(answer)


def health_route(health: Callable[[], Health]) -> Route:
    """The broker's state as JSON."""

    def answer(_query: Mapping[str, str]) -> Response:
        now = health()
        return json_response(asdict(now), 200 if now.state == "running" else 503)

    return answer


class HttpServer:
    """Serves a table of routes at one address."""

    def __init__(
        self,
        routes: Mapping[str, Route | NegotiatedRoute],
        *,
        token: bytes | None = None,
        allowed_hosts: Collection[str] = (),
        peers_max: int = PEERS_MAX,
        at_once: int = AT_ONCE,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        """`token` is what a client has to present; None: everybody may see everything."""
        self.routes = routes
        self._credentials = None if token is None else b"Bearer " + token
        self.peers_max = peers_max
        self._at_once = at_once
        self.timeout_seconds = timeout_seconds
        self.peers: dict[_Peer, None] = {}  # the oldest first
        self._allowed_hosts = frozenset(host.lower() for host in allowed_hosts)
        self._listening: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Accept connections. Returns the port, which the system chooses if 0 is given.

        Raises:
            OSError: the address is not one of this host, or is in use.
        """
        assert self._listening is None
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_server(
            lambda: _Peer(self, loop), host, port, backlog=self._at_once
        )
        return cast("int", self._listening.sockets[0].getsockname()[1])

    def stop(self) -> None:
        if self._listening is not None:
            self._listening.close()
            self._listening = None
        for peer in tuple(self.peers):
            peer.hang_up()

    def make_room(self) -> bool:
        """Close the oldest connection that asks nothing or does not read, if there are too many.

        So connections that are left open, or kept open on purpose, do not keep the monitoring out.
        Returns False if all are being answered.
        """
        if len(self.peers) < self.peers_max:
            return True
        unused = next((peer for peer in self.peers if not peer.is_answered), None)
        if unused is None:
            unused = next((peer for peer in self.peers if not peer.reads), None)
        if unused is None:
            return False
        self.peers.pop(unused)
        unused.hang_up()
        return True

    def knows(self, credentials: bytes) -> bool:
        """Whether an `Authorization` header has the token, or none is required."""
        # Bytes, because the comparison in constant time takes no text outside of ASCII.
        return self._credentials is None or hmac.compare_digest(credentials, self._credentials)

    def allows(self, host: str) -> bool:
        """Whether a `Host` header names this server for operators, not for a web page."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
            if name == "localhost" or name in self._allowed_hosts:
                return True
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


class _RefusedError(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class _Peer(asyncio.Protocol):
    """One connection: it answers one request after the other."""

    def __init__(self, server: HttpServer, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=REQUEST_BYTES_MAX)
        self._request: h11.Request | None = None
        self._pieces: Iterator[bytes] | None = None  # of the answer that is being sent
        self.reads = True  # the client reads what is sent
        self._deadline: asyncio.TimerHandle | None = None

    # --------------------------------------------------------------------- asyncio's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if not self._server.make_room():
            self._transport.abort()
            return
        self._server.peers[self] = None
        self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - it is lost
        self._server.peers.pop(self, None)
        self._pieces = None
        if self._deadline is not None:
            self._deadline.cancel()

    def data_received(self, data: bytes) -> None:
        self._http.receive_data(data)
        self._read()

    def eof_received(self) -> None:
        self._http.receive_data(b"")
        self._read()

    def pause_writing(self) -> None:
        self.reads = False

    def resume_writing(self) -> None:
        self.reads = True
        self._advance()

    # --------------------------------------------------------------------------------- a request

    @property
    def is_answered(self) -> bool:
        """Whether an answer is being sent; else the request is not complete."""
        return self._pieces is not None

    def hang_up(self) -> None:
        """Close the connection without an answer."""
        self._transport.abort()

    def _expect_request(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self._loop.call_later(self._server.timeout_seconds, self.hang_up)

    def _read(self) -> None:
        """Handle events until a request is complete, or more bytes are needed."""
        try:
            while self._pieces is None:
                event = self._http.next_event()
                if isinstance(event, h11.Request):
                    self._request = event
                elif isinstance(event, h11.Data):
                    raise _RefusedError(413, "a request here has no body")  # noqa: TRY301
                elif isinstance(event, h11.EndOfMessage):
                    assert self._request is not None
                    self._answer(self._respond(self._request))
                else:  # NEED_DATA, PAUSED, ConnectionClosed
                    if isinstance(event, h11.ConnectionClosed):
                        self._transport.close()
                    return
        except _RefusedError as refused:
            self._refuse(refused.status, str(refused))
        except h11.RemoteProtocolError as error:
            self._refuse(error.error_status_hint, str(error))

    def _respond(self, request: h11.Request) -> Response:
        try:
            return self._routed(request)
        except _RefusedError as refused:
            return json_response({"error": str(refused)}, refused.status)
        except Exception:  # one request must not end the broker
            log.exception("GET %s failed", request.target.decode("ascii", "replace"))
            return json_response({"error": "failed; see the broker's log"}, 500)

    def _routed(self, request: h11.Request) -> Response:
        if request.method not in (b"GET", b"HEAD"):
            raise _RefusedError(405, "GET and HEAD are all that is served")
        # h11 limits only incomplete requests, not one that arrived in one piece.
        if len(request.target) + sum(map(len, chain(*request.headers))) > REQUEST_BYTES_MAX:
            raise _RefusedError(431, f"a request has at most {REQUEST_BYTES_MAX} bytes")
        accept, credentials = self._headers(request)
        path, _, query = request.target.decode("ascii", "replace").partition("?")
        # Before the path: what exists is not shown, and a wrong token is not taken for none.
        is_known = self._server.knows(credentials)
        if not is_known and (credentials or path not in OPEN):
            raise _RefusedError(
                401, "send Authorization: Bearer TOKEN; see odradek.http.token.file"
            )
        route = self._server.routes.get(path)
        if route is None:
            known = ", ".join(sorted(self._server.routes))
            raise _RefusedError(404, f"there is no {path}; there are {known}")
        if isinstance(route, NegotiatedRoute):
            return route.answer(accept, is_known)
        try:
            fields = parse_qsl(query, max_num_fields=QUERY_FIELDS_MAX)
        except ValueError:
            raise _RefusedError(400, f"more than {QUERY_FIELDS_MAX} fields in the query") from None
        return route(dict(fields))

    def _headers(self, request: h11.Request) -> tuple[str, bytes]:
        """What the client accepts, and the credentials that it presents."""
        accept, credentials = "", b""
        for name, value in request.headers:
            if name == b"accept":
                accept += "," + value.decode("ascii", "replace")
            if name == b"authorization":
                credentials = value
            host = value.decode("ascii", "replace")
            if name == b"host" and not self._server.allows(host):
                raise _RefusedError(
                    421, f"not served under the name {host}; see odradek.http.allowed.hosts"
                )
        return accept, credentials

    def _refuse(self, status: int, why: str) -> None:
        """Answer an error, if that is still possible, and close: what follows cannot be parsed."""
        log.info("http: closed %s: %s", self._transport.get_extra_info("peername"), why)
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = json.dumps({"error": why}).encode() + b"\n"
            self._send(status, "application/json", body, last=True)
        self._transport.close()

    # --------------------------------------------------------------------------------- an answer

    def _answer(self, response: Response) -> None:
        if isinstance(response.body, bytes):
            self._send(response.status, response.content_type, response.body)
            self._answered()
            return
        # Further requests wait in the kernel's buffer.
        self._transport.pause_reading()
        is_head = self._request is not None and self._request.method == b"HEAD"
        self._pieces = iter(() if is_head else response.body)
        headers = [("content-type", response.content_type)]
        self._transport.write(self._head(response.status, headers))
        self._advance()

    def _advance(self) -> None:
        """Send the next piece of the answer."""
        if self._pieces is None:  # the connection was closed meanwhile
            return
        try:
            piece = next(self._pieces, None)
        except Exception:  # one request must not end the broker
            log.exception("http: an answer failed half-way")
            self.hang_up()  # without the end marker, so that the client sees an incomplete answer
            return
        if piece is not None:
            self._transport.write(self._bytes(h11.Data(data=piece)))
            if self.reads:  # otherwise `resume_writing` continues
                self._loop.call_soon(self._advance)
            return
        self._pieces = None
        self._transport.write(self._bytes(h11.EndOfMessage()))
        self._answered()
        self._transport.resume_reading()
        self._read()

    def _answered(self) -> None:
        self._request = None
        if self._http.our_state is h11.DONE:
            self._http.start_next_cycle()
            self._expect_request()
        else:  # the client asked for it to be closed, or uses HTTP/1.0
            self._transport.close()

    def _send(self, status: int, content_type: str, body: bytes, *, last: bool = False) -> None:
        headers = [("content-type", content_type), ("content-length", str(len(body)))]
        if status == 405:
            headers.append(("allow", "GET, HEAD"))
        if status == 401:
            headers.append(("www-authenticate", "Bearer"))
        if last:
            headers.append(("connection", "close"))
        out = self._head(status, headers)
        if self._request is None or self._request.method != b"HEAD":
            out += self._bytes(h11.Data(data=body))
        self._transport.write(out + self._bytes(h11.EndOfMessage()))

    def _head(self, status: int, headers: list[tuple[str, str]]) -> bytes:
        always = [("cache-control", "no-store"), ("x-content-type-options", "nosniff")]
        return self._bytes(h11.Response(status_code=status, headers=headers + always))

    def _bytes(self, event: h11.Event) -> bytes:
        return self._http.send(event) or b""
