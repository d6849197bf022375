"""Reads the JSON files of tools; errors name the line and the column.

Valid JSON with another structure than required is refused with the messages of Kafka's `JsonValue`.
"""

import json
import pathlib
from collections.abc import Iterator
from typing import Any, Final

from odradek.cli.failures import FileError, OperationError, ToolError
from odradek.model.partition import TopicPartition

_NAMES: Final = {str: "String", int: "Integer", list: "JSON array", dict: "JSON object"}


class JsonError(ToolError):
    """A value is missing, or has another type than required."""

    exception = "com.fasterxml.jackson.databind.JsonMappingException"


def read_text(path: str) -> str:
    """The text of a file, without a byte order mark, which editors on Windows write.

    Raises:
        FileError: it cannot be read.
    """
    try:
        return pathlib.Path(path).read_text().removeprefix("\ufeff")
    except (OSError, UnicodeDecodeError):
        raise FileError(f"Unable to read file {path}") from None


def read_json(path: str) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        FileError: it cannot be read.
        OperationError: it is not JSON; names the file, the line and the column.
        JsonError: it is not an object.
    """
    text = read_text(path)
    if not text.strip():
        raise OperationError("The input string shouldn't be empty")
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise OperationError(
            f"{path}: line {error.lineno}, column {error.colno}: {error.msg}"
        ) from None
    except RecursionError:
        raise OperationError(f"{path}: nested too deeply") from None
    return _checked(found, dict)  # type: ignore[no-any-return]


def objects(holder: dict[str, Any], key: str) -> Iterator[dict[str, Any]]:
    """The objects in the list `key`; empty if the field is missing.

    Raises:
        JsonError: it is not a list of objects.
    """
    if key in holder:
        for item in field(holder, key, list):
            yield _checked(item, dict)


def field(holder: dict[str, Any], key: str, kind: type, *, name: str | None = None) -> Any:
    """A field of an object; `name` is Java's name of the type.

    Raises:
        JsonError: it is missing, or has another type.
    """
    if key not in holder:
        raise JsonError(f"No such field exists: `{key}`")
    return _checked(holder[key], kind, name)


def list_of(holder: dict[str, Any], key: str, kind: type) -> list[Any]:
    """A list of values of one kind.

    Raises:
        JsonError: it is not such a list.
    """
    return [_checked(value, kind) for value in field(holder, key, list)]


def topic_partition(holder: dict[str, Any]) -> TopicPartition:
    """The fields `topic` and `partition`.

    Raises:
        JsonError: one is missing, or has another type.
    """
    return TopicPartition(field(holder, "topic", str), field(holder, "partition", int))


def _checked(value: Any, kind: type, name: str | None = None) -> Any:
    if isinstance(value, kind) and not isinstance(value, bool):
        return value
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    if kind in (list, dict):
        raise JsonError(f"Expected {_NAMES[kind]}, received {text}")
    raise JsonError(f"Expected `{name or _NAMES[kind]}` value, received {text}")
