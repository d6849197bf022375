"""The three indexes of a segment: `.index`, `.timeindex`, `.txnindex`, as rows.

A running broker of Apache Kafka preallocates the indexes of the active segment, with zeros after
the last entry; those are rows here, too, because only the reader can tell them from entries.
"""

from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from odradek.files.segments import FileFormatError, base_offset_of
from odradek.log.index.offsets import ENTRY_BYTES as OFFSET_ENTRY_BYTES
from odradek.log.index.times import ENTRY_BYTES as TIME_ENTRY_BYTES
from odradek.log.index.transactions import ENTRY_BYTES as TRANSACTION_ENTRY_BYTES
from odradek.log.index.transactions import AbortedTransaction

_OFFSET_ENTRY: Final = Struct(">ii")
_TIME_ENTRY: Final = Struct(">qi")
_TRANSACTION_ENTRY: Final = Struct(">hqqqq")


class OffsetEntry(NamedTuple):
    """The last offset (absolute) of the batch at a position."""

    offset: int
    position: int


class TimeEntry(NamedTuple):
    """The largest timestamp up to an offset (absolute)."""

    timestamp: int
    offset: int


def offset_entries(path: str | Path) -> list[OffsetEntry]:
    """The entries of an offset index, without an incomplete one at the end.

    Raises:
        FileFormatError: the name has no base offset.
        OSError: the file cannot be read.
    """
    base_offset = base_offset_of(path)
    return [
        OffsetEntry(base_offset + relative, position)
        for relative, position in _OFFSET_ENTRY.iter_unpack(_whole(path, OFFSET_ENTRY_BYTES))
    ]


def time_entries(path: str | Path) -> list[TimeEntry]:
    """The entries of a time index, without an incomplete one at the end.

    Raises:
        FileFormatError: the name has no base offset.
        OSError: the file cannot be read.
    """
    base_offset = base_offset_of(path)
    return [
        TimeEntry(timestamp, base_offset + relative)
        for timestamp, relative in _TIME_ENTRY.iter_unpack(_whole(path, TIME_ENTRY_BYTES))
    ]


def aborted_transactions(path: str | Path) -> Iterator[tuple[int, AbortedTransaction]]:
    """The entries of a transaction index, each with its version.

    Raises:
        OSError: the file cannot be read.
    """
    for version, *fields in _TRANSACTION_ENTRY.iter_unpack(_whole(path, TRANSACTION_ENTRY_BYTES)):
        yield version, AbortedTransaction._make(fields)


def check_sanity(path: str | Path) -> None:
    """Check an index as a broker does at start, with Kafka's messages.

    Raises:
        FileFormatError: the index has to be rebuilt; the message says why.
        OSError: the file cannot be read.
    """
    size = Path(path).stat().st_size
    is_time = Path(path).suffix == ".timeindex"
    entry_bytes = TIME_ENTRY_BYTES if is_time else OFFSET_ENTRY_BYTES
    kind, absolute = "Time index" if is_time else "Index", Path(path).absolute()
    if size % entry_bytes:
        raise FileFormatError(
            f"{kind} file {absolute} is corrupt, found {size} bytes which is neither positive "
            f"nor a multiple of {entry_bytes}"
        )
    base_offset = base_offset_of(path)
    if is_time:
        times = time_entries(path)
        if not times:
            return
        if len(times) > 1 and times[-1].timestamp < times[0].timestamp:
            raise FileFormatError(
                f"Corrupt time index found, time index file ({absolute}) has non-zero size but "
                f"the last timestamp is {times[-1].timestamp} which is less than the first "
                f"timestamp {times[0].timestamp}"
            )
        last_offset = times[-1].offset
    else:
        entries = offset_entries(path)
        if not entries:
            return
        last_offset = entries[-1].offset
    if last_offset < base_offset:
        raise FileFormatError(
            f"Corrupt {kind.lower()} found, {kind.lower()} file ({absolute}) has non-zero size "
            f"but the last offset is {last_offset} which is less than the base offset "
            f"{base_offset}."
        )


def _whole(path: str | Path, entry_bytes: int) -> bytes:
    data = Path(path).read_bytes()
    return data[: len(data) - len(data) % entry_bytes]
