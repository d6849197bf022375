"""The routes of moves: a plan, its files, and what executes it.

GET  /moves                     what moves now (a live view)
GET  /moves/plan?kind=...       a plan, as a page or as JSON
GET  /moves/plans/{id}?page=2   more partitions of a plan that was shown
GET  /moves/plans/{id}/{file}   its plan.json or rollback.json
POST /moves/begin               {"plan": id}
POST /moves/throttle            {"throttle": "50MB"} for what moves, and the batches after it
POST /moves/pause               also continue, cancel, clear-throttles
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from odradek.model.errors import OdradekError
from odradek.plan.collect import inflow_of, picture_of
from odradek.plan.movement import PlanError
from odradek.web.guard import Endpoint, form_of, writes
from odradek.web.live.view import page_asked
from odradek.web.moves.mover import MoveRunner, ShownPlan, plan_file
from odradek.web.moves.planned import PlannedMove, page_of, planned_move
from odradek.web.moves.request import PlanKind, PlanRequest, make_plan, parse_request
from odradek.web.workspace import workspace

PLANNING_S: Final = 90.0


async def plan_page(request: Request) -> Response:
    """GET /moves/plan: makes the plan that the fields describe."""
    try:
        wanted = parse_request(request.query_params.getlist)
        async with asyncio.timeout(PLANNING_S):
            async with workspace(request).mover.planning:
                value = await _planned(request, wanted)
    except TimeoutError:
        raise HTTPException(503, f"no plan was made within {PLANNING_S:.0f} s") from None
    except (OdradekError, ConnectionError) as error:
        raise HTTPException(422, str(error)) from None
    rendered: Response = request.app.state.render(request, "move_plan.html", value)
    return rendered


async def _planned(request: Request, wanted: PlanRequest) -> PlannedMove:
    place = workspace(request)
    mover = place.mover
    cluster = await place.source.cluster()
    picture = await picture_of(cluster)
    saved = await mover.saved() if wanted.kind is PlanKind.ROLL_BACK else None
    inflow = await inflow_of(cluster, picture) if wanted.pace.throttle else {}
    began_s = time.monotonic()
    plan = await asyncio.to_thread(make_plan, wanted, picture, saved.before if saved else None)
    took_s = time.monotonic() - began_s
    view = await asyncio.to_thread(
        planned_move, wanted, picture, plan, inflow, planned_s=took_s, server=place.source.server
    )
    mover.keep(wanted, plan, view)
    return page_of(view, *_page_asked(request))


def _page_asked(request: Request) -> tuple[int, int]:
    _, page, limit = page_asked(request)
    return page, limit


async def shown_plan(request: Request) -> Response:
    """GET /moves/plans/{id}: a page of a plan that was shown."""
    view = page_of(_kept(request).view, *_page_asked(request))
    rendered: Response = request.app.state.render(request, "move_plan.html", view)
    return rendered


def _kept(request: Request) -> ShownPlan:
    try:
        return workspace(request).mover.shown(request.path_params["id"])
    except PlanError as error:
        raise HTTPException(404, str(error)) from None


async def plan_download(request: Request) -> Response:
    """GET /moves/plans/{id}/{file}: the reassignment JSON of a plan, or of the way back."""
    name = request.path_params["file"]
    if name not in ("plan.json", "rollback.json"):
        raise HTTPException(404, "a plan has the files plan.json and rollback.json")
    return Response(
        plan_file(_kept(request).plan, back=name == "rollback.json"),
        media_type="application/json",
        headers={"content-disposition": f'attachment; filename="{name}"'},
    )


def _button(act: Callable[[MoveRunner, Mapping[str, str]], Awaitable[str]]) -> Endpoint:
    """A write route that answers what was done, and opens the page of moves."""

    @writes
    async def endpoint(request: Request) -> Response:
        fields = await form_of(request)
        try:
            says = await act(workspace(request).mover, fields)
        except PlanError as error:
            raise HTTPException(409, str(error)) from None
        except (OdradekError, ConnectionError, OSError) as error:
            raise HTTPException(502, str(error)) from None
        return JSONResponse({"says": says, "open": "/moves"})

    return endpoint


ROUTES: Final = (
    Route("/moves/plan", plan_page, methods=["GET"]),
    Route("/moves/plans/{id}", shown_plan, methods=["GET"]),
    Route("/moves/plans/{id}/{file}", plan_download, methods=["GET"]),
    Route(
        "/moves/begin",
        _button(lambda mover, fields: mover.begin(fields.get("plan", ""))),
        methods=["POST"],
    ),
    Route("/moves/continue", _button(lambda mover, _fields: mover.go_on()), methods=["POST"]),
    Route("/moves/pause", _button(lambda mover, _fields: mover.pause()), methods=["POST"]),
    Route("/moves/cancel", _button(lambda mover, _fields: mover.cancel()), methods=["POST"]),
    Route(
        "/moves/throttle",
        _button(lambda mover, fields: mover.change_throttle(fields.get("throttle", ""))),
        methods=["POST"],
    ),
    Route(
        "/moves/clear-throttles", _button(lambda mover, _fields: mover.clear()), methods=["POST"]
    ),
)
