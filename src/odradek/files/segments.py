"""The batches and records of a `.log` file."""

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

# Fewer bytes at the end of a file are ignored, as by Kafka's FileLogInputStream.
_BEGINNING_BYTES: Final = MAGIC_AT + 1


class FileFormatError(OdradekError):
    """A file does not have the content its name stands for. Names the file, position and rule."""


class FileBatch(NamedTuple):
    """One whole batch of a file, with its position."""

    position: int
    header: BatchHeader
    data: bytes

    @property
    def is_valid(self) -> bool:
        """Whether the checksum is right."""
        return self.header.size_bytes >= HEADER_BYTES and has_valid_crc(
            memoryview(self.data), 0, self.header
        )

    def records(self) -> Iterator[Record]:
        """Decode its records.

        Raises:
            ApiError: they are damaged.
        """
        return iter_records(self.data)


def batches(
    path: str | Path, *, start: int = 0, bytes_max: int | None = None
) -> Iterator[FileBatch]:
    """Every whole batch of a file from `start` on, or of its first `bytes_max` bytes.

    Raises:
        FileFormatError: the bytes are not a batch, or one of a format before v2.
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
                return  # truncated while it is read
            size = _checked_size(beginning, path)
            if position + size > end:
                return
            _check_format(beginning, size, path, position)
            data = os.pread(file.fileno(), size, position)
            if len(data) < size:
                return
            yield FileBatch(position, read_header(data), data)
            position += size


def _checked_size(beginning: bytes, path: str | Path) -> int:
    size = size_at(beginning, 0)
    length = size - OVERHEAD_BYTES
    if length < LENGTH_MIN:
        raise FileFormatError(
            f"Found record size {length} smaller than minimum record overhead ({LENGTH_MIN}) "
            f"in file {path}."
        )
    return size


def _check_format(beginning: bytes, size: int, path: str | Path, position: int) -> None:
    magic = beginning[MAGIC_AT]
    if magic != MAGIC:
        raise FileFormatError(
            f"{path}: message format v{magic} at position {position}; only v{MAGIC} is supported, "
            "which Kafka has written since 0.11"
        )
    if size < HEADER_BYTES:
        raise FileFormatError(
            f"{path}: batch of {size} bytes at position {position}; a header has {HEADER_BYTES}"
        )


def base_offset_of(path: str | Path) -> int:
    """The base offset in the name of a segment's file.

    Raises:
        FileFormatError: the name is not an offset.
    """
    stem = Path(path).name.partition(".")[0]
    if not (stem.isascii() and stem.isdigit()):
        raise FileFormatError(f'For input string: "{stem}"')
    return int(stem)
