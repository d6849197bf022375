"""One option: its name, its type and rule, its documentation, and where it may be set.

Texts are parsed and values are printed as Kafka does it, because users compare: white space
around a value is ignored, a list is split on commas, `true` may be `TRUE`, a double is
printed as Java prints it. Errors have Kafka's text, because tools print it:

    Invalid value abc for configuration retention.ms: Not a number of type LONG
"""

import re
from collections.abc import Callable, Iterable, Mapping
from enum import Enum, IntEnum
from typing import Final

from odradek.model.errors import OdradekError

Value = bool | int | float | str | tuple[str, ...] | None


class InvalidConfigError(OdradekError):
    """A value that an option does not allow."""


class ConfigConflictError(OdradekError):
    """Options that contradict each other, or that do not exist where they are set."""


def as_number(value: Value, name: str) -> int:
    """The value of an option whose type is a whole number.

    Raises:
        TypeError: it has another type.
    """
    if not isinstance(value, int):
        raise TypeError(f"{name}={value!r} is not a whole number")
    return value


def as_words(value: Value) -> tuple[str, ...]:
    """The value of an option whose type is a list.

    Raises:
        TypeError: it has another type.
    """
    if not isinstance(value, tuple):
        raise TypeError(f"{value!r} is not a list")
    return value


class Type(IntEnum):
    """The types of values, with the codes of DescribeConfigs."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


# Short names, for the tables of options.
BOOLEAN: Final = Type.BOOLEAN
STRING: Final = Type.STRING
INT: Final = Type.INT
SHORT: Final = Type.SHORT
LONG: Final = Type.LONG
DOUBLE: Final = Type.DOUBLE
LIST: Final = Type.LIST
CLASS: Final = Type.CLASS
PASSWORD: Final = Type.PASSWORD
INT_MAX: Final = (1 << 31) - 1
LONG_MAX: Final = (1 << 63) - 1
DOUBLE_MAX: Final = 1.7976931348623157e308


class Scope(Enum):
    """Where an option may be set besides `server.properties`."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"  # for one running broker
    CLUSTER_WIDE = "cluster-wide"  # for one running broker, or for all as their default


PER_BROKER: Final = Scope.PER_BROKER
CLUSTER_WIDE: Final = Scope.CLUSTER_WIDE


class Rule:
    """The allowed values: a text for the documentation, a check for the parser.

    The check returns None, or the part of the value that is wrong and Kafka's text for it.
    """

    __slots__ = ("check", "sentence")

    def __init__(self, sentence: str, check: Callable[[Value], tuple[object, str] | None]) -> None:
        self.sentence = sentence
        self.check = check


ANY: Final = Rule("", lambda _: None)


def at_least(low: int) -> Rule:
    return Rule(f"at least {low}", lambda value: _outside(value, low, None))


def between(low: int, high: int) -> Rule:
    """A number from `low` to `high`, both included."""
    return Rule(f"{low} to {high}", lambda value: _outside(value, low, high))


def between_or(low: int, high: int, other: int) -> Rule:
    def check(value: Value) -> tuple[object, str] | None:
        if value == other or _outside(value, low, high) is None:
            return None
        return value, f"Value must be between {low} and {high} or equal to {other}"

    return Rule(f"{low} to {high}, or {other}", check)


def one_of(*names: str) -> Rule:
    """One of these words, or for a list: only these words."""

    def check(value: Value) -> tuple[object, str] | None:
        for word in value if isinstance(value, tuple) else (value,):
            if word not in names:
                return word, f"String must be one of: {', '.join(names)}"
        return None

    return Rule(f"of {', '.join(names)}", check)


def one_of_any_case(*names: str) -> Rule:
    """One of these words, in upper or lower case."""
    known = {name.lower() for name in names}

    def check(value: Value) -> tuple[object, str] | None:
        if str(value).lower() in known:
            return None
        return value, f"String must be one of (case insensitive): {', '.join(names)}"

    return Rule(f"of {', '.join(names)}, in any case", check)


NOT_EMPTY: Final = Rule(
    "not empty", lambda value: (value, "String must be non-empty") if value == "" else None
)
# Patterns are compiled at their first use (re caches them): most starts need none of them.
_RELEASE: Final = r"(?:0\.(?:8\.[0-2]|9\.0|10\.[0-2]|11\.0)|1\.[01]|2\.[0-8]|3\.[0-9])(?:[.-].*)?"
VERSION: Final = Rule(
    "a version of Kafka, like 3.9 or 3.9-IV0",
    lambda value: (
        None
        if re.fullmatch(_RELEASE, str(value))
        else (value, f"Version {value} is not a valid version")
    ),
)


def _outside(value: Value, low: int, high: int | None) -> tuple[object, str] | None:
    assert isinstance(value, int | float), value
    if value < low:
        return value, f"Value must be at least {low}"
    if high is not None and value > high:
        return value, f"Value must be no more than {high}"
    return None


class Option:
    """One option as it is declared. `effect` is False where Odradek ignores it."""

    __slots__ = ("default", "doc", "effect", "internal", "name", "rule", "scope", "type")

    def __init__(  # noqa: PLR0913 - a declaration reads as one row of a table
        self,
        name: str,
        value_type: Type,
        default: Value,
        doc: str = "",
        *,
        rule: Rule = ANY,
        scope: Scope = Scope.READ_ONLY,
        effect: bool = True,
        internal: bool = False,  # takes effect, but DescribeConfigs lists it only when set
    ) -> None:
        self.name = name
        self.type = value_type
        self.default = default
        self.doc = doc
        self.rule = rule
        self.scope = scope
        self.effect = effect
        self.internal = internal

    @property
    def is_sensitive(self) -> bool:
        """Whether the value must not be shown."""
        return self.type is Type.PASSWORD

    @property
    def is_dynamic(self) -> bool:
        """Whether it can be changed while the broker runs."""
        return self.scope is not Scope.READ_ONLY

    def parse(self, text: str) -> Value:
        """The value of a text, checked against the rule.

        Raises:
            InvalidConfigError: with the option, the value and the rule.
        """
        value = _PARSERS[self.type](self, text.strip())
        self.check(value)
        return value

    def check(self, value: Value) -> None:
        """Refuse a value that the rule does not allow; None (unset) is always allowed.

        Raises:
            InvalidConfigError: with the option, the value and the rule.
        """
        if value is None:
            return
        wrong = self.rule.check(value)
        if wrong is not None:
            raise self.refusal(*wrong)

    def refusal(self, value: object, why: str) -> InvalidConfigError:
        """The error for a value, in Kafka's words and without the value of a password."""
        shown = "[hidden]" if self.is_sensitive else in_java(value)
        why = why.replace("{name}", self.name)
        return InvalidConfigError(f"Invalid value {shown} for configuration {self.name}: {why}")

    def render(self, value: Value) -> str | None:
        """The value as DescribeConfigs shows it."""
        if value is None:
            return None
        if self.is_sensitive:
            return "[hidden]"
        if isinstance(value, tuple):
            return ",".join(value)
        return in_java(value)


def table(options: Iterable[Option]) -> Mapping[str, Option]:
    listed = list(options)
    by_name = {option.name: option for option in listed}
    assert len(by_name) == len(listed), "an option is declared twice"
    return by_name


def in_java(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _double_in_java(value)
    if isinstance(value, tuple):
        return f"[{', '.join(value)}]"
    return str(value)


def _double_in_java(value: float) -> str:
    special = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(repr(value))
    if special:
        return special
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    digits, _, exponent = f"{value!r}".partition("e")
    if not exponent:  # Python prints larger numbers without an exponent than Java does
        digits, _, exponent = f"{value:.17e}".partition("e")
        digits = _shortest(value, int(exponent))
    return f"{digits if '.' in digits else digits + '.0'}E{int(exponent)}"


def _shortest(value: float, exponent: int) -> str:
    for precision in range(18):
        text = f"{value:.{precision}e}"
        if float(text) == value:
            return text.partition("e")[0]
    raise AssertionError((value, exponent))


# --------------------------------------------------------------------------- parsers

_INTEGER: Final = r"[+-]?[0-9]+"
_DOUBLE: Final = r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)"
_BITS = {Type.SHORT: 16, Type.INT: 32, Type.LONG: 64}


def _boolean(option: Option, text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise option.refusal(text, "Expected value to be either true or false")
    return lowered == "true"


def _integer(option: Option, text: str) -> int:
    limit = 1 << _BITS[option.type] - 1
    # The length is checked first: converting a text of a million digits takes long.
    if re.fullmatch(_INTEGER, text) and len(text.lstrip("+-0")) < 20:
        value = int(text)
        if -limit <= value < limit:
            return value
    raise option.refusal(text, f"Not a number of type {option.type.name}")


def _double(option: Option, text: str) -> float:
    if not re.fullmatch(_DOUBLE, text):
        raise option.refusal(text, "Not a number of type DOUBLE")
    return float(text if text.endswith(("N", "y")) else text.rstrip("fFdD"))


def _list(_option: Option, text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",")) if text else ()


def _text(_option: Option, text: str) -> str:
    return text


_PARSERS: Final[Mapping[Type, Callable[[Option, str], Value]]] = {
    Type.BOOLEAN: _boolean,
    Type.SHORT: _integer,
    Type.INT: _integer,
    Type.LONG: _integer,
    Type.DOUBLE: _double,
    Type.LIST: _list,
    Type.STRING: _text,
    Type.CLASS: _text,
    Type.PASSWORD: _text,
}
