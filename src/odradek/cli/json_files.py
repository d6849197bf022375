"""JSON files that tools are given: read, and refused with the line and column of what is wrong."""

import json
import pathlib
from collections.abc import Iterator
from typing import Any

from odradek.cli.failures import FileError, OperationError
from odradek.model.partition import TopicPartition


def read_text(path: str) -> str:
    """The text of a file.

    Raises:
        FileError: it cannot be read.
    """
    try:
        return pathlib.Path(path).read_text()
    except (OSError, UnicodeDecodeError):
        raise FileError(f"Unable to read file {path}") from None


def read_json(path: str) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        FileError: it cannot be read.
        OperationError: it is no JSON, or no object; names the file, the line and the column.
    """
    try:
        found = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise OperationError(
            f"{path}: line {error.lineno}, column {error.colno}: {error.msg}"
        ) from None
    except RecursionError:
        raise OperationError(f"{path}: nested too deeply") from None
    if not isinstance(found, dict):
        raise OperationError(f"{path}: must be a JSON object, is {_kind(found)}")
    return found


def objects(holder: dict[str, Any], key: str, where: str) -> Iterator[dict[str, Any]]:
    """The objects in a list.

    Raises:
        OperationError: it is no list of objects.
    """
    for number, item in enumerate(field(holder, key, list, where)):
        if not isinstance(item, dict):
            raise OperationError(f"{where}: {key}[{number}] must be an object, is {_kind(item)}")
        yield item


def field(holder: dict[str, Any], key: str, kind: type, where: str) -> Any:
    """A field of an object.

    Raises:
        OperationError: it is not there, or of another kind.
    """
    if key not in holder:
        raise OperationError(f"{where}: the field {key!r} is missing in {_short(holder)}")
    value = holder[key]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise OperationError(
            f"{where}: {key!r} must be {_NAMES[kind]}, is {_short(value)} in {_short(holder)}"
        )
    return value


def list_of(holder: dict[str, Any], key: str, kind: type, where: str) -> list[Any]:
    """A list of values of one kind.

    Raises:
        OperationError: it is none.
    """
    values: list[Any] = field(holder, key, list, where)
    for value in values:
        if not isinstance(value, kind) or isinstance(value, bool):
            raise OperationError(
                f"{where}: {key!r} must be a list of {_PLURALS[kind]}, has {_short(value)}"
            )
    return values


def topic_partition(holder: dict[str, Any], where: str) -> TopicPartition:
    """The fields `topic` and `partition`.

    Raises:
        OperationError: one is not there.
    """
    return TopicPartition(
        field(holder, "topic", str, where), field(holder, "partition", int, where)
    )


_NAMES = {str: "a string", int: "a number", list: "a list", dict: "an object"}
_PLURALS = {str: "strings", int: "numbers"}


def _kind(value: object) -> str:
    return _NAMES.get(type(value), repr(value))


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
