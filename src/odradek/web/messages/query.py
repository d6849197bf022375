"""A search as the form sends it: its fields, what they mean, and what is refused. Pure.

    topic       the name of the topic
    partitions  "" (all), or numbers and ranges: 0,3-5
    from        "" (the log start), an offset, or a time
    to          "" (the end), an offset (exclusive), or a time (exclusive)
    last        in place of `from`: the last N offsets of each partition
    key         the whole key; `key_is` = text, hex, null
    text        occurs in the `where` part: anywhere, key, value, headers; `case` = ignore
    path        a JSON path into the value; with `is` = equals or contains, and `json`
    header      name, or name=value
    state       all, or committed: without records of open and aborted transactions
    markers     1: also control records, if there are no conditions
    limit       found records in one slice

A time is ISO 8601 (UTC if it has no zone), @ and milliseconds since 1970, or -15m: so long before
now, in s, m, h or d.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple, TypeVar

from odradek.model.clock import WallMs
from odradek.model.errors import OdradekError
from odradek.web.messages.conditions import (
    Condition,
    HeaderEquals,
    JsonContains,
    JsonEquals,
    KeyEquals,
    Matcher,
    TextContains,
    Where,
)
from odradek.web.messages.jsonpath import parse_path

FOUND_DEFAULT: Final = 50
FOUND_MAX: Final = 500
_PARTITION_MAX: Final = 1 << 31
_UNIT_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_TEXT_MAX: Final = 4_096
_OFFSET_MAX: Final = (1 << 63) - 1
FIELDS: Final = (
    "topic", "partitions", "from", "to", "last", "key", "key_is", "text", "where", "case", "path",
    "is", "json", "header", "state", "markers", "limit",
)  # fmt: skip

T = TypeVar("T")


class QueryError(OdradekError):
    """A field has an invalid value; the message has the field, the value and the rule."""


class AtOffset(NamedTuple):
    """An offset, the same in each partition."""

    offset: int


class AtTime(NamedTuple):
    """The first record at or after this moment."""

    wall_ms: WallMs


Bound = AtOffset | AtTime


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What is searched. Bounds are None for the log start and the end."""

    topic: str
    partitions: tuple[int, ...] | None = None
    start: Bound | None = None
    end: Bound | None = None
    last: int | None = None
    conditions: tuple[Condition, ...] = ()
    committed_only: bool = False
    shows_markers: bool = False
    limit: int = FOUND_DEFAULT

    def matcher(self) -> Matcher:
        """The conditions and bounds of time, ready to be used for one slice."""
        return Matcher(
            self.conditions,
            from_ms=self.start.wall_ms if isinstance(self.start, AtTime) else None,
            to_ms=self.end.wall_ms if isinstance(self.end, AtTime) else None,
        )

    @property
    def digest(self) -> str:
        """Differs for searches whose cursors must not be mixed up; `limit` may change."""
        parts = (
            self.topic, self.partitions, self.start, self.end, self.last, self.conditions,
            self.committed_only, self.shows_markers,
        )  # fmt: skip
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def fields_of(parameters: Mapping[str, str]) -> dict[str, str]:
    """The fields of a search among the parameters of a URL, without empty ones.

    A relative time stays as it is; `pinned` makes it a moment.
    """
    return {name: parameters[name] for name in FIELDS if parameters.get(name, "").strip()}


def pinned(fields: Mapping[str, str], wall_ms: WallMs) -> dict[str, str]:
    """The fields with each relative time as a moment, so that the search can be continued."""
    fixed = dict(fields)
    for name in ("from", "to"):
        text = fixed.get(name, "").strip()
        if text[:1] in ("-", "+"):
            fixed[name] = f"@{_time_ms(name, text, wall_ms)}"
    return fixed


def read_query(fields: Mapping[str, str], wall_ms: WallMs) -> Query:
    """The search of these fields.

    Raises:
        QueryError, PathError: a field is invalid.
    """
    for name, text in fields.items():
        if len(text) > _TEXT_MAX:
            raise QueryError(f"{name}: {len(text)} characters; at most {_TEXT_MAX} are allowed")
    topic = fields.get("topic", "").strip()
    if not topic:
        raise QueryError("topic: choose a topic")
    last = _integer(fields, "last", 1, _OFFSET_MAX)
    if last is not None and fields.get("from"):
        raise QueryError("last: cannot be combined with from")
    start = _bound(fields, "from", wall_ms)
    end = _bound(fields, "to", wall_ms)
    if type(start) is type(end) and start is not None and end is not None and end <= start:
        raise QueryError(f"to: {fields['to']} is not after from, {fields['from']}")
    conditions = tuple(_conditions(fields))
    return Query(
        topic=topic,
        partitions=_partitions(fields.get("partitions", "")),
        start=start,
        end=end,
        last=last,
        conditions=conditions,
        committed_only=_choice(fields, "state", {"all": False, "committed": True}),
        shows_markers=fields.get("markers") == "1" and not conditions,
        limit=_integer(fields, "limit", 1, FOUND_MAX) or FOUND_DEFAULT,
    )


def _conditions(fields: Mapping[str, str]) -> list[Condition]:
    found: list[Condition] = []
    key_is = _choice(fields, "key_is", {"text": "text", "hex": "hex", "null": "null"})
    if key_is == "null":
        found.append(KeyEquals(None))
    elif fields.get("key"):
        found.append(KeyEquals(_bytes("key", fields["key"], is_hex=key_is == "hex")))
    if fields.get("text"):
        where = _choice(fields, "where", {each.value: each for each in Where})
        ignores = _choice(fields, "case", {"match": False, "ignore": True})
        found.append(TextContains(fields["text"], where, ignores))
    if header := fields.get("header", ""):
        name, equals, value = header.partition("=")
        found.append(HeaderEquals(name.strip(), value.strip().encode() if equals else None))
    if fields.get("path", "").strip():
        path, text = parse_path(fields["path"]), fields.get("json", "")
        contains = _choice(fields, "is", {"equals": False, "contains": True})
        found.append(JsonContains(path, text) if contains else JsonEquals(path, text))
    elif fields.get("json"):
        raise QueryError("json: needs a path; $ is the whole value")
    return found


def _choice(fields: Mapping[str, str], name: str, choices: Mapping[str, T]) -> T:
    """The value of a field; the first choice if it is not set."""
    text = fields.get(name, "").strip() or next(iter(choices))
    if text not in choices:
        raise QueryError(f"{name}: {text!r} is not one of {', '.join(choices)}")
    return choices[text]


def _integer(fields: Mapping[str, str], name: str, least: int, most: int) -> int | None:
    text = fields.get(name, "").strip()
    if not text:
        return None
    if not text.isascii() or not text.isdecimal() or not least <= int(text[:20]) <= most:
        raise QueryError(f"{name}: {text!r} is not a number from {least} to {most}")
    return int(text)


def _bytes(name: str, text: str, *, is_hex: bool) -> bytes:
    if not is_hex:
        return text.encode("utf-8", "surrogateescape")
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise QueryError(f"{name}: {text!r} is not hexadecimal") from None


def _partitions(text: str) -> tuple[int, ...] | None:
    if not text.strip():
        return None
    chosen: set[int] = set()
    for part in text.split(","):
        found = re.fullmatch(r"\s*(\d{1,9})\s*(?:-\s*(\d{1,9})\s*)?", part, re.ASCII)
        if found is None:
            raise QueryError(f"partitions: {part.strip()!r} is not a number or a range such as 0-3")
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first or last - first > 100_000 or last >= _PARTITION_MAX:
            raise QueryError(f"partitions: {part.strip()!r} is not a range")
        chosen.update(range(first, last + 1))
    return tuple(sorted(chosen))


def _bound(fields: Mapping[str, str], name: str, wall_ms: WallMs) -> Bound | None:
    text = fields.get(name, "").strip()
    if not text:
        return None
    if text.isascii() and text.isdecimal():
        return AtOffset(_integer(fields, name, 0, _OFFSET_MAX) or 0)
    return AtTime(WallMs(_time_ms(name, text, wall_ms)))


def _time_ms(name: str, text: str, wall_ms: WallMs) -> int:
    relative = re.fullmatch(r"([-+])\s*(\d{1,9})\s*([smhd])", text, re.ASCII)
    if relative is not None:
        shift_ms = int(relative[2]) * _UNIT_MS[relative[3]]
        return wall_ms - shift_ms if relative[1] == "-" else wall_ms + shift_ms
    if re.fullmatch(r"@-?\d{1,18}", text, re.ASCII):
        return int(text[1:])
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise QueryError(
            f"{name}: {text!r} is neither an offset nor a time such as 2026-01-31T12:00, "
            "@1767225600000 or -15m"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)
