r"""The conditions of a search, and which records hold them. Pure.

Conditions are about bytes where that is possible, so that most batches can be decided without
decoding their records: a batch whose decompressed bytes do not contain the wanted ones has no
record that matches (`may_match`). A text is compared with the UTF-8 bytes of key, value and
headers; a text that is not ASCII also in the form that JSON encoders may write (`\u00e9`).
With `ignore_case`, ASCII letters are compared without case.

JSON is decoded record by record. A value that begins with a zero byte and a schema id (the framing
of schema registries) is decoded after these five bytes, if JSON follows.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeAlias

from odradek.record.records import Record
from odradek.web.messages.jsonpath import NamedMember, Path, select

FRAME_BYTES: Final = 5  # a zero byte, and the schema id as int32
_NOT_JSON: Final = object()
_JSON_BYTES_MAX: Final = 4 << 20
_NOT_AN_INTEGER: Final = re.compile(rb"\d(?:\.\d|[eE][+-]?\d)")


class Where(Enum):
    """The part of a record that a text is searched in."""

    ANYWHERE = "anywhere"
    KEY = "key"
    VALUE = "value"
    HEADERS = "headers"


@dataclass(frozen=True, slots=True)
class KeyEquals:
    """The key has exactly these bytes; None: the key is null."""

    key: bytes | None


@dataclass(frozen=True, slots=True)
class TextContains:
    """The text occurs in a part of the record."""

    text: str
    where: Where = Where.ANYWHERE
    ignore_case: bool = False


@dataclass(frozen=True, slots=True)
class HeaderEquals:
    """A header of this name exists; with `value`, one with exactly these bytes."""

    name: str
    value: bytes | None = None


@dataclass(frozen=True, slots=True)
class JsonEquals:
    """The path selects this value: the text itself, or the JSON value that the text is."""

    path: Path
    text: str


@dataclass(frozen=True, slots=True)
class JsonContains:
    """The path selects a string that contains this; "" holds for any value, if the path exists."""

    path: Path
    text: str


Condition: TypeAlias = KeyEquals | TextContains | HeaderEquals | JsonEquals | JsonContains
_Test: TypeAlias = Callable[[Record], bool]
_Prefilter: TypeAlias = Callable[[bytes], bool]


class Matcher:
    """All conditions of a search together; a record has to meet each of them."""

    def __init__(
        self,
        conditions: tuple[Condition, ...] = (),
        *,
        from_ms: int | None = None,
        to_ms: int | None = None,
    ) -> None:
        """Only records with a timestamp from `from_ms` on and before `to_ms` match."""
        self.from_ms = from_ms
        self.to_ms = to_ms
        self.not_json = 0  # records whose value was needed as JSON, and is not
        self.has_conditions = bool(conditions)
        self._prefilters = [p for c in conditions if (p := _prefilter(c)) is not None]
        self._tests: list[_Test] = [
            _test(c) for c in conditions if not isinstance(c, JsonEquals | JsonContains)
        ]
        self._json = [c for c in conditions if isinstance(c, JsonEquals | JsonContains)]
        self._json_prefilters = [p for c in self._json if (p := _prefilter(c)) is not None]

    def may_match(self, body: bytes) -> bool:
        """Whether a record in these decompressed records may match, by their bytes alone."""
        return all(passes(body) for passes in self._prefilters)

    def is_before(self, max_timestamp: int) -> bool:
        """Whether a batch with this largest timestamp is too old as a whole."""
        return self.from_ms is not None and max_timestamp < self.from_ms

    def matches(self, record: Record) -> bool:
        """Whether a record meets all conditions; counts values that would have to be JSON."""
        if self.from_ms is not None and record.timestamp < self.from_ms:
            return False
        if self.to_ms is not None and record.timestamp >= self.to_ms:
            return False
        return all(test(record) for test in self._tests) and self._matches_json(record)

    def _matches_json(self, record: Record) -> bool:
        if not self._json:
            return True
        value = record.value or b""
        if not all(passes(value) for passes in self._json_prefilters):
            return False
        document = decode_json(record.value)
        if document is _NOT_JSON:
            self.not_json += 1
            return False
        return all(_holds(condition, document) for condition in self._json)


def decode_json(value: bytes | None) -> Any:
    """The document in a value; a marker object that equals nothing if it is not JSON."""
    if value is None or len(value) > _JSON_BYTES_MAX:
        return _NOT_JSON
    try:
        # Decoded here, because `json.loads` would take bytes in UTF-16, which prefilters miss.
        return json.loads((value[FRAME_BYTES:] if value[:1] == b"\0" else value).decode())
    except (ValueError, RecursionError):
        return _NOT_JSON


def is_json(document: Any) -> bool:
    """Whether `decode_json` has found a document."""
    return document is not _NOT_JSON


# --------------------------------------------------------------------------- record by record


def _test(condition: KeyEquals | TextContains | HeaderEquals) -> _Test:
    match condition:
        case KeyEquals(key=key):
            return lambda record: record.key == key
        case HeaderEquals(name=name, value=value):
            return lambda record: any(
                name == each and (value is None or value == found) for each, found in record.headers
            )
        case TextContains(where=where):
            contains = _contains(condition)
            parts = _PARTS[where]
            return lambda record: any(contains(part) for part in parts(record))


def _headers_of(record: Record) -> list[bytes]:
    return [
        part
        for name, value in record.headers
        for part in (name.encode("utf-8", "surrogateescape"), value or b"")
    ]


_PARTS: Final[dict[Where, Callable[[Record], list[bytes]]]] = {
    Where.KEY: lambda record: [record.key or b""],
    Where.VALUE: lambda record: [record.value or b""],
    Where.HEADERS: _headers_of,
    Where.ANYWHERE: lambda record: [record.key or b"", record.value or b"", *_headers_of(record)],
}


def _holds(condition: JsonEquals | JsonContains, document: Any) -> bool:
    if isinstance(condition, JsonContains):
        return any(
            not condition.text or (isinstance(value, str) and condition.text in value)
            for value in select(document, condition.path)
        )
    wanted = _literal(condition.text)
    return any(
        value == condition.text
        or (value == wanted and isinstance(value, bool) == isinstance(wanted, bool))
        for value in select(document, condition.path)
    )


def _literal(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


# ----------------------------------------------------------------------------- batch by batch


def _prefilter(condition: Condition) -> _Prefilter | None:
    """What the bytes of a batch must contain; None if nothing can be said."""
    match condition:
        case KeyEquals(key=key):
            if key is None:
                return None
            needle = _zigzag(len(key)) + key  # with its length, as the record has it
            return lambda body: needle in body
        case TextContains():
            return _contains(condition)
        case HeaderEquals(name=name, value=value):
            needle = name.encode("utf-8", "surrogateescape")
            needle = _zigzag(len(needle)) + needle
            if value is not None:
                needle += _zigzag(len(value)) + value
            return lambda body: needle in body
        case JsonEquals(path=path, text=text) | JsonContains(path=path, text=text):
            return _json_prefilter(path, text, exact=isinstance(condition, JsonEquals))


def _contains(condition: TextContains) -> _Prefilter:
    needles = _forms(condition.text)
    if condition.ignore_case:
        needles = list(dict.fromkeys(needle.lower() for needle in needles))
        return lambda data: any(needle in data.lower() for needle in needles)
    if len(needles) == 1:
        needle = needles[0]
        return lambda data: needle in data
    return lambda data: any(needle in data for needle in needles)


def _forms(text: str) -> list[bytes]:
    """UTF-8, and what JSON encoders write for characters that are not ASCII."""
    plain = text.encode("utf-8", "surrogateescape")
    if text.isascii():
        return [plain]
    escaped = "".join(each if each.isascii() else json.dumps(each)[1:-1] for each in text)
    upper = "".join(
        each if each.isascii() else json.dumps(each)[1:-1].upper().replace("\\U", "\\u")
        for each in text
    )
    return list(dict.fromkeys((plain, escaped.encode(), upper.encode())))


def _json_prefilter(path: Path, text: str, *, exact: bool) -> _Prefilter | None:
    """The names of the path and the text have to occur, unless JSON escapes may hide them.

    Literals and other JSON have many spellings, so only a wanted string or integer is looked for;
    an integer may also be written as 70.0 or 7e1.
    """
    names = [step.name for step in path if isinstance(step, NamedMember)]
    needles = [b'"%s"' % name.encode() for name in names if _is_plain(name)]
    wanted = _literal(text) if exact else text
    if isinstance(wanted, str) and wanted and _is_plain(wanted):
        needles.append(wanted.encode())
    if type(wanted) is int and exact:
        digits = b"%d" % abs(wanted)
        other_spelling = _other_spelling(path)
        return lambda data: (
            _has_escapes(data)
            or (
                all(needle in data for needle in needles)
                and (digits in data or other_spelling.search(data) is not None)
            )
        )
    if not needles:
        return None
    return lambda data: _has_escapes(data) or all(needle in data for needle in needles)


def _other_spelling(path: Path) -> re.Pattern[bytes]:
    """Finds numbers that are not written as integers, where the path selects them if possible."""
    last = path[-1] if path else None
    if isinstance(last, NamedMember) and _is_plain(last.name):
        return re.compile(rb'"%s"\s*:\s*-?\d+[.eE]' % re.escape(last.name.encode()))
    return _NOT_AN_INTEGER


def _has_escapes(data: bytes) -> bool:
    """Whether JSON in these bytes may write plain characters as escapes, by code or for a slash."""
    return b"\\u" in data or b"\\/" in data


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable() and not set(text) & {'"', "\\"}


def _zigzag(length: int) -> bytes:
    """The length of a key, value or header as a record has it."""
    raw = length << 1
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)
