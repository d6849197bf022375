"""The transaction index of a segment: the aborted transactions with their marker in it.

    i16  version, 0
    i64  producer id
    i64  first offset of the transaction
    i64  last offset: that of the marker
    i64  last stable offset when the marker was written

With its batches a read_committed consumer gets the aborted transactions that overlap them, and
skips the batches of these producers up to their markers. To find them, the index of the segment
is scanned, and those of later segments until an entry's last stable offset shows that all
transactions below the end of the batches had ended.

This module converts between bytes and entries; the file belongs to the segment.
"""

from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

from odradek.model.errors import OdradekError

_ENTRY: Final = Struct(">hqqqq")
ENTRY_BYTES: Final = _ENTRY.size
_VERSION: Final = 0


class CorruptTransactionIndexError(OdradekError):
    """The bytes are not a transaction index: it has to be rebuilt from the segment."""


class AbortedTransaction(NamedTuple):
    """One transaction that a read_committed consumer skips (Kafka: `AbortedTxn`)."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int

    def encode(self) -> bytes:
        """The entry in file format."""
        return _ENTRY.pack(_VERSION, *self)


def decode(data: bytes | memoryview, *, base_offset: int = 0) -> list[AbortedTransaction]:
    """The entries of a file.

    Raises:
        CorruptTransactionIndexError: an incomplete entry, another version, a transaction that
            ends before it began, before the segment (which starts at `base_offset`), or not after
            the entry before. After a power failure the end of a file may be zeros: entries that
            end at offset 0, where no marker is, as it follows a record.
    """
    if len(data) % ENTRY_BYTES:
        raise CorruptTransactionIndexError(
            f"transaction index of {len(data)} bytes; entries have {ENTRY_BYTES}"
        )
    transactions = []
    before = max(base_offset - 1, 0)
    for version, *fields in _ENTRY.iter_unpack(data):
        transaction = AbortedTransaction._make(fields)
        if version != _VERSION:
            raise CorruptTransactionIndexError(f"entry version {version}, not {_VERSION}")
        if not transaction.first_offset <= transaction.last_offset > before:
            raise CorruptTransactionIndexError(
                f"{transaction} in the segment {base_offset}, behind {before}"
            )
        before = transaction.last_offset
        transactions.append(transaction)
    return transactions


def collect(
    transactions: Iterable[AbortedTransaction],
    *,
    fetch_offset: int,
    end_offset: int,
    into: list[AbortedTransaction],
) -> bool:
    """Add to `into` the transactions that overlap [fetch_offset, end_offset).

    Returns whether no index of a later segment can add any.
    """
    for transaction in transactions:
        if transaction.last_offset >= fetch_offset and transaction.first_offset < end_offset:
            into.append(transaction)
        if transaction.last_stable_offset >= end_offset:
            return True
    return False
