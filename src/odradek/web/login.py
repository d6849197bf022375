"""Log-in over HTTP: each request but that for a file needs the token of a session.

    POST /login     {"user": ..., "password": ...}: {"token": ...}
    POST /logout

The token is sent as `Authorization: Bearer`. No browser adds that by itself, so no other site can
use it. A browser that opens a view without it gets a form, which `login.js` replaces by the view.
"""

from typing import Final

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from odradek.web.guard import form_of, peer_of
from odradek.web.sessions import LogInError, Sessions

_SCHEME: Final = "Bearer "


async def log_in(request: Request) -> Response:
    """POST /login: a token for the user, if a broker accepts the password."""
    fields = await form_of(request)
    sessions: Sessions = request.app.state.sessions
    user, password = fields.get("user", ""), fields.get("password", "")
    try:
        token = await sessions.log_in(user, password, peer_of(request))
    except LogInError as error:
        raise HTTPException(error.status, str(error)) from None
    return JSONResponse({"token": token})


async def log_out(request: Request) -> Response:
    """POST /logout: the token is not valid any more."""
    await request.app.state.sessions.log_out(_token(request.headers))
    return JSONResponse({"says": "logged out"})


def _token(headers: Headers) -> str:
    given = headers.get("authorization", "")
    return given[len(_SCHEME) :] if given.startswith(_SCHEME) else ""


class LogInRequired:
    """ASGI middleware: gives a request the workspace of its user, or refuses it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or _is_open(scope["path"]):
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        session = request.app.state.sessions.find(_token(request.headers))
        if session is None:
            await _unknown(request)(scope, receive, send)
            return
        request.state.workspace, request.state.session = session.workspace, session
        await self._app(scope, receive, send)


def _is_open(path: str) -> bool:
    return path == "/login" or path.startswith("/static/")


def _unknown(request: Request) -> Response:
    is_navigation = request.method == "GET" and "text/html" in request.headers.get("accept", "")
    if is_navigation and "authorization" not in request.headers:
        form: Response = request.app.state.render(request, "login.html", {})
        return form
    return JSONResponse(
        {"error": "log in: POST /login with user and password, then Authorization: Bearer TOKEN"},
        status_code=401,
        headers={"www-authenticate": "Bearer"},
    )


ROUTES: Final = (
    Route("/login", log_in, methods=["POST"]),
    Route("/logout", log_out, methods=["POST"]),
)
