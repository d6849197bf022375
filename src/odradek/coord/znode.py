"""The JSON in a znode, read strictly: errors name the path and the key that is missing or wrong.

Znodes are written by other brokers, by tools and by hand. Unknown keys come from later versions
and are skipped, as Kafka does; a known key of the wrong type is refused.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

from odradek.coord.store import StoreError

_REQUIRED: Final[Any] = object()
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
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptNodeError(path, f"not JSON: {error}") from None
    return Fields(path, value)


def parse_int(path: str, data: bytes | None) -> int:
    """A node's data as a decimal number (`/controller_epoch`)."""
    try:
        return int(data or b"")
    except ValueError:
        raise CorruptNodeError(path, f"{data!r} is not an integer") from None


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
        return self._typed(key, int, "an integer", default)

    def text(self, key: str, default: str = _REQUIRED) -> str:
        return self._typed(key, str, "a string", default)

    def number_text(self, key: str) -> int:
        """An integer written as a string, as Kafka does with 64-bit numbers."""
        text = self.text(key)
        try:
            return int(text)
        except ValueError:
            raise self.wrong(f"{key} is {text!r}, must be an integer in a string") from None

    def integers(self, key: str) -> tuple[int, ...]:
        """A list of integers."""
        values = self._typed(key, list, "a list of integers", _REQUIRED)
        for value in values:
            if type(value) is not int:
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


def _show(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
