"""What holds between a log's batches and everything that was derived from them.

`odradek.log.log_state.check` looks at what is in memory; this reads the files.
"""

from odradek.log.index.transactions import AbortedTransaction
from odradek.log.log_state import LogState
from odradek.log.producer_replay import note_producer
from odradek.log.producer_state import NO_OFFSET, ProducerState
from odradek.log.segment import Segment
from odradek.model.invariants import InvariantError
from odradek.record.batch import BatchHeader


def check_content(log: LogState) -> None:
    """Read all batches, and compare them with the log's end, indexes and producer state.

    Raises:
        InvariantError: two batches have one offset; an aborted transaction is not in the
            transaction index; or a producer's state is not that of its batches.
        StorageError: a read failed.
    """
    found = _Replayed()
    for segment in log.segments:
        found.read(log, segment)
    if found.next_offset > log.leo:
        raise InvariantError(
            f"{log.partition}: the batches end at {found.next_offset}, the LEO is {log.leo}"
        )
    _compare_producers(log, found.producers)


class _Replayed:
    """What the batches show, from the first segment on."""

    def __init__(self) -> None:
        self.next_offset = 0
        self.producers = ProducerState()
        self.aborted: list[AbortedTransaction] = []

    def read(self, log: LogState, segment: Segment) -> None:
        """Read the next segment, and compare it with its transaction index."""
        self.aborted = []
        if self.next_offset > segment.base_offset:
            raise InvariantError(
                f"{log.partition}: segment {segment.base_offset} begins below {self.next_offset}, "
                f"the end of the one before"
            )
        for position, header in segment.walk(0):
            if header.base_offset < max(self.next_offset, segment.base_offset):
                raise InvariantError(
                    f"{log.partition}: offset {header.base_offset} is there twice: a batch before "
                    f"it in segment {segment.base_offset} ends at {self.next_offset}"
                )
            self.next_offset = header.next_offset
            self._note(segment, position, header)
        indexed = {(each.producer_id, each.last_offset) for each in segment.aborted()}
        missing = {(each.producer_id, each.last_offset) for each in self.aborted} - indexed
        if missing:
            raise InvariantError(
                f"{log.partition}: the transaction index of segment {segment.base_offset} lacks "
                f"the aborted transactions {sorted(missing)} (producer id, offset of the marker)"
            )

    def _note(self, segment: Segment, position: int, header: BatchHeader) -> None:
        if header.producer_id >= 0:
            batch = segment.read(position, header.size_bytes, wait=True)
            note_producer(self.producers, self, batch, header, header.base_offset)

    def add_aborted(self, transaction: AbortedTransaction) -> None:
        """Take the place of a segment's transaction index."""
        self.aborted.append(transaction)


def _compare_producers(log: LogState, shown: ProducerState) -> None:
    """Each producer with state in both: expired ones are missing in one, deleted in the other."""
    known = {producer.producer_id: producer for producer in log.producers.active_producers()}
    for found in shown.active_producers():
        producer = known.get(found.producer_id)
        if producer is None:
            is_open = found.transaction_first_offset != NO_OFFSET
            if is_open:
                raise InvariantError(
                    f"{log.partition}: the transaction of producer {found.producer_id} at "
                    f"{found.transaction_first_offset} is not in the producer state"
                )
            continue
        parts = (
            ("epoch", producer.producer_epoch, found.producer_epoch),
            ("last sequence", producer.last_sequence, found.last_sequence),
            ("transaction", producer.transaction_first_offset, found.transaction_first_offset),
        )
        for name, kept, read in parts:
            begins_before = name == "transaction" and NO_OFFSET < kept < log.segments[0].base_offset
            if kept != read and not begins_before:
                raise InvariantError(
                    f"{log.partition}: producer {found.producer_id} has {name} {kept} in the "
                    f"producer state, and {read} in the log"
                )
