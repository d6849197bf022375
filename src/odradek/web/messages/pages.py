"""The routes of messages: search slice by slice, live tail, export, produce, send again.

    GET  /messages          the form; with a topic also the cost, and a slice of the search
                            (fields as in `odradek.web.messages.query`, and
                            go=1      read, also if it costs much
                            cursor    go on from there
                            tail=1    new records, from the end on
                            whole=1   values are not cut)
    GET  /messages/export   format=jsonl, csv or parquet: the search as a file, within bounds
    POST /messages          produce one message
    POST /messages/again    send a stored record again: topic, partition, offset; to

A search is stateless here: its state is the cursor, which the next request brings back. So it
survives a reload, and needs no memory while nobody reads on.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import quote, urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

import odradek.client.admin.topics as admin
from odradek.client.cluster import Cluster
from odradek.model.errors import OdradekError
from odradek.model.partition import TopicPartition
from odradek.net.clock import real_wall_ms
from odradek.web.guard import form_of, writes
from odradek.web.messages import view
from odradek.web.messages.console import console_command
from odradek.web.messages.export import TYPES, ExportError, exported
from odradek.web.messages.produce import produce, read_message, stored_message
from odradek.web.messages.progress import SearchProgress, from_cursor, to_cursor
from odradek.web.messages.query import Query, QueryError, fields_of, pinned, read_query
from odradek.web.messages.ranges import SearchRanges, ranges_of
from odradek.web.messages.scan import BODY_BYTES_MAX, FoundRecord
from odradek.web.messages.search import SearchSlice, SliceBounds, SliceReader
from odradek.web.rendering import plain
from odradek.web.workspace import workspace

SLICE_SECONDS: Final = 3.0
TAIL_SECONDS: Final = 2.0
WHOLE_BYTES: Final = 1 << 20
CHEAP_BYTES: Final = 64 << 20  # a search that reads no more begins without being confirmed
CHEAP_OFFSETS: Final = 200_000
SEARCHES_MAX: Final = 4
_LANE_WAIT_S: Final = 5.0
TOPICS_SHOWN: Final = 1_000
EXPORT_RECORDS: Final = 50_000
EXPORT_SECONDS: Final = 60.0
EXPORT_BYTES: Final = 1 << 30  # read, not written
EXPORT_FOUND_BYTES: Final = 64 << 20  # the record that reaches it is exported, too


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesView:
    """What the page of messages shows. `continue_url` is "" if nothing is left to read."""

    fields: Mapping[str, str]
    topics: tuple[str, ...] = ()
    problem: str = ""
    cost: Mapping[str, Any] | None = None
    asks: bool = False  # the search costs much: it begins when it is confirmed
    messages: tuple[Mapping[str, Any], ...] = ()
    progress: Mapping[str, Any] | None = None
    ended: str = ""
    delayed: Mapping[int, str] | None = None  # partitions that could not be read yet, and why
    cursor: str = ""
    begin_url: str = ""
    continue_url: str = ""
    tail_url: str = ""
    is_tail: bool = False
    exports: Mapping[str, str] | None = None


class SearchLanes:
    """The searches that may run at the same time; each has connections of its own."""

    def __init__(self, count: int = SEARCHES_MAX, *, wait_s: float = _LANE_WAIT_S) -> None:
        self._wait_s = wait_s
        self._free: asyncio.Queue[str] = asyncio.Queue()
        for number in range(count):
            self._free.put_nowait(f"search-{number}")

    @asynccontextmanager
    async def lane(self) -> AsyncIterator[str]:
        """A lane for one slice.

        Raises:
            HTTPException: 503, none has become free.
        """
        try:
            async with asyncio.timeout(self._wait_s):
                name = await self._free.get()
        except TimeoutError:
            raise HTTPException(
                503, f"{SEARCHES_MAX} searches are running, and no more are allowed: try again"
            ) from None
        try:
            yield name
        finally:
            self._free.put_nowait(name)


def lanes_of(request: Request) -> SearchLanes:
    """The lanes of this application, made when they are first needed."""
    found: SearchLanes | None = getattr(request.app.state, "search_lanes", None)
    if found is None:
        found = request.app.state.search_lanes = SearchLanes()
    return found


async def messages(request: Request) -> Response:
    """GET /messages: the form, the cost, or a slice of a search."""
    parameters = request.query_params
    fields = fields_of(parameters)
    shown: MessagesView
    status = 200
    try:
        cluster: Cluster = await workspace(request).source.cluster()
        if "topic" not in fields:
            shown = MessagesView(fields=fields, topics=await _topics(cluster))
        else:
            shown = await _search(request, cluster, fields)
    except QueryError as error:
        shown, status = MessagesView(fields=fields, problem=str(error)), 400
    except OdradekError as error:
        shown, status = MessagesView(fields=fields, problem=str(error)), 400
    except ConnectionError as error:
        shown, status = MessagesView(fields=fields, problem=str(error)), 503
    rendered: Response = request.app.state.render(request, "messages.html", shown, status)
    return rendered


async def _topics(cluster: Cluster) -> tuple[str, ...]:
    return tuple(sorted(await admin.list_topics(cluster))[:TOPICS_SHOWN])


async def _search(request: Request, cluster: Cluster, given: Mapping[str, str]) -> MessagesView:
    parameters = request.query_params
    is_tail = parameters.get("tail") == "1"
    fields = pinned(given, real_wall_ms())
    query = read_query(fields, real_wall_ms())
    cursor = parameters.get("cursor", "")
    cost: Mapping[str, Any] | None = None
    if cursor:
        state = from_cursor(cursor, query.digest)
    else:
        ranges = await ranges_of(cluster, query, wall_ms=real_wall_ms(), with_sizes=not is_tail)
        if is_tail:
            ranges = _from_end(ranges)
        else:
            cost = view.cost(ranges)
            if parameters.get("go") != "1" and not _is_cheap(ranges):
                return replace(_base(fields, cost), asks=True)
        state = ranges.progress(query, follows=is_tail)
    whole = parameters.get("whole") == "1"
    bounds = SliceBounds(
        found=query.limit,
        seconds=TAIL_SECONDS if is_tail else SLICE_SECONDS,
        follows=is_tail,
        **({"held_bytes": WHOLE_BYTES} if whole else {}),
    )
    async with lanes_of(request).lane() as lane:
        one = await SliceReader(cluster, query, state, bounds, lane=lane).run()
    return _with_slice(_base(fields, cost), query, one, is_tail=is_tail)


def _is_cheap(ranges: SearchRanges) -> bool:
    return ranges.offsets <= CHEAP_OFFSETS and ranges.bytes <= CHEAP_BYTES


def _from_end(ranges: SearchRanges) -> SearchRanges:
    """A tail begins at the high watermarks."""
    return replace(
        ranges,
        ranges=tuple(
            replace(each, start=each.high_watermark, end=each.high_watermark)
            for each in ranges.ranges
        ),
    )


def _base(fields: Mapping[str, str], cost: Mapping[str, Any] | None) -> MessagesView:
    """The form and the links of a search."""
    return MessagesView(
        fields=fields,
        cost=cost,
        begin_url=_url({**fields, "go": "1"}),
        tail_url=_url({**_without_bounds(fields), "tail": "1"}),
        exports={
            kind: f"/messages/export?{urlencode({**fields, 'format': kind})}" for kind in TYPES
        },
    )


def _without_bounds(fields: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in fields.items() if name not in ("from", "to", "last")}


def _with_slice(
    base: MessagesView, query: Query, one: SearchSlice, *, is_tail: bool
) -> MessagesView:
    cursor = to_cursor(one.progress)
    more = {"cursor": cursor, **({"tail": "1"} if is_tail else {})}
    goes_on = one.ended not in ("done", "end")
    return replace(
        base,
        messages=tuple(_linked(query, each) for each in one.found),
        progress=None if is_tail else view.progress(query, one.progress),
        ended=one.ended,
        delayed=one.delayed,
        cursor=cursor,
        continue_url=_url({**base.fields, **more}) if goes_on else "",
        is_tail=is_tail,
    )


def _linked(query: Query, record: FoundRecord) -> dict[str, Any]:
    """A message with the URLs that show it whole, and with its neighbours."""
    at = {"topic": query.topic, "partitions": str(record.partition), "go": "1", "markers": "1"}
    near = {"from": str(max(0, record.offset - 5)), "to": str(record.offset + 6)}
    one = {"from": str(record.offset), "to": str(record.offset + 1), "whole": "1"}
    return {**view.message(record), "url": _url({**at, **one}), "near_url": _url({**at, **near})}


def _url(parameters: Mapping[str, str]) -> str:
    return f"/messages?{urlencode(parameters)}"


# ------------------------------------------------------------------------------------- export


async def export(request: Request) -> Response:
    """GET /messages/export: what was found within the bounds; a header says whether that is all."""
    kind = request.query_params.get("format", "jsonl")
    if kind not in TYPES:
        raise HTTPException(400, f"format: {kind!r} is not one of {', '.join(TYPES)}")
    fields = fields_of(request.query_params)
    try:
        cluster: Cluster = await workspace(request).source.cluster()
        query = read_query(fields, real_wall_ms())
        async with lanes_of(request).lane() as lane:
            found, state = await _read(cluster, query, lane)
        # A large file takes a moment, in which other requests are answered.
        content = await asyncio.to_thread(exported, kind, query.topic, found)
    except ExportError as error:
        raise HTTPException(501, str(error)) from None
    except OdradekError as error:
        raise HTTPException(400, str(error)) from None
    except ConnectionError as error:
        raise HTTPException(503, str(error)) from None
    cut = sum(record.is_cut for record in found)
    is_whole = view.is_complete(state) and not cut
    name = f"{query.topic}{'' if is_whole else '-part'}.{kind}"
    headers = {
        "content-disposition": f"attachment; filename*=UTF-8''{quote(name)}",
        "x-odradek-complete": "yes" if is_whole else "no",
        "x-odradek-records": str(len(found)),
    }
    if not is_whole:
        sentences = [*view.sentences(query, state), *view.cut_records(cut)]
        headers["x-odradek-not-searched"] = quote("; ".join(sentences)[:2_000])
    return Response(content, media_type=TYPES[kind], headers=headers)


async def _read(
    cluster: Cluster, query: Query, lane: str
) -> tuple[list[FoundRecord], SearchProgress]:
    """All found records within the bounds of an export, uncut."""
    ranges = await ranges_of(cluster, query, wall_ms=real_wall_ms(), with_sizes=False)
    bounds = SliceBounds(
        found=EXPORT_RECORDS,
        seconds=EXPORT_SECONDS,
        bytes=EXPORT_BYTES,
        held_bytes=BODY_BYTES_MAX,
        found_bytes=EXPORT_FOUND_BYTES,
    )
    state = ranges.progress(query)
    one = await SliceReader(cluster, query, state, bounds, lane=lane).run()
    return one.found, one.progress


# ------------------------------------------------------------------------------------- writes


@writes
async def send(request: Request) -> Response:
    """POST /messages: produce one message."""
    fields = await form_of(request)
    source = workspace(request).source
    try:
        message = read_message(fields)
        written = await produce(await source.cluster(), message)
    except OdradekError as error:
        raise HTTPException(400, str(error)) from None
    except ConnectionError as error:
        raise HTTPException(503, str(error)) from None
    command = console_command(message, source.caller())
    says = f"written to {written.partition} at offset {written.offset}\n{command or ''}"
    return JSONResponse(
        {
            "says": says.strip(),
            "command": plain(command),
            "topic": written.partition.topic,
            "partition": written.partition.partition,
            "offset": written.offset,
        }
    )


@writes
async def send_again(request: Request) -> Response:
    """POST /messages/again: produce a stored record again, unchanged."""
    fields = await form_of(request)
    numbers = [fields.get(name, "") for name in ("partition", "offset")]
    if not all(each.isascii() and each.isdecimal() and len(each) < 19 for each in numbers):
        raise HTTPException(400, "partition and offset must be numbers")
    partition, offset = map(int, numbers)
    try:
        source = workspace(request).source
        cluster = await source.cluster()
        stored = await stored_message(
            cluster,
            TopicPartition(fields.get("topic", ""), partition),
            offset,
            topic=fields.get("to", "").strip(),
        )
        written = await produce(cluster, stored)
    except OdradekError as error:
        raise HTTPException(400, str(error)) from None
    except ConnectionError as error:
        raise HTTPException(503, str(error)) from None
    command = console_command(stored, source.caller())
    says = f"sent again: it is at offset {written.offset} of {written.partition}\n{command or ''}"
    return JSONResponse({"says": says.strip(), "command": plain(command)})


ROUTES: Final = [
    Route("/messages", messages, methods=["GET"]),
    Route("/messages", send, methods=["POST"]),
    Route("/messages/export", export, methods=["GET"]),
    Route("/messages/again", send_again, methods=["POST"]),
]
