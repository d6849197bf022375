"""A coordinator's state from its log: of each transactional id the last record there."""

from odradek.txn.records import decode_record
from odradek.txn.transaction import Transaction


class Replay:
    """The log read so far. Records are handed in in their order, one by one or in slices."""

    def __init__(self) -> None:
        self.transactions: dict[str, Transaction] = {}

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """The next record.

        Raises:
            InvalidRecordError: it is none; who reads on passes over it.
        """
        stored = decode_record(key, value)
        if stored is None:
            return
        if stored.transaction is None:
            self.transactions.pop(stored.transactional_id, None)
        else:
            self.transactions[stored.transactional_id] = stored.transaction
