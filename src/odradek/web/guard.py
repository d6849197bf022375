"""Who may use the page: checks of each request before any view sees it.

A page on the loopback interface is reachable by every web page that its user opens, so:

    Host must be an address, `localhost` or an allowed name (DNS rebinding)
    requests that another site causes are refused (Sec-Fetch-Site, Origin), except navigation
    writing needs `--write` and a token, which a script of another site cannot read or send: the
        address printed at the start has a code that is valid once and is exchanged for it
    nothing inline is executed, and no other site may frame the page (content security policy)

There is no cookie. Each write is one line of the log `odradek.web.audit`. With log-in
(`odradek.web.login`) a session's token takes the place of the token for writing.
"""

import hmac
import ipaddress
import logging
import secrets
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from functools import wraps
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from odradek.web.sessions import session_of

TOKEN_HEADER: Final = "x-odradek-token"
BODY_BYTES_MAX: Final = 1 << 20
_SAFE: Final = ("GET", "HEAD")
_HEADERS: Final = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
audit = logging.getLogger("odradek.web.audit")
Endpoint = Callable[[Request], Awaitable[Response]]


class WriteAccess:
    """The right to write: off, or a code that is exchanged once for the token of a tab.

    With log-in there is no code: whoever is logged in writes with the rights of that user.
    """

    def __init__(self, *, is_enabled: bool, has_log_in: bool = False) -> None:
        self.is_enabled = is_enabled
        self.has_log_in = has_log_in
        has_code = is_enabled and not has_log_in
        self.code: str | None = secrets.token_urlsafe(24) if has_code else None
        self._token = secrets.token_urlsafe(32)

    def exchange(self, code: str) -> str | None:
        """The token, if this is the code and it was not exchanged before."""
        if self.code is None or not hmac.compare_digest(code.encode(), self.code.encode()):
            return None
        self.code = None
        return self._token

    def holds(self, token: str) -> bool:
        return self.is_enabled and hmac.compare_digest(token.encode(), self._token.encode())


READ_ONLY: Final = WriteAccess(is_enabled=False)


def writes(endpoint: Endpoint) -> Endpoint:
    """Marks a route that changes something: refuses it without the token, and logs it."""

    @wraps(endpoint)
    async def guarded(request: Request) -> Response:
        access: WriteAccess = request.app.state.write_access
        if not access.is_enabled:
            raise HTTPException(403, "this page is read-only: start it with --write")
        session = session_of(request)
        if session is None and not access.holds(request.headers.get(TOKEN_HEADER, "")):
            raise HTTPException(
                403, "the token is missing or wrong: open the address that was printed at the start"
            )
        response = await endpoint(request)
        who = peer_of(request)
        if session is not None:
            who += f": user {session.user[:64]!r}"
        audit.warning("%s: %s %s: %s", who, request.method, request.url.path, response.status_code)
        return response

    guarded.is_write = True  # type: ignore[attr-defined]
    return guarded


def peer_of(request: Request) -> str:
    """The address from which a request comes."""
    return request.client.host if request.client else "?"


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a write: a JSON object with text values; none if there is no body.

    Raises:
        HTTPException: 400, it is something else.
    """
    if not await request.body():
        return {}
    try:
        fields = await request.json()
    except ValueError:
        fields = None
    if not isinstance(fields, dict) or not all(isinstance(v, str) for v in fields.values()):
        raise HTTPException(400, "the body must be a JSON object with text values")
    return fields


async def token(request: Request) -> Response:
    """POST /token: the one-time code for the token."""
    access: WriteAccess = request.app.state.write_access
    found = access.exchange((await form_of(request)).get("code", ""))
    if found is None:
        raise HTTPException(403, "the code is wrong, or was used before: start the page again")
    return JSONResponse({"token": found})


class Guard:
    """ASGI middleware: refuses what another site may have caused, and sets the headers."""

    def __init__(self, app: ASGIApp, *, allowed_hosts: Collection[str] = ()) -> None:
        self._app = app
        self._allowed = frozenset(name.lower() for name in allowed_hosts) | {"localhost"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if (refused := self._refused(scope)) is not None:
            await _with_headers(PlainTextResponse(refused, 403), scope, receive, send)
            return
        await _with_headers(self._app, scope, _limited(receive), send)

    def _refused(self, scope: Scope) -> str | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._is_allowed(host):
            return f"Host {host!r} is not allowed: use an address or localhost, or --allow-host"
        site = headers.get("sec-fetch-site", "none")
        is_navigation = headers.get("sec-fetch-mode") == "navigate" and scope["method"] == "GET"
        if site not in ("none", "same-origin") and not is_navigation:
            return "another site may not use this page"
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            return f"origin {origin!r} is not this page"
        return None

    def _is_allowed(self, host: str) -> bool:
        try:
            name = (urlsplit(f"//{host}").hostname or "").lower()
            if name in self._allowed:
                return True
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


async def _with_headers(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    async def add(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers[name] = value
            if "cache-control" not in headers:
                headers["cache-control"] = "no-store"
        await send(message)

    await app(scope, receive, add)


def _limited(receive: Receive) -> Receive:
    """The body of a request, up to a limit."""
    seen = 0

    async def limited() -> MutableMapping[str, Any]:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > BODY_BYTES_MAX:
            raise HTTPException(413, f"a request has at most {BODY_BYTES_MAX} bytes")
        return message

    return limited
