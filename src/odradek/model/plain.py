"""Values as JSON, and back: events, effects and state of the pure machines.

    from_plain(Event, json.loads(json.dumps(to_plain(event)))) == event

| in Python | in JSON |
|---|---|
| None, bool, int, float, str | the same |
| bytes | text, hexadecimal |
| UUID | text, as Python prints it |
| enum | the member's name |
| dataclass, NamedTuple | an object: `class` is the name of the class, then its fields |
| tuple, list | a list |
| set, frozenset | a list, sorted |
| dict with text as keys | an object |
| any other dict | a list of pairs |

A field that has its default value is left out, so a recording stays readable when a field with
a default is added. `class` cannot collide with a field: it is a keyword of Python.

Type hints say what is read back. The member of a union is found by `class` and by the type of the
JSON value; a union in which two members fit a value (`bytes | str`) cannot be read.
"""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, NewType, TypeVar, Union, cast, get_args, get_origin, get_type_hints
from uuid import UUID

Plain = None | bool | int | float | str | list["Plain"] | dict[str, "Plain"]
T = TypeVar("T")

CLASS: Final = "class"
_SCALARS: Final = frozenset({NoneType, bool, int, float, str})


class NotPlainError(ValueError):
    """A value has no JSON form, or JSON does not fit the type that is to be read."""


def to_plain(value: object) -> Plain:
    """The JSON form of a value.

    Raises:
        NotPlainError: it contains something that is not in this module's table.
    """
    kind: Any = type(value)
    if kind in _SCALARS:
        return cast(Plain, value)
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, UUID):
        return str(value)
    return _record(kind, value) if _is_record(kind) else _container(value)


def _record(kind: Any, value: object) -> Plain:
    plain: dict[str, Plain] = {CLASS: kind.__name__}
    for name, default in _defaults(kind).items():
        held = getattr(value, name)
        if default is MISSING or held != default():
            plain[name] = to_plain(held)
    return plain


def _container(value: object) -> Plain:
    if isinstance(value, Mapping):
        if CLASS not in value and all(type(key) is str for key in value):
            return {key: to_plain(item) for key, item in value.items()}
        return [[to_plain(key), to_plain(item)] for key, item in value.items()]
    if isinstance(value, AbstractSet):
        return sorted(map(to_plain, value), key=repr)
    if isinstance(value, tuple | list):
        return [to_plain(item) for item in value]
    raise NotPlainError(f"{value!r}: a {type(value).__name__} has no JSON form")


def from_plain(kind: type[T] | UnionType, plain: Plain) -> T:
    """The value of this type (a class, a union of classes, ...) whose JSON form this is.

    Raises:
        NotPlainError: it is not the JSON form of such a value.
    """
    return cast(T, _read(kind, plain))


def _read(kind: Any, plain: Plain) -> object:
    if isinstance(kind, NewType):
        return _read(kind.__supertype__, plain)
    fitting = [member for member in _members(kind) if _fits(member, plain)]
    if len(fitting) != 1:
        raise NotPlainError(f"{plain!r} fits {len(fitting) or 'no'} members of {kind}")
    origin, args = get_origin(fitting[0]) or fitting[0], get_args(fitting[0])
    if isinstance(plain, str):
        return _from_text(origin, plain)
    if isinstance(plain, dict):
        return (
            _from_record(origin, plain)
            if _is_record(origin)
            else {key: _read(args[1], item) for key, item in plain.items()}
        )
    if isinstance(plain, list):
        return _from_list(origin, args, plain)
    return plain


def _members(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if (get_origin(kind) or kind) in (Union, UnionType) else (kind,)


def _fits(kind: Any, plain: Plain) -> bool:
    """Whether this may be the JSON form of a value of this type, by all that shows outside."""
    if isinstance(kind, NewType):
        return _fits(kind.__supertype__, plain)
    origin = get_origin(kind) or kind
    if not isinstance(origin, type):
        return False
    if origin in _SCALARS:
        fits = type(plain) is origin or (origin is float and type(plain) is int)
    elif issubclass(origin, Enum | UUID | bytes):
        fits = isinstance(plain, str)
    elif _is_record(origin):
        fits = isinstance(plain, dict) and plain.get(CLASS) == origin.__name__
    elif issubclass(origin, Mapping) and isinstance(plain, dict):
        fits = CLASS not in plain
    else:
        fits = isinstance(plain, list)
    return fits


def _from_text(kind: Any, text: str) -> object:
    try:
        if issubclass(kind, Enum):
            return kind[text]
        return bytes.fromhex(text) if kind is bytes else kind(text)
    except (KeyError, ValueError) as error:
        raise NotPlainError(f"{text!r} is not a {kind.__name__}") from error


def _from_record(kind: Any, plain: Mapping[str, Plain]) -> object:
    hints = _hints(kind)
    given = {name: plain[name] for name in plain if name != CLASS}
    required = {name for name, default in _defaults(kind).items() if default is MISSING}
    wrong = (given.keys() - hints.keys()) | (required - given.keys())
    if wrong:
        raise NotPlainError(f"{plain!r}: unknown or missing: {', '.join(sorted(wrong))}")
    return kind(**{name: _read(hints[name], item) for name, item in given.items()})


def _from_list(kind: type, args: tuple[Any, ...], plain: list[Plain]) -> object:
    if issubclass(kind, Mapping):
        pairs = (cast(list[Plain], pair) for pair in plain)
        return {_read(args[0], key): _read(args[1], item) for key, item in pairs}
    if issubclass(kind, tuple) and args[1:] != (...,):
        if len(args) != len(plain):
            raise NotPlainError(f"{plain!r} has not {len(args)} items")
        return tuple(map(_read, args, plain))
    items = [_read(args[0], item) for item in plain]
    if issubclass(kind, AbstractSet):
        return set(items) if kind is set else frozenset(items)
    return items if kind is list else tuple(items)


# ------------------------------------------------------------------------------- records


def _is_record(kind: type) -> bool:
    return is_dataclass(kind) or (issubclass(kind, tuple) and hasattr(kind, "_fields"))


@cache
def _defaults(kind: Any) -> Mapping[str, Any]:
    """The fields of a class in their order; what makes the default of each, or MISSING."""
    made: dict[str, Any] = {}
    if not is_dataclass(kind):
        for name in kind._fields:
            known = name in kind._field_defaults
            made[name] = _constant(kind._field_defaults[name]) if known else MISSING
        return made
    for field in fields(kind):
        if field.init:
            is_constant = field.default is not MISSING
            made[field.name] = _constant(field.default) if is_constant else field.default_factory
    return made


def _constant(value: object) -> Callable[[], object]:
    return lambda: value


@cache
def _hints(kind: Any) -> Mapping[str, Any]:
    return get_type_hints(kind)
