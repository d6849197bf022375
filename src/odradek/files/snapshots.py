"""A `.snapshot` file: what a partition knew of each producer at an offset."""

from pathlib import Path
from typing import NamedTuple

from odradek.files.segments import FileError
from odradek.log.producer_state import CorruptSnapshotError, snapshot_entries
from odradek.record.batch import NO_SEQUENCE, SEQUENCE_MAX


class ProducerRow(NamedTuple):
    """One producer: its last batch, and its open transaction if it has one."""

    producer_id: int
    producer_epoch: int
    last_sequence: int  # NO_SEQUENCE: it has written nothing in its epoch
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    transaction_first_offset: int  # -1: none is open

    @property
    def first_sequence(self) -> int:
        """The sequence of the first record of its last batch."""
        if self.last_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MAX


def producers(path: str | Path) -> list[ProducerRow]:
    """Every producer of a snapshot.

    Raises:
        FileError: it is damaged.
        OSError: the file cannot be read.
    """
    try:
        return [ProducerRow._make(entry) for entry in snapshot_entries(Path(path).read_bytes())]
    except CorruptSnapshotError as error:
        raise FileError(f"{path}: {error}") from None
