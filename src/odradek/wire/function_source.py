"""The text of a generated function: its lines, its constants, and the field of each line.

Codecs are straight-line Python generated from a schema (`odradek.wire.decoder_source`,
`odradek.wire.encoder_source`): measured 3-10 times faster than interpreting the schema for every
message. Each line is recorded with its field, so that an exception inside the generated code can
be reported in terms of the protocol, at no cost while there is none.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import Struct
from types import TracebackType
from typing import Any

from odradek.wire.schema import Field, Schema

FIXED = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}


class FunctionSource:
    """The text of one function while it is being generated."""

    def __init__(self, schema: Schema, version: int, header: str) -> None:
        self.version = version
        self.flexible = version in schema.flexible
        self.constants: dict[str, Any] = {}
        self._names: dict[tuple[str, object], str] = {}
        self._message = f"{schema.name} v{version}"
        self._path: list[str] = []
        self._lines = [header]
        self._line_fields = [self._message]
        self._indent = 1
        self._counter = 0

    def line(self, text: str, where: str | None = None) -> None:
        """Append one line, recorded for the current field or for `where`."""
        self._lines.append("  " * self._indent + text)
        self._line_fields.append(where or self.where)

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """Append `header`; lines appended inside are indented."""
        self.line(header)
        self._indent += 1
        yield
        self._indent -= 1

    @contextmanager
    def field(self, field: Field) -> Iterator[None]:
        """Lines appended inside are recorded for this field."""
        self._path.append(field.name)
        yield
        self._path.pop()

    @property
    def where(self) -> str:
        """The current field as errors name it: `FetchRequest v12 topics.partitions`."""
        return f"{self._message} {'.'.join(self._path)}".rstrip()

    def local(self, hint: str) -> str:
        """A name that is unique in this function."""
        self._counter += 1
        return f"{hint}{self._counter}"

    def constant(self, hint: str, key: object, make: Callable[[], object]) -> str:
        """The name of a constant of the function; equal `key`s share one."""
        if (hint, key) not in self._names:
            name = self._names[hint, key] = self.local(f"{hint}_")
            self.constants[name] = make()
        return self._names[hint, key]

    def compiled(self, name: str, kind: str) -> Callable[..., Any]:
        text = "\n".join(self._lines)
        exec(compile(text, f"<{kind} of {self._message}>", "exec"), self.constants)
        made: Callable[..., Any] = self.constants[name]
        return made

    def field_at(self, traceback: TracebackType | None) -> str:
        """The field of the line at which an exception was raised."""
        assert traceback is not None
        return self._line_fields[traceback.tb_lineno - 1]


def yield_line(number: str, depth: int, before: str = "pass") -> str:
    """The line that yields in a loop over an array, every few elements.

    Outer arrays yield more often, because one of their elements may hold as many elements as an
    inner array handles between two yields: 4 by 8 by 32 elements at most.
    """
    return f"if {number} & {_YIELD_MASKS[min(depth, 2)]} == 0 and {number}: {before}; yield"


_YIELD_MASKS = (3, 7, 31)


def present(fields: tuple[Field, ...], version: int) -> list[Field]:
    """The fields in the body of this version, in order."""
    return [f for f in fields if version in f.versions and f.tag is None]


def tagged(fields: tuple[Field, ...], version: int) -> list[Field]:
    """The fields in the tagged section of this version, in order."""
    found = [f for f in fields if version in f.versions and f.tag is not None]
    return sorted(found, key=lambda field: field.tag or 0)


def absent(fields: tuple[Field, ...], version: int) -> list[Field]:
    """The fields that this version lacks."""
    return [f for f in fields if version not in f.versions]


def bytes_min(schema: Schema, version: int, *, flexible: bool) -> int:
    """The least number of bytes of a struct: array counts are checked against it."""
    length_bytes = {"string": 2, "bytes": 4, "array": 4}
    total = 1 if flexible else 0  # the count of tagged fields
    for field in present(schema.fields, version):
        if field.kind in FIXED:
            total += Struct(">" + FIXED[field.kind]).size
        else:
            total += 1 if flexible else length_bytes[field.kind]
    return total
