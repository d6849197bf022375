"""A subset of JSONPath (RFC 9535): the values that a path selects in a JSON document. Pure.

    $                  the whole document
    $.order.id         a member; the leading `$.` may be left out
    $['order id']      a member whose name is not a word; also with double quotes
    $.items[0]         an element; negative numbers count from the end
    $.items[*].id      every element, or every member of an object
    $..id              every member of this name, at any depth

Filters, slices and unions are not supported.
"""

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeAlias

from odradek.model.errors import OdradekError

_STEPS_MAX: Final = 32
_PIECE: Final = re.compile(
    r"""(?P<deep>\.\.)?(?:
        \.?(?P<word>[^\s.\[\]'"*]+)
      | \.?(?P<star>\*)
      | \[\s*(?:(?P<index>-?\d{1,9})|(?P<all>\*)|'(?P<single>[^']*)'|"(?P<double>[^"]*)")\s*\]
    )""",
    re.VERBOSE,
)


class PathError(OdradekError):
    """The text is not a path of the supported subset."""


class NamedMember(NamedTuple):
    """The member of an object with this name; with `deep`, at any depth."""

    name: str
    deep: bool = False


class Element(NamedTuple):
    """The element of an array at this place; negative from the end."""

    place: int
    deep: bool = False


class Every(NamedTuple):
    """All elements of an array, or all members of an object."""

    deep: bool = False


PathStep: TypeAlias = NamedMember | Element | Every
Path: TypeAlias = tuple[PathStep, ...]


def parse_path(text: str) -> Path:
    """The steps of a path.

    Raises:
        PathError: names the text from the first character that is not understood.
    """
    text = text.strip()
    rest = text.removeprefix("$")
    steps: list[PathStep] = []
    while rest:
        found = _PIECE.match(rest)
        if found is None:
            raise PathError(
                f"JSON path {text!r} is not understood from {rest!r} on: use $.name, $['name'], "
                "$.list[0], $.list[*] and $..name"
            )
        steps.append(_step(found))
        rest = rest[found.end() :]
        if len(steps) > _STEPS_MAX:
            raise PathError(f"JSON path of more than {_STEPS_MAX} steps")
    return tuple(steps)


def _step(found: re.Match[str]) -> PathStep:
    deep = found["deep"] is not None
    if found["index"] is not None:
        return Element(int(found["index"]), deep)
    if found["star"] or found["all"]:
        return Every(deep)
    names = (found["word"], found["single"], found["double"])
    return NamedMember(next(name for name in names if name is not None), deep)


def select(document: Any, path: Path) -> Iterator[Any]:
    """The values that the path selects, in the order of the document."""
    if not path:
        yield document
        return
    step, rest = path[0], path[1:]
    places = _descendants(document) if step.deep else (document,)
    for place in places:
        for value in _children(place, step):
            yield from select(value, rest)


def _children(place: Any, step: PathStep) -> Iterator[Any]:
    match step, place:
        case NamedMember(name=name), dict():
            if name in place:
                yield place[name]
        case Element(place=index), list():
            if -len(place) <= index < len(place):
                yield place[index]
        case Every(), dict():
            yield from place.values()
        case Every(), list():
            yield from place


def _descendants(document: Any) -> Iterator[Any]:
    """The document and everything in it; without recursion, because a document may be deep."""
    waiting = [document]
    while waiting:
        place = waiting.pop()
        yield place
        if isinstance(place, dict):
            waiting.extend(reversed(place.values()))
        elif isinstance(place, list):
            waiting.extend(reversed(place))
