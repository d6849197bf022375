"""The JSON in a znode, read strictly: errors name the path and the key that is missing or wrong.

Znodes are written by other brokers, by tools and by hand, and are put back from backups. Unknown
keys come from later versions and are skipped, as Kafka does; a known key of the wrong type is
refused, and so is a value that Kafka's protocol could not carry to a broker: a number of more bits,
a text that is not Unicode.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, TypeVar

from odradek.coord.store import StoreError

# An epoch above this one is not believed: the next ones would not fit into the protocol's 32 bits.
EPOCH_MAX: Final = (1 << 31) - 1_000_000
_REQUIRED: Final[Any] = object()
_INT_BITS: Final = 31
_LONG_BITS: Final = 63
_NUMBER: Final = re.compile(r"-?[0-9]{1,19}")
T = TypeVar("T")


class CorruptNodeError(StoreError):
    """A node's data is not what Kafka writes there. The text contains the path and the problem."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"znode {path}: {problem}")
        self.path = path
        self.problem = problem


def dump(value: Mapping[str, object]) -> bytes:
    """JSON as Kafka's Jackson writes it: no spaces, keys in the given order, UTF-8 unescaped."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def parse(path: str, data: bytes | None) -> "Fields":
    """A node's data as a JSON object.

    Raises:
        CorruptNodeError: it is not a JSON object.
    """
    if not data:
        raise CorruptNodeError(path, "no data, must be a JSON object")
    try:
        value = json.loads(data.decode("utf-8-sig"))
        if b"\\u" in data:
            _check_text(value)
    except (ValueError, RecursionError) as error:
        raise CorruptNodeError(path, f"not JSON: {error}") from None
    return Fields(path, value)


def parse_long(path: str, data: bytes | None) -> int:
    """A node's data as a number in decimal digits."""
    text = (data or b"").decode("ascii", "replace")
    number = _number(text, _LONG_BITS)
    if number is None:
        raise CorruptNodeError(path, f"{_show(text)} is not an integer")
    return number


def parse_epoch(path: str, data: bytes | None) -> int:
    """A node's data as an epoch in decimal digits (`/controller_epoch`)."""
    epoch = parse_long(path, data)
    if not 0 <= epoch <= EPOCH_MAX:
        raise CorruptNodeError(path, f"{epoch}, must be from 0 to {EPOCH_MAX}")
    return epoch


def decimals(names: Collection[str]) -> list[int]:
    """The numbers among the names of nodes, sorted: broker ids, partitions.

    Others are left out, such as `007` and what somebody has created by hand.
    """
    numbers = {name: _number(name, _INT_BITS) for name in names}
    return sorted(n for name, n in numbers.items() if n is not None and n >= 0 and str(n) == name)


class Fields:
    """A JSON object of a znode; each method returns the value of one key, checked."""

    __slots__ = ("_fields", "_path", "_within")

    def __init__(self, path: str, value: object, within: str = "") -> None:
        if not isinstance(value, dict):
            what = within or "the data"
            raise CorruptNodeError(path, f"{what} is {_show(value)}, must be a JSON object")
        self._path = path
        self._fields = value
        self._within = within

    def integer(self, key: str, default: int = _REQUIRED) -> int:
        """An integer of 32 bits."""
        return self._sized(key, default, _INT_BITS)

    def long(self, key: str, default: int = _REQUIRED) -> int:
        """An integer of 64 bits: a time, a transaction id."""
        return self._sized(key, default, _LONG_BITS)

    def epoch(self, key: str) -> int:
        """The epoch of a leader or a controller."""
        value = self.integer(key)
        if not 0 <= value <= EPOCH_MAX:
            raise self.wrong(f"{key} is {value}, must be from 0 to {EPOCH_MAX}")
        return value

    def text(self, key: str, default: str = _REQUIRED) -> str:
        return self._typed(key, str, "a string", default)

    def number_text(self, key: str) -> int:
        """An integer written as a string, as Kafka does with 64-bit numbers."""
        text = self.text(key)
        number = _number(text, _LONG_BITS)
        if number is None:
            raise self.wrong(f"{key} is {_show(text)}, must be an integer in a string")
        return number

    def integers(self, key: str) -> tuple[int, ...]:
        """A list of integers of 32 bits."""
        values = self._typed(key, list, "a list of integers", _REQUIRED)
        for value in values:
            if type(value) is not int or not _fits(value, _INT_BITS):
                raise self.wrong(f"{key} contains {_show(value)}, must be a list of integers")
        return tuple(values)

    def texts(self, key: str) -> tuple[str, ...]:
        values = self._typed(key, list, "a list of strings", _REQUIRED)
        for value in values:
            if type(value) is not str:
                raise self.wrong(f"{key} contains {_show(value)}, must be a list of strings")
        return tuple(values)

    def text_map(self, key: str) -> dict[str, str]:
        """An object whose values are strings; empty if the key is missing."""
        inner = self.inner(key)
        return {name: inner.text(name) for name in inner}

    def inner(self, key: str) -> "Fields":
        """A nested object; empty if the key is missing."""
        return Fields(self._path, self._fields.get(key, {}), self._name(key))

    def each(self, key: str) -> list["Fields"]:
        """A list of objects."""
        values = self._typed(key, list, "a list of objects", _REQUIRED)
        return [Fields(self._path, value, f"{key}[{i}]") for i, value in enumerate(values)]

    def __contains__(self, key: str) -> bool:
        return self._fields.get(key) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def wrong(self, problem: str) -> CorruptNodeError:
        """The error to raise for a problem in this object."""
        within = f"in {self._within}: " if self._within else ""
        return CorruptNodeError(self._path, within + problem)

    def _name(self, key: str) -> str:
        return f"{self._within}.{key}" if self._within else key

    def _sized(self, key: str, default: int, bits: int) -> int:
        value = self._typed(key, int, "an integer", default)
        if not _fits(value, bits):
            raise self.wrong(f"{key} is {_show(value)}, must be an integer of {bits + 1} bits")
        return value

    def _typed(self, key: str, kind: type[T], article: str, default: T) -> T:
        value = self._fields.get(key)
        # `type() is`, not isinstance: JSON's true is not an integer.
        if type(value) is kind:
            return value
        if value is None and default is not _REQUIRED:
            return default
        if key not in self._fields:
            raise self.wrong(f"{key} is missing, must be {article}")
        raise self.wrong(f"{key} is {_show(value)}, must be {article}")


def _fits(value: int, bits: int) -> bool:
    return -1 << bits <= value < 1 << bits


def _number(text: str, bits: int) -> int | None:
    """The number that a text writes in ASCII digits; None if it does not, or does not fit."""
    if _NUMBER.fullmatch(text) is None:
        return None
    value = int(text)
    return value if _fits(value, bits) else None


def _check_text(value: object) -> None:
    """Refuse an escape that is half of a surrogate pair, which no string of the protocol has.

    Raises:
        ValueError: there is one, in a key or a value.
    """
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"half of a surrogate pair: {error.object[error.start]!r}") from None


def _show(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
