"""Arrow rows of one partition to record batches for Produce.

Columns: `key`, `value` (anything that casts to binary), `timestamp` (Arrow timestamps, or integers
in milliseconds), `headers` (list<struct<key, value>>). Missing columns are null, or the current
time. A batch ends before it would exceed `batch_bytes`; a larger record gets a batch of its own,
and a record above `request_bytes_max` is refused.
"""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from odradek.client.arrow.kernel import BinaryInput, HeadersInput, Kernel, kernel
from odradek.client.arrow.partition import flat
from odradek.client.producer.settings import ProducerSettings
from odradek.model.clock import WallMs
from odradek.model.errors import ApiError, ErrorCode, OdradekError
from odradek.record.batch import (
    HEADER_BYTES,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Bytes,
)
from odradek.record.compression import compress

# Upper bound of a record's lengths, deltas and attributes.
_RECORD_OVERHEAD_BYTES: Final = 21
# Rows that go to the kernel at once; the encoded records stay below Arrow's 2 GiB.
_KERNEL_BYTES: Final = 64 << 20


class ColumnError(OdradekError):
    """A column has a type that records cannot hold."""


class EncodedRecords(NamedTuple):
    """The records of a batch, compressed, and its header.

    Length, checksum, producer id, epoch and sequence number are still to be set (`assemble`).
    """

    header: BatchHeader
    records: Bytes


def normalized(table: pa.Table, *, wall_ms: WallMs) -> pa.Table:
    """The columns with the types that `encode_partition` requires.

    Raises:
        ColumnError: a column cannot be cast; names it, its type and the required type.
    """
    made = {}
    for name in ("key", "value"):
        if name in table.column_names:
            made[name] = _cast(name, table.column(name), pa.binary())
    if "timestamp" in table.column_names:
        column = table.column("timestamp")
        if pa.types.is_timestamp(column.type):
            stamps = _cast("timestamp", column, pa.timestamp("ms", column.type.tz), safe=False)
            stamps = stamps.cast(pa.int64())
        else:
            stamps = _cast("timestamp", column, pa.int64())
        made["timestamp"] = pc.fill_null(stamps, wall_ms)
    else:
        made["timestamp"] = pa.repeat(pa.scalar(wall_ms, pa.int64()), table.num_rows)
    if "headers" in table.column_names:
        kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        made["headers"] = _cast("headers", table.column("headers"), kind)
    if "partition" in table.column_names:
        made["partition"] = _cast("partition", table.column("partition"), pa.int32())
    return pa.table(made)


def _cast(name: str, column: pa.ChunkedArray, kind: Any, *, safe: bool = True) -> pa.ChunkedArray:
    if column.type == kind:
        return column
    try:
        return column.cast(kind, safe=safe)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise ColumnError(
            f"column {name!r} is {column.type}; must be {kind} or cast to it ({error})"
        ) from None


def encode_partition(
    table: pa.Table, settings: ProducerSettings, *, using: Kernel | None = None
) -> Iterator[EncodedRecords]:
    """The batches of the rows, in order. `table` comes from `normalized`.

    Raises:
        ApiError: MESSAGE_TOO_LARGE, a record is above `max.request.size`; before the first batch.
    """
    sizes = record_sizes(table)
    _refuse_too_large(sizes, settings.request_bytes_max)
    return _encode(table, sizes, settings, using or kernel())


def _encode(
    table: pa.Table, sizes: pa.Array, settings: ProducerSettings, using: Kernel
) -> Iterator[EncodedRecords]:
    for start, count, bounds in _cuts(sizes, settings.batch_bytes):
        yield from _encode_rows(table.slice(start, count), bounds, settings, using)


def record_sizes(table: pa.Table) -> pa.Array:
    """An upper bound of each record's bytes, int64."""
    size = pa.repeat(pa.scalar(_RECORD_OVERHEAD_BYTES, pa.int64()), table.num_rows)
    for name in ("key", "value"):
        if name in table.column_names:
            length = pc.binary_length(flat(table.column(name))).cast(pa.int64())
            size = pc.add(size, pc.fill_null(length, 0))
    if "headers" in table.column_names:
        headers = flat(table.column("headers"))
        if headers.null_count < len(headers):
            size = pc.add(size, _headers_sizes(headers))
    return size


def _headers_sizes(headers: pa.Array) -> pa.Array:
    lists, entries = _lists(headers)
    each = pa.repeat(pa.scalar(10, pa.int64()), len(entries))
    for part in ("key", "value"):
        length = pc.binary_length(pc.struct_field(entries, part)).cast(pa.int64())
        each = pc.add(each, pc.fill_null(length, 0))
    upto = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(each)])
    bounds = upto.take(lists)
    return pc.subtract(bounds[1:], bounds[:-1])


def _cuts(sizes: pa.Array, batch_bytes: int) -> Iterator[tuple[int, int, list[int]]]:
    """Runs of rows for the kernel: first row, count, and the first row of each batch in the run."""
    upto = memoryview(pc.cumulative_sum(sizes).buffers()[1]).cast("B").cast("q")
    room = batch_bytes - HEADER_BYTES
    start, bounds, row, run_from = 0, [0], 0, 0
    while row < len(sizes):
        before = upto[row - 1] if row else 0
        # At least one record, then as many as fit.
        row = bisect_right(upto, before + room, lo=row + 1)
        bounds.append(row - start)
        if upto[row - 1] - run_from >= _KERNEL_BYTES or row == len(sizes):
            yield start, row - start, bounds
            start, bounds, run_from = row, [0], upto[row - 1]


def _refuse_too_large(sizes: pa.Array, bytes_max: int) -> None:
    large = pc.greater(sizes, bytes_max)
    if pc.any(large).as_py():
        row = pc.index(large, True).as_py()
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"row {row} is a record of {sizes[row].as_py()} bytes; max.request.size={bytes_max}",
        )


def _encode_rows(
    rows: pa.Table, bounds: list[int], settings: ProducerSettings, using: Kernel
) -> Iterator[EncodedRecords]:
    stamps = _whole(flat(rows.column("timestamp")))
    timestamps = memoryview(stamps.buffers()[1]).cast("B")
    body, ends = using.encode(
        _packed(bounds),
        timestamps,
        _input(rows, "key"),
        _input(rows, "value"),
        _headers_input(rows),
    )
    records = memoryview(body).cast("B")
    stamp = timestamps.cast("q")
    transactional = settings.transactional_id is not None
    start = 0
    for index, end in enumerate(memoryview(ends).cast("B").cast("q")):
        low, high = bounds[index], bounds[index + 1]
        header = BatchHeader(
            base_offset=0,
            length=0,
            crc=0,
            leader_epoch=NO_LEADER_EPOCH,
            magic=MAGIC,
            attributes=settings.codec | (TRANSACTIONAL_BIT if transactional else 0),
            last_offset_delta=high - low - 1,
            base_timestamp=stamp[low],
            max_timestamp=max(stamp[low:high], default=NO_TIMESTAMP),
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
            base_sequence=NO_SEQUENCE,
            record_count=high - low,
        )
        piece = records[start:end]
        data = piece if not settings.codec else compress(settings.codec, piece, settings.levels)
        yield EncodedRecords(header, data)
        start = end


def _packed(numbers: list[int]) -> Any:
    return pa.array(numbers, pa.int64()).buffers()[1]


def _whole(array: pa.Array) -> pa.Array:
    """The same array without an offset into its buffers."""
    if not array.offset:
        return array
    return array.take(pa.array(range(len(array)), pa.int32()))


def _input(rows: pa.Table, name: str) -> BinaryInput | None:
    if name not in rows.column_names:
        return None
    return _binary(flat(rows.column(name)))


def _binary(array: pa.Array) -> BinaryInput | None:
    if array.null_count == len(array):
        return None
    valid = None
    if array.null_count:
        valid = array.is_valid().cast(pa.uint8()).buffers()[1]
    _, offsets, data = array.buffers()
    first = array.offset * 4
    view = memoryview(offsets).cast("B")[first : first + (len(array) + 1) * 4]
    return view, data if data is not None else b"", valid


def _lists(headers: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The offsets of the lists (int32, one more than rows), and all entries; null is empty."""
    lengths = pc.fill_null(pc.list_value_length(headers), 0)
    bounds = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
    return bounds, headers.flatten()


def _headers_input(rows: pa.Table) -> HeadersInput | None:
    if "headers" not in rows.column_names:
        return None
    headers = flat(rows.column("headers"))
    if headers.null_count == len(headers):
        return None
    lists, entries = _lists(headers)
    keys = pc.struct_field(entries, "key").cast(pa.binary())
    if keys.null_count:
        raise ColumnError("column 'headers': a header without a key")
    empty: BinaryInput = (bytes(4), b"", None)
    key = _binary(keys) or empty
    value = _binary(pc.struct_field(entries, "value"))
    if value is None:
        count = len(entries)
        value = (bytes((count + 1) * 4), b"", bytes(count))
    return lists.buffers()[1], key, value
