"""Parses files into records, for `odradek produce`. Pure, except that it iterates the file.

    lines   each line is a value
    csv     a header, then rows; each row becomes a JSON object, empty cells null
    json    an object on each line, which becomes the value unchanged

The key is a field of the row: text unchanged, other types as JSON.
"""

import csv
import json
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from odradek.model.errors import OdradekError

FORMATS: Final = ("lines", "csv", "json")
_BY_SUFFIX: Final = {".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json"}


class RowError(OdradekError):
    """A row cannot be parsed; names the line, and the column if the parser reports one."""


class Row(NamedTuple):
    """Key and value of one record."""

    key: bytes | None
    value: bytes


def format_of(suffix: str) -> str:
    """The format for a file's suffix; `lines` for an unknown one."""
    return _BY_SUFFIX.get(suffix.lower(), "lines")


def rows(lines: Iterable[str], form: str, key: str | None) -> Iterator[Row]:
    """The records of a file.

    Raises:
        RowError: a line does not match the format, or lacks the key's field.
    """
    match form:
        case "csv":
            return _csv_rows(lines, key)
        case "json":
            return _json_rows(lines, key)
        case _:
            if key is not None:
                raise RowError(f"--key {key}: lines have no fields; say --format csv or json")
            return (Row(None, _bytes(line.rstrip("\r\n"))) for line in lines)


def _csv_rows(lines: Iterable[str], key: str | None) -> Iterator[Row]:
    reader = csv.reader(lines, strict=True)
    try:
        header = next(reader, None)
        if header is None:
            return
        at = None
        if key is not None:
            if key not in header:
                raise RowError(f"--key {key}: the columns are {', '.join(header)}")
            at = header.index(key)
        for cells in reader:
            if not cells:
                continue
            if len(cells) != len(header):
                raise RowError(
                    f"line {reader.line_num}: {len(cells)} cells, the header has {len(header)}"
                )
            fields = {name: cell or None for name, cell in zip(header, cells, strict=True)}
            value = json.dumps(fields, separators=(",", ":"), ensure_ascii=False)
            yield Row(None if at is None else _bytes(cells[at]), _bytes(value))
    except csv.Error as error:
        raise RowError(f"line {reader.line_num}: {error}") from None


def _json_rows(lines: Iterable[str], key: str | None) -> Iterator[Row]:
    for number, raw in enumerate(lines, 1):
        line = raw.strip()
        if not line:
            continue
        try:
            fields = json.loads(line)
        except json.JSONDecodeError as error:
            raise RowError(f"line {number}, column {error.colno}: {error.msg}") from None
        yield Row(None if key is None else _key(fields, key, number), _bytes(line))


def _key(fields: object, key: str, number: int) -> bytes | None:
    if not isinstance(fields, dict) or key not in fields:
        raise RowError(f"line {number}: no field {key!r}")
    value = fields[key]
    if value is None:
        return None
    if isinstance(value, str):
        return _bytes(value)
    return _bytes(json.dumps(value, separators=(",", ":"), ensure_ascii=False))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
