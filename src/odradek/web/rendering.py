"""One value of a view as HTML, which is readable without JavaScript, and as JSON.

A template marks what changes often:

    {% call live("brokers") %}<section id="brokers">...</section>{% endcall %}

The element must have the name as its id. `odradek.web.live` pushes only the marked parts that have
changed. Values are escaped by Jinja; styles and scripts are files, because the content security
policy allows nothing inline. Control and bidirectional characters in what others have chosen are
shown as escapes.
"""

import hashlib
import json
import pathlib
import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Final

import jinja2
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from odradek.model.command import Command, command
from odradek.model.printable import printable, printable_lines
from odradek.model.sentence import Sentence
from odradek.plan.quantities import binary_text, bytes_text, span_text
from odradek.web.lanes.drawing import SvgText
from odradek.web.paging import page_links

HERE: Final = pathlib.Path(__file__).parent
STATIC: Final = HERE / "static"
BEGIN, END = "<!--content-->", "<!--/content-->"  # in base.html
_LIVE: Final = re.compile(r"<!--live ([^ >]+)-->(.*?)<!--/live-->", re.DOTALL)


def plain(value: object) -> Any:
    """A value of dataclasses, named tuples, enums and mappings as JSON has it; no pictures."""
    if isinstance(value, Enum):
        return value.name.lower()
    if isinstance(value, Command | Sentence):
        return _said(value)
    if is_dataclass(value) and not isinstance(value, type):
        found = {field.name: getattr(value, field.name) for field in fields(value)}
        return {name: plain(each) for name, each in found.items() if not hasattr(each, "__html__")}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(each) for each in value]
    return str(value) if isinstance(value, pathlib.Path) else value


def _shown(value: object) -> object:
    """What an expression of a template puts into the page: text is printable."""
    if type(value) is str:
        return printable_lines(value)
    return SvgText(printable_lines(value)) if isinstance(value, SvgText) else value


class AsciiJson(JSONResponse):
    """JSON that a terminal can show: all but printable ASCII is escaped."""

    def render(self, content: Any) -> bytes:
        text = json.dumps(content, allow_nan=False, separators=(",", ":"))
        return text.replace("\x7f", "\\u007f").encode()


def _said(value: Command | Sentence) -> dict[str, Any]:
    """The text of a command with its words, and of a sentence with its commands."""
    if isinstance(value, Command):
        return {"words": list(value.words), "text": str(value)}
    return {"text": str(value), "commands": [_said(each) for each in value.commands]}


def wants_json(request: Request) -> bool:
    accepted = request.headers.get("accept", "")
    return "application/json" in accepted and "text/html" not in accepted


def live_parts(html: str) -> dict[str, str]:
    """The marked parts of a page by their names, in order."""
    return {name: body.strip() for name, body in _LIVE.findall(html)}


def still_part(html: str) -> str:
    """The page without its marked parts: if this changes, single parts are not enough."""
    return _LIVE.sub(r"<!--live \1-->", html)


def count(number: float | None) -> str:
    """A number with commas between thousands; a dash if it is not known."""
    if number is None:
        return "–"  # noqa: RUF001 - a dash is meant
    return f"{number:,.0f}"


def size(number: float | None) -> str:
    """Bytes with a binary unit; a dash if the number is not known."""
    return "–" if number is None else binary_text(number)  # noqa: RUF001 - a dash is meant


def duration(ms: float | None) -> str:
    """A time span; a dash if it is not known."""
    if ms is None:
        return "–"  # noqa: RUF001 - a dash is meant
    return f"{ms:.0f} ms" if ms < 1_000 else span_text(ms / 1_000)


def clock(at_ms: int | None) -> str:
    """A moment in local time, to the second; with its date if that is not today."""
    if at_ms is None:
        return "–"  # noqa: RUF001 - a dash is meant
    at = datetime.fromtimestamp(at_ms / 1000).astimezone()
    is_today = at.date() == datetime.now().astimezone().date()
    return f"{at:%H:%M:%S}" if is_today else f"{at:%Y-%m-%d %H:%M:%S}"


class Rendering:
    """Renders templates of one application; `shared` is what every page shows."""

    def __init__(self, shared: Callable[[Request], Mapping[str, object]]) -> None:
        self._shared = shared
        self.environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            finalize=_shown,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.environment.filters |= {
            "printable": printable, "count": count,
            "size": size, "duration": duration, "clock": clock,
            "rate": lambda number: f"{bytes_text(number)}/s",
        }  # fmt: skip
        self.environment.globals |= {
            "live": _marked, "static": static_url, "page_links": page_links,
            "words": command,
        }  # fmt: skip

    def __call__(
        self, request: Request, template: str, value: object, status: int = 200
    ) -> Response:
        """The value as JSON if the client asks for that, else the template's page."""
        if wants_json(request):
            return AsciiJson(plain(value), status_code=status)
        return Response(self.page(request, template, value), status, media_type="text/html")

    def page(self, request: Request, template: str, value: object) -> str:
        """The template with `view` (the value) and `page` (what every page shows)."""
        return self.environment.get_template(template).render(
            view=value, page=self._shared(request), request=request
        )

    def content(self, request: Request, template: str, value: object) -> str:
        """Only what is inside of the page's `main` element."""
        return self.page(request, template, value).partition(BEGIN)[2].partition(END)[0]


def _marked(name: str, caller: Callable[[], str]) -> Markup:
    return Markup("<!--live {}-->{}<!--/live-->").format(name, Markup(caller()))


_HASHES: dict[str, str] = {}


def static_url(name: str) -> str:
    """The URL of a file of `static`; it changes with the file, which may be cached for ever."""
    if name not in _HASHES:
        _HASHES[name] = hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]
    return f"/static/{name}?v={_HASHES[name]}"


def event(kind: str, number: str, value: object) -> bytes:
    """A server-sent event with JSON data."""
    data = json.dumps(value, separators=(",", ":"))
    return f"event: {kind}\nid: {number}\ndata: {data}\n\n".encode()
