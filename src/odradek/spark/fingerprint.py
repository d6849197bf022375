"""Fingerprints of rows, which tell whether a repeated task or batch has the rows that it had.

The fingerprint of rows is their number and a sum, modulo 2**64, of one number for each key,
value and topic: so it does not depend on the order of rows or on their batches, and fingerprints of
the tasks of a batch add up to that of the batch. numpy computes it
from a column's bytes in some nanoseconds a row: the number of a value is a mix of its length, its
first and its last 8 bytes, and the sum of all bytes is added. It detects another range of records
or another number of tasks; it is not collision-resistant against an attacker.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_COLUMNS: Final = ("key", "value", "topic")
_WORD: Final = 8
_MODULUS: Final = 1 << 64
# Odd constants (SplitMix64, Steele et al. 2014), and the order of the columns.
_GAMMA: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX: Final = np.uint64(0xBF58476D1CE4E5B9)
_SHIFT: Final = np.uint64(31)
_MASKS: Final = np.array([(1 << (8 * length)) - 1 for length in range(_WORD + 1)], dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The fingerprint of some rows; `digest` is the sum, below 2**64."""

    rows: int = 0
    digest: int = 0

    def __add__(self, other: "Fingerprint") -> "Fingerprint":
        return Fingerprint(self.rows + other.rows, (self.digest + other.digest) % _MODULUS)

    def __str__(self) -> str:
        return f"{self.rows} rows, {self.digest:016x}"


class Fingerprinted(Iterator[pa.RecordBatch]):
    """Passes batches on and fingerprints them."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._rows = 0
        self._sum = 0

    def __next__(self) -> pa.RecordBatch:
        batch = next(self._batches)
        self._rows += batch.num_rows
        for place, name in enumerate(_COLUMNS):
            if name in batch.schema.names:
                self._sum += (2 * place + 1) * _sum_of(batch.column(name))
        return batch

    @property
    def so_far(self) -> Fingerprint:
        """The fingerprint of the rows that were passed on so far."""
        return Fingerprint(self._rows, self._sum % _MODULUS)


def fingerprint(batches: Iterator[pa.RecordBatch]) -> Fingerprint:
    counted = Fingerprinted(batches)
    for _ in counted:
        pass
    return counted.so_far


def _sum_of(column: Any) -> int:
    """The sum of a column's numbers; null has a number of its own."""
    nulls = int(column.null_count)
    values = pc.cast(column.drop_null() if nulls else column, pa.large_binary())
    total = nulls * int(_GAMMA)
    if not len(values):
        return total
    _, offsets_buffer, data_buffer = values.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int64)[values.offset :][: len(values) + 1]
    data = np.frombuffer(data_buffer or b"", np.uint8)[offsets[0] : offsets[-1]]
    starts, lengths = offsets[:-1] - offsets[0], np.diff(offsets)
    # Padding, so that an 8-byte word can begin at every byte.
    padded = np.concatenate([data, np.zeros(_WORD, np.uint8)])
    words = np.ndarray((len(data) + 1,), "<u8", padded, strides=(1,))
    masks = _MASKS[np.minimum(lengths, _WORD)]
    heads = words[starts] & masks
    tails = words[np.maximum(starts + lengths - _WORD, starts)] & masks
    mixed = (heads ^ (tails * _GAMMA)) + lengths.astype(np.uint64) * _MIX
    mixed = (mixed ^ (mixed >> _SHIFT)) * _MIX
    total += int(mixed.sum(dtype=np.uint64))
    return total + int(data.sum(dtype=np.uint64)) * int(_GAMMA)
