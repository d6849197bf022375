"""The transaction index of a segment: the transactions whose abort marker lies in it.

    i16  version, 0
    i64  producer id
    i64  first offset of the transaction
    i64  last offset: that of the marker
    i64  last stable offset when the marker was written

A read_committed consumer gets with its batches the aborted transactions that reach into them,
and skips the batches of these producers up to their markers. To find them, the index of the
segment that is read is scanned, and those of later segments until one entry's last stable
offset says that nothing further can reach back: below it, everything had been decided.

Bytes to entries and back; the file belongs to the segment.
"""

from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

from odradek.model.errors import OdradekError

_ENTRY: Final = Struct(">hqqqq")
ENTRY_BYTES: Final = _ENTRY.size
_VERSION: Final = 0


class CorruptTransactionIndexError(OdradekError):
    """Bytes that are no transaction index: it has to be rebuilt from the segment."""


class AbortedTransaction(NamedTuple):
    """One transaction that a read_committed consumer skips."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int

    def encode(self) -> bytes:
        """The entry, as it is appended to the file."""
        return _ENTRY.pack(_VERSION, *self)


def decode(data: bytes | memoryview, *, base_offset: int = 0) -> list[AbortedTransaction]:
    """The entries of a file.

    Raises:
        CorruptTransactionIndexError: a part of an entry, another version, a transaction that
            ends before it began or before the segment (which starts at `base_offset`).
    """
    if len(data) % ENTRY_BYTES:
        raise CorruptTransactionIndexError(
            f"transaction index of {len(data)} bytes; entries have {ENTRY_BYTES}"
        )
    transactions = []
    for version, *fields in _ENTRY.iter_unpack(data):
        transaction = AbortedTransaction._make(fields)
        if version != _VERSION:
            raise CorruptTransactionIndexError(f"entry version {version}, not {_VERSION}")
        if not transaction.first_offset <= transaction.last_offset >= base_offset:
            raise CorruptTransactionIndexError(f"{transaction} in the segment {base_offset}")
        transactions.append(transaction)
    return transactions


def collect(
    transactions: Iterable[AbortedTransaction],
    *,
    fetch_offset: int,
    end_offset: int,
    into: list[AbortedTransaction],
) -> bool:
    """Add to `into` what reaches into [fetch_offset, end_offset).

    True if no later segment's index can add anything.
    """
    for transaction in transactions:
        if transaction.last_offset >= fetch_offset and transaction.first_offset < end_offset:
            into.append(transaction)
        if transaction.last_stable_offset >= end_offset:
            return True
    return False
