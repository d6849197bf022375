"""The assigned partitions of a consumer with their positions (Java's SubscriptionState). Pure."""

from collections.abc import Iterable, Iterator
from typing import Final

from odradek.client.group.offsets import NO_LEADER_EPOCH, OffsetAndMetadata
from odradek.model.partition import TopicPartition

NO_OFFSET: Final = -1


class AssignedPartition:
    """The state of one assigned partition."""

    __slots__ = (
        "end_offset",
        "is_paused",
        "last_stable_offset",
        "leader_epoch",
        "log_start_offset",
        "needs_reset",
        "offset",
        "visit",
    )

    def __init__(self, visit: int) -> None:
        self.offset = NO_OFFSET  # of the next record; NO_OFFSET: not known yet
        self.leader_epoch = NO_LEADER_EPOCH  # of the record before the position
        self.needs_reset: int | None = None  # EARLIEST or LATEST of ListOffsets
        self.is_paused = False
        self.end_offset = NO_OFFSET  # the high watermark of the last response
        self.last_stable_offset = NO_OFFSET
        self.log_start_offset = NO_OFFSET
        # Changes with every seek: records fetched before the seek are dropped.
        self.visit = visit

    @property
    def has_position(self) -> bool:
        """Whether the next offset is known."""
        return self.offset >= 0


class SubscriptionState:
    """All assigned partitions, in the order of their assignment."""

    def __init__(self) -> None:
        self._assigned: dict[TopicPartition, AssignedPartition] = {}
        self._visits = 0

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Replace the assignment; partitions that stay keep their position."""
        wanted = dict.fromkeys(partitions)
        self._assigned = {
            partition: self._assigned.get(partition) or self._new() for partition in wanted
        }

    def _new(self) -> AssignedPartition:
        self._visits += 1
        return AssignedPartition(self._visits)

    def seek(
        self, partition: TopicPartition, offset: int, leader_epoch: int = NO_LEADER_EPOCH
    ) -> None:
        """Set the position; records of earlier fetches are dropped."""
        reading = self._assigned[partition]
        self._visits += 1
        reading.visit = self._visits
        reading.offset = offset
        reading.leader_epoch = leader_epoch
        reading.needs_reset = None

    def reset(self, partition: TopicPartition, timestamp: int) -> None:
        """Look up the offset of this timestamp before the next fetch."""
        reading = self._assigned[partition]
        self._visits += 1
        reading.visit = self._visits
        reading.offset = NO_OFFSET
        reading.leader_epoch = NO_LEADER_EPOCH
        reading.needs_reset = timestamp

    def get(self, partition: TopicPartition) -> AssignedPartition | None:
        """The state of a partition; None if it is not assigned."""
        return self._assigned.get(partition)

    def __getitem__(self, partition: TopicPartition) -> AssignedPartition:
        return self._assigned[partition]

    def __contains__(self, partition: object) -> bool:
        return partition in self._assigned

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(list(self._assigned))

    def __len__(self) -> int:
        return len(self._assigned)

    def fetchable(self) -> list[TopicPartition]:
        """Partitions that have a position and are not paused."""
        return [p for p, r in self._assigned.items() if r.has_position and not r.is_paused]

    def without_position(self) -> list[TopicPartition]:
        """Partitions that have neither a position nor a pending reset."""
        return [
            p for p, r in self._assigned.items() if not r.has_position and r.needs_reset is None
        ]

    def to_reset(self) -> dict[TopicPartition, int]:
        """Partitions with a pending reset, and its timestamp."""
        return {p: r.needs_reset for p, r in self._assigned.items() if r.needs_reset is not None}

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """All known positions: what a commit without arguments commits."""
        return {
            p: OffsetAndMetadata(r.offset, r.leader_epoch)
            for p, r in self._assigned.items()
            if r.has_position
        }
