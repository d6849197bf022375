"""The web application: its routes, and what they share.

    create_app(source)          a page on a cluster
    create_app(None)            only the stories

A view is one URL in three forms: a page that is readable without JavaScript, JSON (`Accept:
application/json`), and a stream of its changes (`Accept: text/event-stream`).
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, NamedTuple, cast

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from odradek import __version__
from odradek.web.access import pages as access
from odradek.web.brokers.view import broker_view
from odradek.web.brokers.view import keys as broker_keys
from odradek.web.facts.access import collect_access
from odradek.web.facts.broker import collect_broker
from odradek.web.facts.cluster import collect_cluster
from odradek.web.facts.doctor import collect_diagnosis
from odradek.web.facts.journal import collect_journal
from odradek.web.facts.past import KEPT
from odradek.web.facts.poller import FactKey, FactKind, Facts
from odradek.web.facts.source import Source
from odradek.web.facts.topic import collect_topic
from odradek.web.groups import pages as groups
from odradek.web.groups.collect import (
    GROUPS,
    group_view,
    groups_view,
)
from odradek.web.guard import READ_ONLY, Guard, WriteAccess, token
from odradek.web.lab import pages as lab
from odradek.web.live.view import LiveView, number, page_asked
from odradek.web.login import ROUTES as LOG_IN_ROUTES
from odradek.web.login import LogInRequired
from odradek.web.messages import pages as messages
from odradek.web.moves.collect import collect_moves
from odradek.web.moves.mover import MoveTurn
from odradek.web.moves.pages import ROUTES as MOVE_ROUTES
from odradek.web.moves.saved import moves_directory
from odradek.web.moves.view import KEYS as MOVES
from odradek.web.moves.view import moves_view
from odradek.web.now.view import CLUSTER, now_view
from odradek.web.now.view import KEYS as NOW
from odradek.web.rendering import STATIC, Rendering, plain, wants_json
from odradek.web.sessions import Sessions, session_of
from odradek.web.stories.pages import ROUTES as STORY_ROUTES
from odradek.web.timeline.pages import TIMELINE
from odradek.web.topics.view import topic_view, topic_view_at, topics_view
from odradek.web.transactions.facts import collect_transactions
from odradek.web.transactions.view import TRANSACTIONS, transactions_view
from odradek.web.workspace import Workspace, workspace

KINDS: Final[Mapping[str, FactKind]] = {
    "cluster": FactKind(collect_cluster, kept=KEPT),
    # The doctor waits for brokers that do not answer, and observes copies for two seconds.
    "doctor": FactKind(collect_diagnosis, share_max=0.3, periods=2, kept=KEPT),
    "topic": FactKind(collect_topic, share_max=0.1, kept=KEPT),
    "transactions": FactKind(collect_transactions, share_max=0.1),
    "moves": FactKind(collect_moves, share_max=0.1),
    "broker": FactKind(collect_broker, share_max=0.1),
    "journal": FactKind(collect_journal),
    "access": FactKind(collect_access, share_max=0.1),
}


class Section(NamedTuple):
    """An entry of the navigation; `key` is pressed after g."""

    title: str
    path: str
    key: str


SECTIONS: Final = (
    Section("Now", "/", "n"),
    Section("Topics", "/topics", "t"),
    Section("Messages", "/messages", "m"),
    Section("Groups", "/groups", "g"),
    Section("Transactions", "/transactions", "x"),
    Section("Moves", "/moves", "v"),
    Section("Timeline", "/timeline", "l"),
    Section("Access", "/access", "a"),
)
STORIES: Final = Section("Stories", "/stories", "s")
LAB: Final = Section("Lab", "/lab", "b")


def _topic(facts: Facts, request: Request) -> object:
    name, only = request.path_params["topic"], number(request, "partition")
    at_ms = number(request, "at")
    if at_ms is None:
        return topic_view(facts, name, only)
    return topic_view_at(facts, workspace(request).poller.facts, name, at_ms, only)


VIEWS: Final = (
    LiveView("/", "now.html", lambda _request: NOW, lambda facts, _request: now_view(facts)),
    LiveView(
        "/topics",
        "topics.html",
        lambda _request: (CLUSTER,),
        lambda facts, request: topics_view(facts, *page_asked(request)),
    ),
    LiveView(
        "/brokers/{broker:int}",
        "broker.html",
        lambda request: broker_keys(request.path_params["broker"]),
        lambda facts, request: broker_view(facts, request.path_params["broker"]),
    ),
    TIMELINE,
    LiveView(
        "/topics/{topic}",
        "topic.html",
        lambda request: (FactKey("topic", request.path_params["topic"]),),
        _topic,
    ),
    LiveView(
        "/groups",
        "groups.html",
        lambda _request: (GROUPS,),
        lambda facts, request: groups_view(facts, *page_asked(request)),
    ),
    LiveView(
        "/groups/{group:path}",
        "group.html",
        lambda request: (FactKey("group", request.path_params["group"]),),
        lambda facts, request: group_view(facts, request.path_params["group"]),
    ),
    LiveView(
        "/transactions",
        "transactions.html",
        lambda _request: (TRANSACTIONS,),
        lambda facts, _request: transactions_view(facts),
    ),
    LiveView(
        "/moves",
        "moves.html",
        lambda _request: MOVES,
        lambda facts, request: moves_view(
            facts, workspace(request).mover.status, workspace(request).source.server
        ),
    ),
)


def create_app(
    source: Source | None,
    *,
    write_access: WriteAccess | None = None,
    allowed_hosts: Collection[str] = (),
    routes: Sequence[BaseRoute] = (),
    kinds: Mapping[str, FactKind] = KINDS,
) -> Starlette:
    """The application for a cluster; without one only what needs none.

    `kinds` says how facts are collected; the groups' kinds are added.
    """
    write_access = write_access or READ_ONLY
    # The lab acts on processes of this machine, to which no user of the cluster has a right.
    has_log_in = write_access.has_log_in
    is_local = source is not None and source.directory is not None and not has_log_in
    sections = (*(SECTIONS if source is not None else ()), *((LAB,) if is_local else ()), STORIES)

    def shared(request: Request) -> Mapping[str, object]:
        session = session_of(request)
        has_cluster = source is not None and (session is not None or not has_log_in)
        return {
            "sections": sections if session is not None or not has_log_in else (),
            "caller": workspace(request).source.named if has_cluster else None,
            "user": None if session is None else session.user,
            "path": request.url.path,
            "version": __version__,
            "bootstrap": source.bootstrap if source else "",
            "can_write": write_access.is_enabled,
            "is_local": is_local,
            "at_ms": number(request, "at"),
        }

    rights = LOG_IN_ROUTES if has_log_in else (Route("/token", token, methods=["POST"]),)
    of_cluster = _cluster_routes(is_local=is_local) if source is not None else ()
    app = Starlette(
        routes=[
            Mount("/static", _Static(directory=STATIC)),
            *rights,
            *of_cluster,
            *STORY_ROUTES,
            *routes,
        ],
        middleware=[
            Middleware(Guard, allowed_hosts=allowed_hosts),
            Middleware(GZipMiddleware),  # lanes repeat themselves; streams are left as they are
            *((Middleware(LogInRequired),) if has_log_in else ()),
        ],
        lifespan=partial(_lifespan, source, kinds) if source is not None else None,
        exception_handlers={HTTPException: _refused},
    )
    app.state.write_access = write_access
    app.state.workspaces = list
    app.state.render = Rendering(shared)
    return app


@asynccontextmanager
async def _lifespan(
    source: Source, kinds: Mapping[str, FactKind], app: Starlette
) -> AsyncIterator[None]:
    folder, turn = moves_directory(source.directory), MoveTurn()
    state = app.state
    if not state.write_access.has_log_in:
        state.workspace = Workspace(source, kinds, folder, turn)
        state.workspaces = lambda: [state.workspace]
        try:
            yield
        finally:
            await state.workspace.close()
        return
    state.sessions = Sessions(source, lambda own: Workspace(own, kinds, folder, turn))
    state.workspaces = lambda: list(state.sessions.workspaces.values())
    sweeping = asyncio.create_task(state.sessions.sweep_always())
    try:
        yield
    finally:
        sweeping.cancel()
        await state.sessions.close()


def _cluster_routes(*, is_local: bool) -> Sequence[BaseRoute]:
    return (
        *(view.route() for view in VIEWS),
        *messages.ROUTES,
        *groups.ROUTES,
        *MOVE_ROUTES,
        *access.ROUTES,
        *(lab.ROUTES if is_local else ()),
    )


class _Static(StaticFiles):
    """Files whose URL changes with their content."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers["cache-control"] = "public, max-age=31536000, immutable"
        return response


async def _refused(request: Request, exception: Exception) -> Response:
    error = cast("HTTPException", exception)
    if wants_json(request) or request.method != "GET":
        return JSONResponse(plain({"error": error.detail}), error.status_code)
    rendered: Response = request.app.state.render(
        request,
        "refused.html",
        {"status": error.status_code, "why": error.detail},
        error.status_code,
    )
    return rendered
