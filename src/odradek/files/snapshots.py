"""A `.snapshot` file: producer state of a partition at an offset."""

from pathlib import Path
from typing import NamedTuple

from odradek.files.segments import FileFormatError
from odradek.log.producer_state import CorruptSnapshotError, snapshot_entries
from odradek.record.batch import NO_SEQUENCE, SEQUENCE_MAX


class ProducerRow(NamedTuple):
    """One producer id: its last batch, and its open transaction if there is one."""

    producer_id: int
    producer_epoch: int
    last_sequence: int  # NO_SEQUENCE: no batch in this epoch
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    transaction_first_offset: int  # -1: no transaction is open

    @property
    def first_sequence(self) -> int:
        """The sequence of the first record of its last batch."""
        if self.last_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MAX


def producers(path: str | Path) -> list[ProducerRow]:
    """All producer ids of a snapshot.

    Raises:
        FileFormatError: the snapshot is damaged.
        OSError: the file cannot be read.
    """
    try:
        return [ProducerRow._make(entry) for entry in snapshot_entries(Path(path).read_bytes())]
    except CorruptSnapshotError as error:
        raise FileFormatError(f"{path}: {error}") from None
