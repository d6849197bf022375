"""Writes `page_json.md` from the page's views: `python docs/generate_page_json.py`.

Fields, types and comments are those of the dataclasses; the keys of values that a view makes by
hand are read from the function that makes them. A test fails if the page differs.
"""

import ast
import dataclasses
import enum
import inspect
import pathlib
import re
import textwrap
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from odradek.model.command import Command
from odradek.model.sentence import Sentence
from odradek.web.access.view import AccessView
from odradek.web.brokers.view import BrokerView
from odradek.web.groups import view as groups
from odradek.web.groups.collect import GroupsView, GroupView
from odradek.web.lab.pages import LabView
from odradek.web.messages import view as messages
from odradek.web.messages.pages import MessagesView
from odradek.web.moves.planned import PlannedMove
from odradek.web.moves.view import MovesView
from odradek.web.now.view import NowView
from odradek.web.stories.pages import ShelfView
from odradek.web.stories.values import Played
from odradek.web.timeline.view import TimelineView
from odradek.web.topics.view import TopicsView, TopicView
from odradek.web.transactions import view as transactions
from odradek.web.transactions.view import TransactionsView

PAGE = pathlib.Path(__file__).with_name("page_json.md")

INTRODUCTION = """\
# The page's JSON

(Generated from the views by `docs/generate_page_json.py`; do not edit.)

Every view of `odradek web` is JSON at its own URL for `Accept: application/json`
([how programs read it](page.md#how-do-programs-read-it)). A field that is null is not known, or is
not set. Units are in the names: `_ms` (times since 1970, or spans), `_bytes`, `_s`, `_percent`. A
request that is refused has the status 4xx or 5xx and `{"error": "why"}`.
"""
# These have a JSON form of their own (`odradek.web.rendering.plain`).
SAID: Mapping[type, Mapping[str, Any]] = {
    Command: {"words": tuple[str, ...], "text": str},
    Sentence: {"text": str, "commands": tuple[Command, ...]},
}
# What each URL answers.
VIEWS: Mapping[str, type] = {
    "/": NowView,
    "/topics": TopicsView,
    "/topics/{topic}": TopicView,
    "/brokers/{broker:int}": BrokerView,
    "/messages": MessagesView,
    "/groups": GroupsView,
    "/groups/{group:path}": GroupView,
    "/transactions": TransactionsView,
    "/moves": MovesView,
    "/moves/plan": PlannedMove,
    "/moves/plans/{id}": PlannedMove,
    "/timeline": TimelineView,
    "/access": AccessView,
    "/lab": LabView,
    "/stories": ShelfView,
    "/stories/{name}": Played,
}
QUERIES: Mapping[str, str] = {
    "/": "`at=MS`: as it was then",
    "/topics/{topic}": "`at=MS`; `partition=N`: that one alone",
    "/topics": "`name=TEXT`, `page=N`, `limit=N`",
    "/groups": "`name=TEXT`, `page=N`, `limit=N`",
    "/moves/plans/{id}": "`page=N`, `limit=N`",
    "/messages": "the fields of the form ([messages](messages.md)); `go=1` searches",
    "/moves/plan": "the fields of the form: without `--write`, too; `limit=N`",
    "/timeline": "`at=MS`: what happened until then",
}
FILES: Mapping[str, str] = {
    "/messages/export": "a file of the found records: `format=jsonl`, `csv` or `parquet`",
    "/moves/plans/{id}/{file}": "the plan, or the way back, for `kafka-reassign-partitions`",
    "/stories/{name}/{file:path}": "a file of the code that a story names",
}
WRITES: Mapping[str, str] = {
    "/token": "the code that `odradek web --write` printed, for the token of a tab",
    "/messages": "produces a message",
    "/messages/again": "produces a stored record again",
    "/groups/{group:path}": "new committed offsets; a dry run unless `execute` is 1",
    "/moves/begin": "executes a plan that was shown",
    "/moves/continue": "executes the rest of the saved plan",
    "/moves/pause": "begins no further batch",
    "/moves/cancel": "takes back every running reassignment",
    "/moves/throttle": "another throttle",
    "/moves/clear-throttles": "clears throttles of which nothing is left to move",
    "/access": "allows, denies or revokes a permission",
    "/lab": "an action on a broker of this machine",
    "/lab/cut": "cuts a broker off, or connects it",
    "/lab/add": "one more broker",
    "/lab/fill": "a topic with sample records",
}
# The functions that make the objects of a field by hand.
MADE: Mapping[tuple[type, str], Callable[..., Any]] = {
    (MessagesView, "messages"): messages.message,
    (MessagesView, "cost"): messages.cost,
    (MessagesView, "progress"): messages.progress,
    (GroupsView, "groups"): groups.summary,
    (GroupView, "group"): groups.details,
    (TransactionsView, "transactions"): transactions._transaction,  # noqa: SLF001
    (TransactionsView, "held"): transactions._held,  # noqa: SLF001
}
_COMMENT = re.compile(r"^    (\w+): .*?#\s*(.*)$", re.MULTILINE)


def page() -> str:
    """The whole page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield INTRODUCTION
    yield "## Which URLs are there?\n"
    yield "| GET | answers | query |"
    yield "|---|---|---|"
    for path, view in VIEWS.items():
        link = f"[{view.__name__}](#{view.__name__.lower()})"
        yield f"| `{_plain(path)}` | {link} | {QUERIES.get(path, '')} |"
    for path, what in FILES.items():
        yield f"| `{_plain(path)}` | {what} | |"
    yield (
        "\nWith `--write`, and the token of a tab in the header `x-odradek-token` (of a log-in: "
        "`Authorization`):\n"
    )
    yield "| POST | |"
    yield "|---|---|"
    for path, what in WRITES.items():
        yield f"| `{_plain(path)}` | {what} |"
    yield "\n## What do they answer?\n"
    for kind in dict.fromkeys(VIEWS.values()):
        yield from _section(kind)
    yield "## Which objects are in them?\n"
    for kind in sorted(_nested(), key=lambda each: each.__name__):
        yield from _section(kind)


def _plain(path: str) -> str:
    return re.sub(r":\w+\}", "}", path)


def _section(kind: type) -> Iterator[str]:
    yield f"### {kind.__name__}\n"
    documented = inspect.getdoc(kind) or ""
    if not documented.startswith(f"{kind.__name__}("):
        yield f"{' '.join(documented.split())}\n"
    yield "| field | type | |"
    yield "|---|---|---|"
    comments = dict(_COMMENT.findall(inspect.getsource(kind)))
    for name, hint in _fields(kind):
        comment = re.sub(r"\bNone\b", "null", comments.get(name, ""))
        yield f"| `{name}` | {_type(hint)} | {comment} |"
        function = MADE.get((kind, name))
        for inner in () if function is None else _made(function):
            yield f"| `{name}.{inner}` | | |"
    yield ""


def _fields(kind: type) -> Iterator[tuple[str, Any]]:
    """The fields that are in the JSON: pictures are not."""
    if kind in SAID:
        yield from SAID[kind].items()
        return
    hints = typing.get_type_hints(kind)
    names = (
        [field.name for field in dataclasses.fields(kind)]
        if dataclasses.is_dataclass(kind)
        else list(kind._fields)  # type: ignore[attr-defined]
    )
    for name in names:
        if not any(hasattr(each, "__html__") for each in _parts(hints[name])):
            yield name, hints[name]


def _parts(hint: Any) -> Iterator[Any]:
    """A type and the types in it."""
    yield hint
    for each in typing.get_args(hint):
        yield from _parts(each)


def _nested() -> set[type]:
    found: set[type] = set()
    left = list(VIEWS.values())
    while left:
        for _, hint in _fields(left.pop()):
            for each in _parts(hint):
                if _is_object(each) and each not in found and each not in VIEWS.values():
                    found.add(each)
                    left.append(each)
    return found


def _is_object(hint: Any) -> bool:
    return isinstance(hint, type) and (
        dataclasses.is_dataclass(hint) or (issubclass(hint, tuple) and hasattr(hint, "_fields"))
    )


def _type(hint: Any) -> str:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return " or ".join(_type(each) for each in inner)
    name = getattr(origin, "__name__", "")
    if name in ("tuple", "list", "Sequence", "frozenset"):
        kinds = [each for each in inner if each is not Ellipsis]
        return f"list of {', '.join(dict.fromkeys(map(_type, kinds)))}"
    if name in ("dict", "Mapping"):
        return f"object of {_type(inner[1])}"
    if _is_object(hint):
        return f"[{hint.__name__}](#{hint.__name__.lower()})"
    return _simple(hint)


def _simple(hint: Any) -> str:
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return " or ".join(f"`{each.name.lower()}`" for each in hint)
    names = {str: "text", int: "number", float: "number", bool: "boolean", type(None): "null"}
    if hint in names:
        return names[hint]
    supertype = getattr(hint, "__supertype__", None)
    return "value" if supertype is None else _type(supertype)


def _made(function: Callable[..., Any]) -> Iterator[str]:
    """The keys of the object that a function makes, those of objects in it after a point."""
    returned = _returned(function)
    assert returned is not None, function
    yield from _keys(returned, function.__globals__)


def _returned(function: Callable[..., Any]) -> ast.Dict | None:
    """The object that a function returns, if it is written there."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    values = [node.value for node in ast.walk(tree) if isinstance(node, ast.Return)]
    return next((each for each in values if isinstance(each, ast.Dict)), None)


def _keys(made: ast.Dict, names: Mapping[str, Any]) -> Iterator[str]:
    for key, value in zip(made.keys, made.values, strict=True):
        inner = _object(value, names)
        if key is None:  # `**summary(...)`
            assert inner is not None
            yield from _keys(*inner)
        else:
            assert isinstance(key, ast.Constant)
            name = str(key.value)
            yield name
            yield from (f"{name}.{each}" for each in _keys(*inner)) if inner else ()


def _object(value: ast.expr, names: Mapping[str, Any]) -> tuple[ast.Dict, Mapping[str, Any]] | None:
    """The object that an expression is, or of which it is a list; None if it is another."""
    if isinstance(value, ast.ListComp):
        return _object(value.elt, names)
    if isinstance(value, ast.Dict):
        return value, names
    called = value.func if isinstance(value, ast.Call) else None
    function = names.get(called.id) if isinstance(called, ast.Name) else None
    if not inspect.isfunction(function):
        return None
    made = _returned(function)
    return None if made is None else (made, function.__globals__)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
