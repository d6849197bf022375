"""What a connection's producers were refused for the moment, partition by partition.

An idempotent producer has several batches of a partition under way. The first is refused because
too few replicas are in sync, or because this broker does not lead yet; the cause goes away; the
second now has a gap in front of it. OUT_OF_ORDER_SEQUENCE_NUMBER would be true, and is what Apache
Kafka answers, but librdkafka then raises its producer's epoch (up to 2.16), and sends again under
the new one what it has not seen acknowledged in any partition: what was appended before is in the
log twice. So a batch behind such a gap gets what the first one got, and the producer sends both
again in their order.
"""

from typing import Final

from odradek.model.errors import ErrorCode

# Longer than any client waits before it sends the first batch again (retry.backoff.max.ms).
REMEMBERED_MS: Final = 10_000
PARTITIONS_MAX: Final = 10_000

Place = tuple[str, int]  # topic, partition


class ProduceRefusals:
    """Of one connection."""

    __slots__ = ("_refused",)

    def __init__(self) -> None:
        self._refused: dict[Place, tuple[ErrorCode, int]] = {}

    def note(self, place: Place, error: ErrorCode, now_ms: int) -> None:
        """A batch was refused before anybody looked at its sequence; monotonic time."""
        if len(self._refused) >= PARTITIONS_MAX:
            self._refused.clear()
        self._refused[place] = (error, now_ms)

    def appended(self, place: Place) -> None:
        """A batch was appended: the gap is closed, or there was none."""
        if self._refused:
            self._refused.pop(place, None)

    def behind(self, place: Place, now_ms: int) -> ErrorCode | None:
        """What a batch with a gap in front of it is to be answered; None: that it has one."""
        error, noted_ms = self._refused.get(place, (None, 0))
        return error if now_ms - noted_ms < REMEMBERED_MS else None
