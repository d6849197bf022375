"""Kafka's default partitioner for a whole column.

A row with a key goes to murmur2(key) % partitions, as in all clients, so the records of a key keep
their order. Rows without a key fill one partition up to `batch_bytes`, then the next one (KIP-480).
A row with a `partition` goes there.
"""

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from odradek.client.arrow.kernel import Kernel, kernel
from odradek.model.errors import OdradekError

_POSITIVE: Final = 0x7FFFFFFF
_RECORD_OVERHEAD_BYTES: Final = 16


class PartitionError(OdradekError):
    """A row has a `partition` that the topic does not have."""


def murmur2(keys: pa.Array, *, using: Kernel | None = None) -> list[int]:
    """Kafka's hash of each key, unsigned; a null is hashed as no bytes."""
    return _hashes(keys, using or kernel()).to_pylist()  # type: ignore[no-any-return]


def partition_rows(
    table: pa.Table,
    partitions: int,
    *,
    first_partition: int,
    batch_bytes: int,
    using: Kernel | None = None,
) -> pa.Array:
    """The partition of each row, int32. Rows without a key begin at `first_partition`.

    `table` has the columns `key` and `value` (binary) and optionally `partition` (int32).

    Raises:
        PartitionError: a row's `partition` is negative, or not below `partitions`.
    """
    chosen = pa.nulls(table.num_rows, pa.int32())
    if "partition" in table.column_names:
        chosen = flat(table.column("partition")).cast(pa.int32())
        wrong = pc.or_(pc.less(chosen, 0), pc.greater_equal(chosen, partitions))
        if pc.any(wrong).as_py():
            row = pc.index(wrong, True).as_py()
            raise PartitionError(
                f"row {row} names partition {chosen[row].as_py()}; the topic has {partitions}"
            )
    if chosen.null_count and "key" in table.column_names:
        keys = flat(table.column("key"))
        if keys.null_count < len(keys):
            positive = pc.bit_wise_and(_hashes(keys, using or kernel()), _POSITIVE)
            hashed = _modulo(positive.cast(pa.int32()), partitions)
            hashed = pc.if_else(pc.is_valid(keys), hashed, pa.scalar(None, pa.int32()))
            chosen = pc.coalesce(chosen, hashed)
    if chosen.null_count:
        chosen = pc.coalesce(
            chosen, _sticky(table, pc.is_null(chosen), partitions, first_partition, batch_bytes)
        )
    return chosen


def flat(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _hashes(keys: pa.Array, using: Kernel) -> pa.Array:
    if keys.offset or keys.null_count:
        keys = pa.concat_arrays([keys.fill_null(b""), pa.array([b""], keys.type)])[:-1]
    _, offsets, data = keys.buffers()
    view = memoryview(offsets)[: (len(keys) + 1) * 4] if offsets else memoryview(bytes(4))
    hashed: Any = using.murmur2(view, data if data is not None else b"")
    return pa.Array.from_buffers(pa.uint32(), len(keys), [None, pa.py_buffer(hashed)])


def _modulo(numbers: pa.Array, partitions: int) -> pa.Array:
    whole = pc.multiply(pc.divide(numbers, partitions), partitions)
    return pc.subtract(numbers, whole).cast(pa.int32())


def _sticky(
    table: pa.Table, rows: pa.Array, partitions: int, first_partition: int, batch_bytes: int
) -> pa.Array:
    if partitions == 1:
        return pa.repeat(pa.scalar(0, pa.int32()), table.num_rows)
    size = pa.repeat(pa.scalar(_RECORD_OVERHEAD_BYTES, pa.int64()), table.num_rows)
    if "value" in table.column_names:
        values = pc.binary_length(flat(table.column("value"))).cast(pa.int64())
        size = pc.add(size, pc.fill_null(values, 0))
    size = pc.if_else(rows, size, 0)
    run = pc.divide(pc.subtract(pc.cumulative_sum(size), size), batch_bytes)
    return _modulo(pc.add(run, first_partition), partitions)
