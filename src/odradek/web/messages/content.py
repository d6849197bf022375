"""How bytes are shown: as JSON, text or hexadecimal, decided by what they are. Pure.

JSON is only indented; its numbers, names and escapes stay as they were written. Schema registries
put a zero byte and a schema id before the data: it is named, and what follows is shown if it is
JSON or text.
"""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from odradek.web.messages.conditions import FRAME_BYTES

_HEX_LINE: Final = 32
_INDENT_MAX: Final = 64
_MOMENT_MAX: Final = 253_402_300_799_999  # the end of the year 9999


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownBytes:
    """Shown bytes. `kind` is null, empty, json, text or hex; `bytes` is the whole length."""

    kind: str
    text: str = ""
    bytes: int = 0
    shown_bytes: int = 0
    schema_id: int | None = None

    def plain(self) -> dict[str, Any]:
        """The value for JSON and templates."""
        return {
            "kind": self.kind,
            "text": self.text,
            "bytes": self.bytes,
            "cut": self.bytes - self.shown_bytes,
            "schema_id": self.schema_id,
        }


def content_of(data: bytes | None, whole_bytes: int) -> ShownBytes:
    """The content of a key, value or header of which `data` is held, of `whole_bytes` bytes."""
    if data is None:
        return ShownBytes(kind="null")
    if not data:
        return ShownBytes(kind="empty", bytes=whole_bytes)
    schema_id = None
    body = data
    if data[0] == 0 and len(data) > FRAME_BYTES:
        schema_id, body = int.from_bytes(data[1:FRAME_BYTES], "big"), data[FRAME_BYTES:]
    text = _text(body, is_cut=len(data) < whole_bytes)
    if text is None:
        # What merely begins with a zero byte is no framing if the rest is not text.
        kind, shown, schema_id = "hex", _hex(data), None
    elif (indented := _json(text)) is not None:
        kind, shown = "json", indented
    else:
        kind, shown = "text", text
    return ShownBytes(
        kind=kind, text=shown, bytes=whole_bytes, shown_bytes=len(data), schema_id=schema_id
    )


def _text(data: bytes, *, is_cut: bool) -> str | None:
    """The text, if it is UTF-8 without control characters; the last character may be cut."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if not is_cut or error.end < len(data) or len(data) - error.start > 3:
            return None
        text = data[: error.start].decode()
    if any(each < " " and each not in "\t\n\r" for each in text) or "\x7f" in text:
        return None
    return text


def _hex(data: bytes) -> str:
    lines = (data[at : at + _HEX_LINE] for at in range(0, len(data), _HEX_LINE))
    return "\n".join(line.hex(" ") for line in lines)


def _json(text: str) -> str | None:
    """The text indented, if it is a JSON object or array."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return None
    return indented(text)


def indented(text: str) -> str:
    """Valid JSON, with a line for each member, and every token as it was."""
    out: list[str] = []
    depth, at, size = 0, 0, len(text)
    while at < size:
        each = text[at]
        if each == '"':
            end = _string_end(text, at)
            out.append(text[at:end])
            at = end
            continue
        if each in "{[":
            depth += 1
            closing = _after_blanks(text, at + 1)
            if text[closing] in "}]":
                out.append(each + text[closing])
                depth -= 1
                at = closing + 1
                continue
            out.append(each + _line(depth))
        elif each in "}]":
            depth -= 1
            out.append(_line(depth) + each)
        elif each == ",":
            out.append(each + _line(depth))
        elif each == ":":
            out.append(": ")
        elif each not in " \t\r\n":
            out.append(each)
        at += 1
    return "".join(out)


def _line(depth: int) -> str:
    return "\n" + "  " * min(depth, _INDENT_MAX)


def _string_end(text: str, at: int) -> int:
    """The position after the string that begins at `at`."""
    at += 1
    while text[at] != '"':
        at += 2 if text[at] == "\\" else 1
    return at + 1


def _after_blanks(text: str, at: int) -> int:
    while text[at] in " \t\r\n":
        at += 1
    return at


def moment(timestamp_ms: int) -> str:
    """A timestamp in UTC to the millisecond; "" if it is not set, or not a time."""
    if not 0 <= timestamp_ms <= _MOMENT_MAX:
        return ""
    at = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1000:03d}Z"
