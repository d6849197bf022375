"""The errors in a response, each with what its request names: found by the messages' declarations.

A response has an error for the whole request, or one for each topic, partition, group or member,
in lists in lists. Which fields those are is read from the declaration once for each API, so that no
API has to be named here. A response without an error costs one look at each element. Of one with
errors only the first elements are examined: a client cannot make this take long.
"""

from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from operator import attrgetter
from typing import Any, Final, NamedTuple

from odradek.broker.error_counts import NO_SUBJECT, Subject
from odradek.wire.api_keys import response_class
from odradek.wire.schema import Field, MessageType

ELEMENTS_MAX: Final = 500
ERRORS_MAX: Final = 20
_ERRORS: Final = ("error_code", "partition_error_code")
_TOPICS: Final = ("name", "topic", "topic_name")
# The fields of a request, or of an element of a response, for each field of a `Subject`.
_NAMES: Final = (
    ("group", "group_id"),
    ("instance_id", "group_instance_id"),
    ("transactional_id", "transactional_id"),
    ("transactional_id", "v3_and_below_transactional_id"),
)

ErrorIn = tuple[int, Subject]


class _Place(NamedTuple):
    """A list in a response, and the lists in its elements."""

    elements: Callable[[Any], Any]
    error: Callable[[Any], int] | None  # of an element
    named: tuple[tuple[str, str], ...]  # fields of a `Subject`, and those of an element
    inner: "tuple[_Place, ...]"


def errors_in(api_key: int, request: Any, response: Any) -> list[ErrorIn]:
    """The different errors of a response, which is one of this API."""
    error = getattr(response, "error_code", 0)
    places = _places(api_key)
    if not error and (not places or _is_clean(response, places)):
        return []
    subject = _with_names(request, NO_SUBJECT, _NAMES)
    found: dict[ErrorIn, None] = {}
    if error:
        found[error, subject] = None
    in_lists = (each for place in places for each in _errors(response, place, subject))
    for each in islice(in_lists, ELEMENTS_MAX):
        if each[0] and len(found) < ERRORS_MAX:
            found[each] = None
    return list(found)


def _is_clean(message: Any, places: tuple[_Place, ...]) -> bool:
    for place in places:
        elements = place.elements(message) or ()
        if place.error is not None and any(map(place.error, elements)):
            return False
        if place.inner and not all(_is_clean(each, place.inner) for each in elements):
            return False
    return True


def _errors(message: Any, place: _Place, subject: Subject) -> Iterator[ErrorIn]:
    for element in place.elements(message) or ():
        own = _with_names(element, subject, place.named)
        if place.error is not None:
            yield place.error(element), own
        for inner in place.inner:
            yield from _errors(element, inner, own)


def _with_names(message: Any, subject: Subject, names: tuple[tuple[str, str], ...]) -> Subject:
    known = [(own, getattr(message, name, None)) for own, name in names]
    return subject._replace(**{own: text for own, text in known if text and isinstance(text, str)})


@cache
def _places(api_key: int) -> tuple[_Place, ...]:
    return _places_of(response_class(api_key))


def _places_of(message: MessageType) -> tuple[_Place, ...]:
    return tuple(place for field in message.SCHEMA.fields if (place := _place(field)) is not None)


def _place(field: Field) -> _Place | None:
    if field.kind != "array" or field.part is None or isinstance(field.part, str):
        return None
    names = {each.name for each in field.part.SCHEMA.fields}
    inner = _places_of(field.part)
    error = next((name for name in _ERRORS if name in names), None)
    if error is None and not inner:
        return None
    named = [(own, name) for own, name in _NAMES if name in names]
    if inner or field.name.startswith("topic") or "topic_id" in names:
        named += [("topic", name) for name in _TOPICS if name in names][:1]
    return _Place(attrgetter(field.name), error and attrgetter(error), tuple(named), inner)
