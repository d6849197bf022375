"""The temporary errors that the producers of a connection got, by partition.

1. An idempotent producer has two batches of a partition in flight. 2. The first is refused because
too few replicas are in sync, or this broker does not lead yet. 3. The cause disappears before the
second is handled, which now has a gap in its sequence. OUT_OF_ORDER_SEQUENCE_NUMBER would be true,
and Apache Kafka answers it; but librdkafka (up to 2.16) then raises its producer epoch and sends
unacknowledged batches of all partitions again under the new one: those that were appended are in
the log twice. Therefore a batch after such a gap gets the error of the first, and the producer
sends both again in order.
"""

from typing import Final

from odradek.model.clock import MonotonicMs
from odradek.model.errors import ErrorCode

# Longer than any client waits before it sends the first batch again (retry.backoff.max.ms).
REMEMBERED_MS: Final = 10_000
PARTITIONS_MAX: Final = 10_000

Place = tuple[str, int]  # topic, partition


class ProduceRefusals:
    """The latest refusals of one connection."""

    __slots__ = ("remembered",)

    def __init__(self) -> None:
        # By partition. It is empty on most connections: then `appended` need not be called.
        self.remembered: dict[Place, tuple[ErrorCode, int]] = {}

    def note(self, place: Place, error: ErrorCode, monotonic_ms: MonotonicMs) -> None:
        """A batch was refused before its sequence was checked."""
        if len(self.remembered) >= PARTITIONS_MAX:
            self.remembered.clear()
        self.remembered[place] = (error, monotonic_ms)

    def appended(self, place: Place) -> None:
        """A batch was appended, so that there is no gap."""
        self.remembered.pop(place, None)

    def behind(self, place: Place, monotonic_ms: MonotonicMs) -> ErrorCode | None:
        """The error for a batch with a gap before it; None: no recent refusal explains the gap."""
        error, noted_ms = self.remembered.get(place, (None, 0))
        return error if monotonic_ms - noted_ms < REMEMBERED_MS else None
