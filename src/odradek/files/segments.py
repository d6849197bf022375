"""A `.log` file: its batches, and the records in them."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from odradek.model.errors import OdradekError
from odradek.record.batch import (
    HEADER_BYTES,
    LENGTH_MIN,
    MAGIC,
    MAGIC_AT,
    OVERHEAD_BYTES,
    BatchHeader,
    has_valid_crc,
    read_header,
    size_at,
)
from odradek.record.records import Record, iter_records

# As Kafka's reader: what is shorter is no batch, not even the beginning of one.
_BEGINNING_BYTES: Final = MAGIC_AT + 1


class FileError(OdradekError):
    """A file is not what its name says. Names the file, the place and the rule."""


class Batch(NamedTuple):
    """One batch, all of it."""

    position: int
    header: BatchHeader
    data: bytes

    @property
    def is_valid(self) -> bool:
        """Whether the checksum is that of the bytes."""
        return self.header.size_bytes >= HEADER_BYTES and has_valid_crc(
            memoryview(self.data), 0, self.header
        )

    def records(self) -> Iterator[Record]:
        """Its records.

        Raises:
            ApiError: they are damaged.
        """
        return iter_records(self.data)


def batches(path: str | Path, *, start: int = 0, bytes_max: int | None = None) -> Iterator[Batch]:
    """Every whole batch of a file from a position on, or of its first `bytes_max` bytes.

    Raises:
        FileError: where a batch should be is none, or one of a format before v2.
        OSError: the file cannot be read.
    """
    with Path(path).open("rb") as file:
        end = os.fstat(file.fileno()).st_size
        if bytes_max is not None:
            end = min(end, bytes_max)
        position = start
        while end - position > _BEGINNING_BYTES:
            beginning = os.pread(file.fileno(), HEADER_BYTES, position)
            if len(beginning) <= _BEGINNING_BYTES:
                return  # it became shorter while we read
            size = _checked_size(beginning, path)
            if position + size > end:
                return
            _check_format(beginning, size, path, position)
            data = os.pread(file.fileno(), size, position)
            if len(data) < size:
                return
            yield Batch(position, read_header(data), data)
            position += size


def _checked_size(beginning: bytes, path: str | Path) -> int:
    size = size_at(beginning, 0)
    length = size - OVERHEAD_BYTES
    if length < LENGTH_MIN:
        raise FileError(
            f"Found record size {length} smaller than minimum record overhead ({LENGTH_MIN}) "
            f"in file {path}."
        )
    return size


def _check_format(beginning: bytes, size: int, path: str | Path, position: int) -> None:
    magic = beginning[MAGIC_AT]
    if magic != MAGIC:
        raise FileError(
            f"{path}: message format v{magic} at position {position}; only v{MAGIC} is read, "
            "which Kafka has written since 0.11"
        )
    if size < HEADER_BYTES:
        raise FileError(
            f"{path}: batch of {size} bytes at position {position}; a header has {HEADER_BYTES}"
        )


def base_offset_of(path: str | Path) -> int:
    """The base offset in the name of a segment's file.

    Raises:
        FileError: there is none.
    """
    stem = Path(path).name.partition(".")[0]
    if not (stem.isascii() and stem.isdigit()):
        raise FileError(f'For input string: "{stem}"')
    return int(stem)
