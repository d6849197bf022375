"""How far a search is: by partition, with what it has not searched; and the cursor. Pure.

The offsets of a search are fixed when it begins: `start` (inclusive) and `end` (exclusive) of each
partition. At every moment each of these offsets is one of

    searched       below `position`, and in no list below
    missing        below `position`, and no record has it: removed by compaction
    undecodable    in a batch that cannot be decoded: damaged, or of a format before 0.11
    expired        deleted (retention, DeleteRecords) before the search came to it
    remaining      from `position` on

so what was not searched is the sum of the last three. A cursor is this state as text: it needs no
memory in the server, and continues the search after a reload, or in another process.
"""

import base64
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final, NamedTuple

from odradek.model.errors import OdradekError

_VERSION: Final = 1
_CURSOR_BYTES_MAX: Final = 1 << 20  # decompressed
_CURSOR_MAX: Final = 12_000  # characters; a URL may have 16 KiB
_RANGES_MAX: Final = 20
OFFSET_MAX: Final = (1 << 63) - 1
PARTITIONS_MAX: Final = 400  # a cursor fits into a URL


class CursorError(OdradekError):
    """The text is not a cursor, or belongs to another search."""


class UnsearchedRange(NamedTuple):
    """Offsets from `start` (inclusive) to `end` (exclusive), and why they were not searched."""

    start: int
    end: int
    reason: str = ""

    @property
    def size(self) -> int:
        """The number of offsets."""
        return self.end - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProgress:
    """The state of a search in one partition."""

    start: int
    end: int
    position: int
    records: int = 0  # searched, or skipped by the largest timestamp of their batch
    found: int = 0
    bytes: int = 0
    markers: int = 0  # control records, which are not searched for text
    missing: int = 0  # offsets without a record: removed by compaction
    not_json: int = 0  # records with a condition on JSON whose value is not JSON
    undecodable: tuple[UnsearchedRange, ...] = ()
    expired: tuple[UnsearchedRange, ...] = ()
    error: str = ""  # why this partition cannot be read any further

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to read."""
        return self.position >= self.end or bool(self.error)

    @property
    def remaining(self) -> int:
        """The number of offsets that are not read yet."""
        return max(0, self.end - self.position)

    def not_searched(self) -> list[UnsearchedRange]:
        """All offsets of the search that were not searched, each range with its reason."""
        rest = []
        if self.remaining:
            rest = [UnsearchedRange(self.position, self.end, self.error or "not read yet")]
        return sorted([*self.undecodable, *self.expired, *rest])

    def with_ranges(
        self, undecodable: Iterable[UnsearchedRange] = (), expired: Iterable[UnsearchedRange] = ()
    ) -> "PartitionProgress":
        """With further ranges, of which neighbours are joined."""
        return replace(
            self,
            undecodable=_joined([*self.undecodable, *undecodable]),
            expired=_joined([*self.expired, *expired]),
        )


def _joined(ranges: list[UnsearchedRange], limit: int = _RANGES_MAX) -> tuple[UnsearchedRange, ...]:
    """Neighbours with one reason are one range; above the limit, the nearest ranges are joined.

    So offsets that were searched may be reported as not searched, and never the other way round.
    """
    joined: list[UnsearchedRange] = []
    for each in sorted(ranges):
        last = joined[-1] if joined else None
        if last is not None and each.start <= last.end and each.reason == last.reason:
            joined[-1] = last._replace(end=max(last.end, each.end))
        else:
            joined.append(each)
    while len(joined) > limit:
        gaps = [b.start - a.end for a, b in pairwise(joined)]
        at = gaps.index(min(gaps))
        merged = UnsearchedRange(joined[at].start, joined[at + 1].end, "several reasons")
        joined[at : at + 2] = [merged]
    return tuple(joined)


@dataclass(frozen=True, slots=True)
class SearchProgress:
    """The state of a search: of all its partitions, and which query it belongs to."""

    query: str  # a digest of the topic and the conditions
    started_ms: int
    partitions: Mapping[int, PartitionProgress] = field(default_factory=dict)

    @property
    def is_done(self) -> bool:
        """Whether all partitions were read to their ends, or cannot be read any further."""
        return all(each.is_done for each in self.partitions.values())

    def total(self, name: str) -> int:
        """The sum of one number of all partitions."""
        return sum(getattr(each, name) for each in self.partitions.values())

    def advanced(self, partitions: Mapping[int, PartitionProgress]) -> "SearchProgress":
        """With the new state of some partitions."""
        return replace(self, partitions={**self.partitions, **partitions})


# ------------------------------------------------------------------------------------- cursor

_COUNTS: Final = (
    "start", "end", "position", "records", "found", "bytes", "markers", "missing", "not_json",
)  # fmt: skip


def to_cursor(progress: SearchProgress) -> str:
    """The state as text for a URL; if it is too long for one, with fewer and larger ranges."""
    text = _packed(progress)
    if len(text) > _CURSOR_MAX:
        text = _packed(progress.advanced({i: _short(e) for i, e in progress.partitions.items()}))
    return text


def _short(each: PartitionProgress) -> PartitionProgress:
    return replace(
        each,
        undecodable=_joined(list(each.undecodable), 1),
        expired=_joined(list(each.expired), 1),
        error=each.error[:40],
    )


def _packed(progress: SearchProgress) -> str:
    content = [
        _VERSION,
        progress.query,
        progress.started_ms,
        [
            [
                index,
                *(getattr(each, name) for name in _COUNTS),
                [list(r) for r in each.undecodable],
                [list(r) for r in each.expired],
                each.error,
            ]
            for index, each in sorted(progress.partitions.items())
        ],
    ]
    packed = zlib.compress(json.dumps(content, separators=(",", ":")).encode(), 9)
    return base64.urlsafe_b64encode(packed).rstrip(b"=").decode()


def from_cursor(text: str, query: str) -> SearchProgress:
    """The state of a search with this query.

    Raises:
        CursorError: the text is damaged, or from a search with another query.
    """
    try:
        content = json.loads(_unpacked(text))
        version, of_query, started_ms, rows = content
        if version != _VERSION or len(rows) > PARTITIONS_MAX:
            raise CursorError("the cursor is of another version of this page: search again")
        partitions = {_number(row[0]): _progress(row[1:]) for row in rows}
        progress = SearchProgress(str(of_query), _number(started_ms), partitions)
    except (ValueError, TypeError, IndexError, zlib.error, RecursionError):
        raise CursorError("the cursor is damaged: begin the search again") from None
    if progress.query != query:
        raise CursorError("the cursor belongs to another search: begin this one without it")
    return progress


def _unpacked(text: str) -> bytes:
    packed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    unpacker = zlib.decompressobj()
    content = unpacker.decompress(packed, _CURSOR_BYTES_MAX)
    if unpacker.unconsumed_tail:
        raise ValueError
    return content


def _progress(row: list[Any]) -> PartitionProgress:
    *counts, undecodable, expired, error = row
    values = {name: _number(each) for name, each in zip(_COUNTS, counts, strict=True)}
    if not values["start"] <= values["position"]:
        raise ValueError
    return PartitionProgress(
        **values,
        undecodable=_ranges(undecodable),
        expired=_ranges(expired),
        error=str(error),
    )


def _ranges(rows: list[Any]) -> tuple[UnsearchedRange, ...]:
    found = [UnsearchedRange(_number(start), _number(end), str(why)) for start, end, why in rows]
    if len(found) > _RANGES_MAX or any(each.end < each.start for each in found):
        raise ValueError
    return tuple(found)


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= OFFSET_MAX:
        raise ValueError
    return value
