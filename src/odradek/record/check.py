"""What a leader checks of the records inside a batch; a compiled version is used if installed.

Two functions compute the same, and property tests compare them: `check` of the package
`odradek_fast`, some 10 ns a record, and `plain_check` here, some 600 ns a record.

Every byte may come from a hostile client, so every count and length is compared with the number of
bytes before it is used. Well-formed records fill the body exactly, each has its index as offset
delta, a timestamp of 64 bits, lengths of at least -1 (null; a header's key is not null), and
varints that fit their type. A varint may be longer than necessary.
"""

import importlib
from collections.abc import Callable
from functools import cache
from typing import Final, TypeAlias, cast

from odradek.record.batch import NO_TIMESTAMP, Bytes

# A byte each for length, attributes, two deltas, two lengths and a count.
RECORD_BYTES_MIN: Final = 7
# A longer list would add nothing and make a response of megabytes.
REJECTED_MAX: Final = 1000
_INT64_MIN: Final = -(1 << 63)
_INT64_MAX: Final = (1 << 63) - 1

# Index, and timestamp if it is out of range, None if a key is missing.
Rejected: TypeAlias = tuple[int, int | None]
# Largest timestamp or -1, number of rejected records, the first of them.
Checked: TypeAlias = tuple[int, int, list[Rejected]]
# Body, position of the first record in it, record count, base timestamp, earliest and latest
# timestamp, whether each record needs a key.
Check: TypeAlias = Callable[[Bytes, int, int, int, int, int, bool], Checked]


@cache
def fastest_check() -> Check:
    """The compiled check, or `plain_check` if none is installed (or one older than 0.2)."""
    try:
        compiled = importlib.import_module("odradek_fast")
    except ImportError:
        return plain_check
    return cast("Check", getattr(compiled, "check", plain_check))


def plain_check(  # noqa: C901, PLR0912, PLR0913, PLR0915, PLR0917 - one pass, no calls in it
    body: Bytes,
    start: int,
    count: int,
    base_timestamp: int,
    earliest: int,
    latest: int,
    needs_key: bool,
) -> Checked:
    """Check that `body` has exactly `count` well-formed records from `start` on.

    A record is rejected if it has no key and needs one, or if its timestamp is not -1 and not
    within [earliest, latest]; the rest of the batch is checked nevertheless.

    Raises:
        ValueError: they are not well-formed; the message names the record and the field.
    """
    is_whole = isinstance(body, bytes | bytearray) and not start
    data = body if is_whole else bytes(memoryview(body)[start:])
    size = len(data)
    if not 0 <= count <= size // RECORD_BYTES_MIN:
        raise ValueError(f"{count} records in {size} bytes")
    largest = NO_TIMESTAMP
    rejected = position = 0
    listed: list[Rejected] = []
    for index in range(count):
        # Varints of one or two bytes, the usual case, are decoded inline and not by a call each.
        # Anything unusual, corrupt records included, is decoded again by `_one`.
        at = position
        more = delta = key = timestamp = end = 0
        try:
            length = data[at]
            at += 1
            if length > 0x7F:
                more = data[at]
                at += 1
                length += (more << 7) - 0x80
            end = at + (length >> 1)
            delta = data[at + 1]  # after the attributes
            at += 2
            if delta > 0x7F:
                more |= data[at]
                delta += (data[at] << 7) - 0x80
                at += 1
            offset = data[at]
            at += 1
            if offset > 0x7F:
                more |= data[at]
                offset += (data[at] << 7) - 0x80
                at += 1
            key = data[at]
            at += 1 + (key >> 1)
            value = data[at]
            at += 1
            if value > 0x7F:
                more |= data[at]
                value += (data[at] << 7) - 0x80
                at += 1
            at += value >> 1
            is_usual = (
                data[at] == 0  # headers
                and at + 1 == end
                and end <= size
                and offset == index + index
                and more < 0x80
                and not length & 1
                and (key == 1 or (not key & 1 and key < 0x80))
                and (value == 1 or not value & 1)
            )
        except IndexError:
            is_usual = False
        if is_usual:
            timestamp = base_timestamp + ((delta >> 1) ^ -(delta & 1))
            is_usual = _INT64_MIN <= timestamp <= _INT64_MAX
        if not is_usual:
            timestamp, key, end = _one(data, position, index, count, base_timestamp)
        position = end
        if key == 1 and needs_key:
            rejected += 1
            if rejected <= REJECTED_MAX:
                listed.append((index, None))
        elif not earliest <= timestamp <= latest and timestamp != NO_TIMESTAMP:
            rejected += 1
            if rejected <= REJECTED_MAX:
                listed.append((index, timestamp))
        if timestamp > largest:  # noqa: PLR1730 - no call for each record
            largest = timestamp
    if position != size:
        raise ValueError(f"{size - position} bytes after the last of {count} records")
    return largest, rejected, listed


class _Parts:
    """Decodes one record field by field."""

    __slots__ = ("at", "data", "end", "what")

    def __init__(self, data: Bytes, position: int) -> None:
        self.data = data
        self.at = position
        self.end = len(data)
        self.what = ""

    def number(self, what: str, bits: int = 32) -> int:
        """The next varint; ValueError if it is incomplete or too large."""
        self.what = what
        raw = shift = 0
        while True:
            if self.at >= self.end or shift >= bits:
                raise ValueError
            byte = self.data[self.at]
            self.at += 1
            raw |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if raw >> bits:
            raise ValueError
        return (raw >> 1) ^ -(raw & 1)

    def skip(self, what: str, least: int) -> int:
        """Skip the next length and that many bytes; ValueError if there are fewer."""
        length = self.number(what)
        if not least <= length <= self.end - self.at:
            raise ValueError
        self.at += max(length, 0)
        return length


def _one(
    data: Bytes, position: int, index: int, count: int, base_timestamp: int
) -> tuple[int, int, int]:
    """Timestamp, 1 if the key is null, and end position of any record.

    Raises:
        ValueError: the record is corrupt.
    """
    parts = _Parts(data, position)
    try:
        length = parts.number("length")
        if not RECORD_BYTES_MIN - 1 <= length <= parts.end - parts.at:
            raise ValueError  # noqa: TRY301 - one way out
        parts.end = parts.at + length
        parts.at += 1  # the attributes
        timestamp = base_timestamp + parts.number("timestamp", 64)
        if not _INT64_MIN <= timestamp <= _INT64_MAX:
            raise ValueError  # noqa: TRY301
        if parts.number("offset delta") != index:
            raise ValueError  # noqa: TRY301
        key_length = parts.skip("key length", -1)
        parts.skip("value length", -1)
        _skip_headers(parts)
    except ValueError:
        raise ValueError(f"record {index} of {count}: its {parts.what} is damaged") from None
    return timestamp, int(key_length < 0), parts.end


def _skip_headers(parts: _Parts) -> None:
    what = "headers"
    count = parts.number(what)
    if not 0 <= count <= (parts.end - parts.at) // 2:
        raise ValueError
    for _ in range(count):
        parts.skip(what, 0)
        parts.skip(what, -1)
    if parts.at != parts.end:
        raise ValueError
