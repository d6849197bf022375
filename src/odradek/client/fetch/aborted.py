"""Which fetched batches have no records for a reader: control batches and aborted ones. Pure."""

from collections.abc import Iterable

from odradek.record.batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from odradek.record.control import ControlType, read_marker
from odradek.wire.messages.fetch import AbortedTransaction


class AbortedBatches:
    """The aborted transactions of one Fetch response, by producer id and first offset.

    A transaction lasts until its marker. With read_uncommitted the response names none.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._waiting = sorted(
            ((each.first_offset, each.producer_id) for each in aborted), reverse=True
        )
        self._producers: set[int] = set()

    def skips(self, header: BatchHeader, view: memoryview, position: int) -> bool:
        """Whether a batch is skipped; the batches are passed in the order of their offsets."""
        while self._waiting and self._waiting[-1][0] <= header.last_offset:
            self._producers.add(self._waiting.pop()[1])
        if header.attributes & CONTROL_BIT:
            if header.producer_id in self._producers:
                marker = read_marker(view[position : position + header.size_bytes])
                if marker is not None and marker.type is ControlType.ABORT:
                    self._producers.discard(header.producer_id)
            return True
        return header.attributes & TRANSACTIONAL_BIT != 0 and header.producer_id in self._producers
