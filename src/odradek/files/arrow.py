"""Segments as Arrow tables, by the client's decoder. Needs the extra `arrow`.

    from odradek.files.arrow import read_table

    table = read_table("data/orders-0", columns=["key", "value", "offset"])

The columns are those of `odradek.client.arrow.decode`. `committed` leaves out aborted transactions,
by the transaction indexes beside the logs; records of open transactions are included.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

from odradek.client.arrow.decode import ALL_COLUMNS, Layout, PartitionDecoder
from odradek.files.indexes import aborted_transactions
from odradek.files.segments import FileFormatError, base_offset_of, batches
from odradek.log.directories import parse_name
from odradek.log.index.transactions import AbortedTransaction as IndexEntry
from odradek.log.segment import LOG, TRANSACTION_INDEX
from odradek.model.partition import TopicPartition
from odradek.wire.messages.fetch import AbortedTransaction

# How much is read and decoded at a time.
_CHUNK_BYTES: Final = 8 << 20


def read_table(
    path: str | Path, *, columns: Sequence[str] = ALL_COLUMNS, committed: bool = False
) -> pa.Table:
    """A partition's directory, or one of its segments, as one table.

    Raises:
        FileFormatError, ApiError: a segment is damaged, or the directory is not a partition's.
        OSError: a file cannot be read.
    """
    layout = Layout(columns)
    return pa.Table.from_batches(
        list(record_batches(path, columns=columns, committed=committed)), schema=layout.schema
    )


def record_batches(
    path: str | Path, *, columns: Sequence[str] = ALL_COLUMNS, committed: bool = False
) -> Iterator[pa.RecordBatch]:
    """The table in pieces, for partitions larger than memory.

    Raises:
        FileFormatError, ApiError: a segment is damaged, or the directory is not a partition's.
        OSError: a file cannot be read.
    """
    path = Path(path)
    logs = [path] if path.suffix == LOG else sorted(path.glob(f"*{LOG}"))
    directory = path.parent if path.suffix == LOG else path
    decoder = PartitionDecoder(_partition_of(directory), Layout(columns), start=0)
    aborted = _aborted(directory) if committed else []
    for log in logs:
        decoder.next_offset = max(decoder.next_offset, base_offset_of(log))
        for first_offset, chunk in _chunks(log):
            metadata = [
                AbortedTransaction(producer_id=entry.producer_id, first_offset=entry.first_offset)
                for entry in aborted
                if entry.last_offset >= first_offset
            ]
            yield from decoder.decode(chunk, metadata)


def _partition_of(directory: Path) -> TopicPartition:
    found = parse_name(directory.absolute().name)
    if found is None:
        raise FileFormatError(f"{directory} does not have the name of a partition: TOPIC-NUMBER")
    return found.partition


def _aborted(directory: Path) -> list[IndexEntry]:
    found = [
        entry
        for index in sorted(directory.glob(f"*{TRANSACTION_INDEX}"))
        for _, entry in aborted_transactions(index)
    ]
    return sorted(found, key=lambda entry: entry.first_offset)


def _chunks(log: Path) -> Iterator[tuple[int, bytes]]:
    """Many whole batches at a time, with the base offset of the first one."""
    pieces: list[bytes] = []
    size, first_offset = 0, -1
    for batch in batches(log):
        if first_offset < 0:
            first_offset = batch.header.base_offset
        pieces.append(batch.data)
        size += len(batch.data)
        if size >= _CHUNK_BYTES:
            yield first_offset, b"".join(pieces)
            pieces, size, first_offset = [], 0, -1
    if pieces:
        yield first_offset, b"".join(pieces)
