"""A view that changes by itself, in three forms at one URL."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from odradek.web.facts.poller import FactKey, Facts
from odradek.web.live.hub import TooManyViewersError
from odradek.web.paging import PAGE_ROWS
from odradek.web.sessions import session_of
from odradek.web.workspace import workspace


@dataclass(frozen=True, slots=True)
class LiveView:
    """A view that changes by itself: what it needs, and its value.

    With `at=MS` in the query it is given the facts of that moment. One with `has_both` is given
    those of now, and takes the others from the poller.
    """

    path: str
    template: str
    keys: Callable[[Request], tuple[FactKey, ...]]
    value: Callable[[Facts, Request], object]
    has_both: bool = False

    def route(self) -> Route:
        return Route(self.path, self.answer, methods=["GET"])

    async def answer(self, request: Request) -> Response:
        poller = workspace(request).poller
        keys = self.keys(request)
        at_ms = None if self.has_both else number(request, "at")
        if at_ms is not None:
            await poller.collect(keys)  # the journal, for what was not observed then
            facts = poller.at(keys, at_ms)
        elif "text/event-stream" in request.headers.get("accept", ""):
            return self._stream(request, keys)
        else:
            facts = await poller.collect(keys)
        rendered: Response = request.app.state.render(
            request, self.template, self.value(facts, request)
        )
        return rendered

    def _stream(self, request: Request, keys: tuple[FactKey, ...]) -> Response:
        state = request.app.state

        def render(facts: Facts) -> str:
            content: str = state.render.content(request, self.template, self.value(facts, request))
            return content

        return StreamingResponse(_events(request, keys, render), media_type="text/event-stream")


async def _events(
    request: Request, keys: tuple[FactKey, ...], render: Callable[[Facts], str]
) -> AsyncIterator[bytes]:
    session = session_of(request)

    def is_valid() -> bool:
        return session is None or request.app.state.sessions.goes_on(session)

    url = f"{request.url.path}?{request.url.query}"
    last_id = request.headers.get("last-event-id", "")
    try:
        async for each in workspace(request).hub.events(url, keys, render, last_id, is_valid):
            yield each
    except TooManyViewersError:
        yield b"event: full\ndata: too many pages are open\n\n"


def page_asked(request: Request) -> tuple[str, int, int]:
    """The text that names contain, the page, and the rows of a page.

    Raises:
        HTTPException: 400, one is not a number.
    """
    name = request.query_params.get("name", "")
    return name, number(request, "page") or 1, number(request, "limit") or PAGE_ROWS


def number(request: Request, name: str) -> int | None:
    """A number in the query; None if it is not there.

    Raises:
        HTTPException: 400, it is not a number.
    """
    text = request.query_params.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise HTTPException(400, f"{name}={text!r}, must be a number")
    return int(text)
