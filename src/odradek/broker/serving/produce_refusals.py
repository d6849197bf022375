"""The temporary errors that the producers of a connection got, by partition.

1. An idempotent producer has two batches of a partition in flight. 2. The first is refused because
too few replicas are in sync, or this broker does not lead yet. 3. The cause disappears before the
second is handled, which now has a gap in its sequence. OUT_OF_ORDER_SEQUENCE_NUMBER would be true,
and Apache Kafka answers it; but librdkafka (up to 2.16) then raises its producer epoch and sends
unacknowledged batches of all partitions again under the new one: those that were appended are in
the log twice. Therefore a batch after such a gap gets the error of the first, and the producer
sends both again in order.

If the partition has no state of the producer, the second batch shows no gap: its sequence is taken
for one whose earlier batches were deleted, and the first batch could never be appended after it. So
the sequence of the refused batch is remembered, and what is above it is refused, too.
"""

from typing import Final, NamedTuple

from odradek.log.producer_state import ProducerState
from odradek.model.clock import MonotonicMs
from odradek.model.errors import ApiError, ErrorCode
from odradek.record.batch import MAGIC, BatchHeader, CorruptBatchError, read_header
from odradek.wire.schema import Buffer

# Longer than any client waits before it sends the first batch again (retry.backoff.max.ms).
REMEMBERED_MS: Final = 10_000
PARTITIONS_MAX: Final = 10_000

Place = tuple[str, int]  # topic, partition


class _Refusal(NamedTuple):
    """The latest temporary error in a partition, and the first batch that got one."""

    error: ErrorCode
    noted_ms: MonotonicMs
    producer_id: int  # -1: not known
    producer_epoch: int
    base_sequence: int


class ProduceRefusals:
    """The latest refusals of one connection."""

    __slots__ = ("remembered",)

    def __init__(self) -> None:
        # By partition. It is empty on most connections: then nothing need be looked up.
        self.remembered: dict[Place, _Refusal] = {}

    def note(
        self, place: Place, error: ErrorCode, monotonic_ms: MonotonicMs, batch: Buffer | None
    ) -> None:
        """A batch was refused before its sequence was checked. None: there was none."""
        if len(self.remembered) >= PARTITIONS_MAX:
            self.remembered.clear()
        producer_id, epoch, sequence = _producer_of(batch)
        earlier = self._recent(place, monotonic_ms)
        if earlier is not None and earlier[2:4] == (producer_id, epoch):
            sequence = min(sequence, earlier.base_sequence)
        self.remembered[place] = _Refusal(error, monotonic_ms, producer_id, epoch, sequence)

    def appended(self, place: Place, producer_id: int) -> None:
        """A batch was appended, so that its producer has no gap."""
        earlier = self.remembered.get(place)
        if earlier is not None and earlier.producer_id in (producer_id, -1):
            del self.remembered[place]

    def behind(self, place: Place, monotonic_ms: MonotonicMs) -> ErrorCode | None:
        """The error for a batch with a gap before it; None: no recent refusal explains the gap."""
        earlier = self._recent(place, monotonic_ms)
        return None if earlier is None else earlier.error

    def check(
        self,
        place: Place,
        header: BatchHeader,
        producers: ProducerState,
        monotonic_ms: MonotonicMs,
    ) -> None:
        """Check that a batch does not overtake a refused one of the same producer.

        Raises:
            ApiError: OUT_OF_ORDER_SEQUENCE_NUMBER.
        """
        earlier = self._recent(place, monotonic_ms)
        if (
            earlier is not None
            and 0 <= earlier.producer_id == header.producer_id
            and earlier.producer_epoch == header.producer_epoch
            and earlier.base_sequence < header.base_sequence
            and not producers.has_state(header.producer_id)
        ):
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} sends sequence {header.base_sequence}; its batch "
                f"from {earlier.base_sequence} on was refused before",
            )

    def _recent(self, place: Place, monotonic_ms: MonotonicMs) -> _Refusal | None:
        earlier = self.remembered.get(place)
        if earlier is None or monotonic_ms - earlier.noted_ms >= REMEMBERED_MS:
            return None
        return earlier


def _producer_of(batch: Buffer | None) -> tuple[int, int, int]:
    """The producer id, its epoch and the base sequence; -1, -1, -1 if they cannot be read."""
    try:
        header = read_header(b"" if batch is None else batch)
    except CorruptBatchError:
        return -1, -1, -1
    if header.magic != MAGIC:
        return -1, -1, -1
    return header.producer_id, header.producer_epoch, header.base_sequence
