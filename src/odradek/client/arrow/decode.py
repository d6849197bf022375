"""Record batches to Arrow columns, without an object for each record.

Python checks each batch (checksum, control batch, aborted transaction, codec); a kernel decodes the
records of many batches at once (`odradek.client.arrow.kernel`). The columns:

    key, value      binary
    topic           string
    partition       int32
    offset          int64
    timestamp       timestamp[ms, UTC]; microseconds for Spark
    timestamp_type  int32: 0 CreateTime, 1 LogAppendTime
    headers         list<struct<key: string, value: binary>>, null where there are none

Only the requested columns are decoded, in the requested order. Control batches, aborted
transactions and gaps of compaction yield no rows, and the next offset skips them. A damaged batch
is refused with the message of `odradek.record`, topic, partition and offset. The client, Spark and
offline readers of log files use the same decoder.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

import pyarrow as pa

from odradek.client.arrow.kernel import (
    HEADERS,
    KEY,
    NO_APPEND_TIME,
    OFFSET,
    TIMESTAMP,
    VALUE,
    BinaryColumn,
    Columns,
    HeadersColumn,
    Kernel,
    kernel,
)
from odradek.client.fetch.aborted import AbortedBatches
from odradek.model.errors import ApiError, ErrorCode, OdradekError
from odradek.model.partition import TopicPartition
from odradek.record.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    OVERHEAD_BYTES,
    BatchHeader,
    iter_batches,
    whole_batches_end,
)
from odradek.record.compression import DECOMPRESSED_BYTES_MAX
from odradek.record.crc32c import crc32c
from odradek.record.records import InvalidRecordError, iter_records, records_bytes
from odradek.wire.messages.fetch import AbortedTransaction

COLUMNS: Final = (
    "key", "value", "topic", "partition", "offset", "timestamp", "timestamp_type",
)  # fmt: skip
ALL_COLUMNS: Final = (*COLUMNS, "headers")
# The decompressed bytes that go to the kernel at once.
BODY_BYTES: Final = 4 << 20

_ROW: Final = Struct("=6q")
_HEADER_TYPE: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])
_TYPES: Final = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp_type": pa.int32(),
    "timestampType": pa.int32(),
    "headers": pa.list_(_HEADER_TYPE),
}
_WANTED: Final = {
    "key": KEY, "value": VALUE, "headers": HEADERS, "timestamp": TIMESTAMP, "offset": OFFSET,
}  # fmt: skip


class UnknownColumnError(OdradekError):
    """A requested column does not exist."""


class Layout:
    """The requested columns, their order and Arrow types."""

    def __init__(self, columns: Sequence[str] = COLUMNS, *, timestamp_unit: str = "ms") -> None:
        for name in columns:
            if name not in _TYPES and name != "timestamp":
                raise UnknownColumnError(
                    f"column {name!r}: must be one of {', '.join(ALL_COLUMNS)}"
                )
        if len(set(columns)) != len(columns):
            raise UnknownColumnError(f"columns {', '.join(columns)}: one is named twice")
        self.timestamp = pa.timestamp(timestamp_unit, tz="UTC")
        self.columns = tuple(columns)
        self.schema = pa.schema([(name, _TYPES.get(name, self.timestamp)) for name in self.columns])
        self.wanted = sum(_WANTED.get(name, 0) for name in self.columns)


class _Piece(NamedTuple):
    """Batches in one buffer, ready for the kernel."""

    body: Any
    rows: bytearray  # `_ROW` for each batch
    positions: list[int]  # of each batch in the fetched bytes, for errors
    types: list[tuple[int, int]]  # (timestamp type, records) for each batch
    first_offset: int
    last_offset: int


class PartitionDecoder:
    """Decodes successive fetches of one partition, from offset `start` to before `end`.

    `next_offset` is the next fetch offset; it advances while the batches are taken.
    """

    def __init__(
        self,
        partition: TopicPartition,
        layout: Layout,
        *,
        start: int,
        end: int | None = None,
        check_crc: bool = True,
        using: Kernel | None = None,
    ) -> None:
        self.partition = partition
        self.next_offset = start
        self.end = end
        self._layout = layout
        self._check_crc = check_crc
        self._kernel = using or kernel()

    @property
    def is_done(self) -> bool:
        """Whether everything before `end` was decoded."""
        return self.end is not None and self.next_offset >= self.end

    def decode(
        self, records: Any, aborted: Iterable[AbortedTransaction] = ()
    ) -> Iterator[pa.RecordBatch]:
        """Decode one fetch to Arrow record batches, none of them empty.

        `aborted` comes from the Fetch response; leave it empty for read_uncommitted.

        Raises:
            ApiError: a batch is damaged; names partition and offset.
        """
        view = memoryview(records)
        if view.format != "B":
            view = view.cast("B")
        start = self.next_offset
        for piece in self._pieces(view, aborted):
            batch = self._columns(view, piece, start)
            self.next_offset = max(self.next_offset, piece.last_offset + 1)
            if batch.num_rows:
                yield batch
            if self.is_done:
                return
        self.next_offset = max(self.next_offset, self._seen)

    # ------------------------------------------------------------------- batch after batch

    def _pieces(self, view: memoryview, aborted: Iterable[AbortedTransaction]) -> Iterator[_Piece]:
        gathered = _CollectedBatches(view)
        skip = AbortedBatches(aborted)
        self._seen = self.next_offset
        try:
            for position, header in iter_batches(view):
                self._check(view, position, header)
                skipped = skip.skips(header, view, position)
                after = header.base_offset + header.last_offset_delta + 1
                if after > self.next_offset and not skipped and header.record_count:
                    if self.end is not None and header.base_offset >= self.end:
                        break
                    if gathered.is_full_for(header):
                        yield gathered.take()
                    gathered.add(position, header)
                self._seen = after
        except ApiError as error:
            if gathered.rows:
                yield gathered.take()  # batches before the damaged one are intact
            raise self._named(error, self._seen) from None
        if gathered.rows:
            yield gathered.take()
        if self._seen == self.next_offset and len(view) and whole_batches_end(view) == 0:
            raise ApiError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{self.partition}: the batch at offset {self.next_offset} is larger than the "
                f"{len(view)} bytes that were fetched of it",
            )

    def _check(self, view: memoryview, position: int, header: BatchHeader) -> None:
        end = position + OVERHEAD_BYTES + header.length
        if self._check_crc and crc32c(view[position + ATTRIBUTES_AT : end]) != header.crc:
            raise ApiError(
                ErrorCode.CORRUPT_MESSAGE,
                f"checksum {header.crc} of the batch of offsets {header.base_offset} to "
                f"{header.last_offset} is not that of its bytes",
            )
        if header.last_offset_delta < 0 or header.record_count < 0 or header.base_offset < 0:
            raise InvalidRecordError(
                f"batch at offset {header.base_offset}: {header.record_count} records, last "
                f"offset delta {header.last_offset_delta}"
            )

    def _named(self, error: ApiError, offset: int) -> ApiError:
        return ApiError(error.code, f"{self.partition} at offset {offset}: {error.message}")

    # ------------------------------------------------------------------------- to columns

    def _columns(self, view: memoryview, piece: _Piece, start: int) -> pa.RecordBatch:
        trims = piece.first_offset < start or (self.end is not None and
                                               piece.last_offset >= self.end)  # fmt: skip
        wanted = self._layout.wanted | (OFFSET if trims else 0)
        try:
            columns = Columns(*self._kernel.decode(piece.body, bytes(piece.rows), wanted))
        except ValueError as error:
            raise self._blame(view, piece, error) from None
        batch = self._batch(columns, piece)
        if not trims:
            return batch
        offsets = memoryview(columns.offsets).cast("B").cast("q")  # type: ignore[arg-type]
        low = bisect_left(offsets, start)
        high = len(offsets) if self.end is None else bisect_left(offsets, self.end)
        return batch.slice(low, max(high - low, 0))

    def _blame(self, view: memoryview, piece: _Piece, error: ValueError) -> ApiError:
        """The error of the damaged batch, from the record-by-record decoder."""
        for position in piece.positions:
            _, header = next(iter_batches(view, position))
            try:
                for _ in iter_records(view[position : position + header.size_bytes]):
                    pass
            except ApiError as found:
                return self._named(found, header.base_offset)
        return self._named(InvalidRecordError(str(error)), piece.first_offset)

    def _batch(self, columns: Columns, piece: _Piece) -> pa.RecordBatch:
        count = columns.rows
        arrays = []
        for name, field in zip(self._layout.columns, self._layout.schema, strict=True):
            match name:
                case "key":
                    arrays.append(_binary(columns.key, count))
                case "value":
                    arrays.append(_binary(columns.value, count))
                case "headers":
                    arrays.append(_headers(columns.headers, count))
                case "offset":
                    arrays.append(_numbers(pa.int64(), columns.offsets, count))
                case "timestamp":
                    arrays.append(self._timestamps(columns.timestamps, count, piece))
                case "topic":
                    arrays.append(pa.repeat(pa.scalar(self.partition.topic), count))
                case "partition":
                    number = pa.scalar(self.partition.partition, field.type)
                    arrays.append(pa.repeat(number, count))
                case _:
                    arrays.append(_runs(piece.types))
        if not arrays:
            # Rows without columns, for counting.
            return pa.RecordBatch.from_struct_array(pa.repeat(pa.scalar({}, pa.struct([])), count))
        return pa.RecordBatch.from_arrays(arrays, schema=self._layout.schema)

    def _timestamps(self, buffer: Any, count: int, piece: _Piece) -> pa.Array:
        stamps = _numbers(pa.timestamp("ms", tz="UTC"), buffer, count)
        if self._layout.timestamp == stamps.type:
            return stamps
        try:
            return stamps.cast(self._layout.timestamp)
        except pa.ArrowInvalid as error:
            raise self._named(
                InvalidRecordError(f"a timestamp beyond microseconds: {error}"), piece.first_offset
            ) from None


class _CollectedBatches:
    """Batches collected for one kernel call: as they were fetched, or decompressed and joined."""

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._clear()

    def _clear(self) -> None:
        self.rows = bytearray()
        self._positions: list[int] = []
        self._types: list[tuple[int, int]] = []
        self._bodies: list[bytes] = []  # of compressed batches
        self._body_bytes = 0
        self._first = self._last = 0

    def is_full_for(self, header: BatchHeader) -> bool:
        """Whether the collected batches must go to the kernel before this one is added."""
        if not self.rows:
            return False
        compressed = header.attributes & CODEC_MASK != 0
        return compressed != bool(self._bodies) or self._body_bytes >= BODY_BYTES

    def add(self, position: int, header: BatchHeader) -> None:
        """Add a batch.

        Raises:
            DecompressionError: it cannot be decompressed, or is too large.
        """
        if header.attributes & CODEC_MASK:
            whole = self._view[position : position + header.size_bytes]
            body = records_bytes(whole, header, DECOMPRESSED_BYTES_MAX)
            start, end = self._body_bytes, self._body_bytes + len(body)
            self._bodies.append(body)
        else:
            body = b""
            start, end = position + HEADER_BYTES, position + header.size_bytes
        stamped = header.attributes & LOG_APPEND_TIME_BIT != 0
        self.rows += _ROW.pack(
            start,
            end,
            header.record_count,
            header.base_offset,
            header.base_timestamp,
            header.max_timestamp if stamped else NO_APPEND_TIME,
        )
        if not self._positions:
            self._first = header.base_offset
        self._last = header.last_offset
        self._positions.append(position)
        self._types.append((int(stamped), header.record_count))
        self._body_bytes += len(body) if self._bodies else end - start

    def take(self) -> _Piece:
        """Return the collected batches and start empty."""
        body: Any = self._view
        if self._bodies:
            body = self._bodies[0] if len(self._bodies) == 1 else b"".join(self._bodies)
        piece = _Piece(body, self.rows, self._positions, self._types, self._first, self._last)
        self._clear()
        return piece


def _buffer(data: Any) -> Any:
    return data if data is None or isinstance(data, pa.Buffer) else pa.py_buffer(data)


def _numbers(kind: Any, data: Any, count: int) -> pa.Array:
    return pa.Array.from_buffers(kind, count, [None, _buffer(data)])


def _binary(column: BinaryColumn | None, count: int, kind: Any = None) -> pa.Array:
    assert column is not None
    offsets, data, validity, nulls = column
    return pa.Array.from_buffers(
        kind or pa.binary(), count, [_buffer(validity), _buffer(offsets), _buffer(data)], nulls
    )


def _headers(column: HeadersColumn | None, count: int) -> pa.Array:
    assert column is not None
    lists, validity, nulls, keys, values = column
    total = memoryview(lists).cast("B").cast("i")[count]
    entries = pa.StructArray.from_arrays(
        [_text(_binary(keys, total)), _binary(values, total)], fields=list(_HEADER_TYPE)
    )
    return pa.Array.from_buffers(
        _TYPES["headers"], count, [_buffer(validity), _buffer(lists)], nulls, children=[entries]
    )


def _text(raw: pa.Array) -> pa.Array:
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:  # Java decodes such bytes as U+FFFD too
        return pa.array([each.decode("utf-8", "replace") for each in raw.to_pylist()], pa.string())


def _runs(types: list[tuple[int, int]]) -> pa.Array:
    """The timestamp type of each record, from that of each batch."""
    runs: list[list[int]] = []
    for kind, count in types:
        if runs and runs[-1][0] == kind:
            runs[-1][1] += count
        else:
            runs.append([kind, count])
    arrays = [pa.repeat(pa.scalar(kind, pa.int32()), count) for kind, count in runs]
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
