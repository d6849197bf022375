"""What a consumer reads, how far it has got, and where it may go on. Pure."""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from odradek.client.group.protocol import NO_GENERATION
from odradek.model.partition import TopicPartition

NO_OFFSET: Final = -1
NO_LEADER_EPOCH: Final = -1


class OffsetAndMetadata(NamedTuple):
    """An offset to commit, or a committed one."""

    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""


class GroupMetadata(NamedTuple):
    """Who a consumer is in its group: sent with the offsets of a transaction."""

    group_id: str
    generation: int = NO_GENERATION
    member_id: str = ""
    instance_id: str | None = None


class Reading:
    """One partition that is read."""

    __slots__ = (
        "end_offset",
        "is_paused",
        "last_stable_offset",
        "leader_epoch",
        "log_start_offset",
        "needs_reset",
        "offset",
        "preferred_replica",
        "preferred_until_s",
        "visit",
    )

    def __init__(self, visit: int) -> None:
        self.offset = NO_OFFSET  # of the next record; NO_OFFSET: not known yet
        self.leader_epoch = NO_LEADER_EPOCH  # of the record before it
        self.needs_reset: int | None = None  # a special timestamp of ListOffsets
        self.is_paused = False
        self.end_offset = NO_OFFSET  # the high watermark, as last told
        self.last_stable_offset = NO_OFFSET
        self.log_start_offset = NO_OFFSET
        self.preferred_replica = -1
        self.preferred_until_s = 0.0
        # Changes with every seek: what was fetched for another visit is dropped.
        self.visit = visit

    @property
    def has_position(self) -> bool:
        """Whether it is known where to go on."""
        return self.offset >= 0


class Readings:
    """All partitions that are read, in the order in which they came."""

    def __init__(self) -> None:
        self._readings: dict[TopicPartition, Reading] = {}
        self._visits = 0

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these, and no others; what stays keeps its position."""
        wanted = dict.fromkeys(partitions)
        self._readings = {
            partition: self._readings.get(partition) or self._new() for partition in wanted
        }

    def _new(self) -> Reading:
        self._visits += 1
        return Reading(self._visits)

    def seek(
        self, partition: TopicPartition, offset: int, leader_epoch: int = NO_LEADER_EPOCH
    ) -> None:
        """Go on there."""
        reading = self._readings[partition]
        self._visits += 1
        reading.visit = self._visits
        reading.offset = offset
        reading.leader_epoch = leader_epoch
        reading.needs_reset = None

    def reset(self, partition: TopicPartition, timestamp: int) -> None:
        """Go on where this timestamp stands: ask the leader before the next fetch."""
        reading = self._readings[partition]
        self._visits += 1
        reading.visit = self._visits
        reading.offset = NO_OFFSET
        reading.leader_epoch = NO_LEADER_EPOCH
        reading.needs_reset = timestamp

    def get(self, partition: TopicPartition) -> Reading | None:
        """One of them."""
        return self._readings.get(partition)

    def __getitem__(self, partition: TopicPartition) -> Reading:
        return self._readings[partition]

    def __contains__(self, partition: object) -> bool:
        return partition in self._readings

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(list(self._readings))

    def __len__(self) -> int:
        return len(self._readings)

    def fetchable(self) -> list[TopicPartition]:
        """Those that have a position and are not paused."""
        return [p for p, r in self._readings.items() if r.has_position and not r.is_paused]

    def without_position(self) -> list[TopicPartition]:
        """Those of which nobody knows yet where to begin."""
        return [
            p for p, r in self._readings.items() if not r.has_position and r.needs_reset is None
        ]

    def to_reset(self) -> dict[TopicPartition, int]:
        """Those that go on at a timestamp."""
        return {p: r.needs_reset for p, r in self._readings.items() if r.needs_reset is not None}

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """All positions that are known: what a commit without arguments commits."""
        return {
            p: OffsetAndMetadata(r.offset, r.leader_epoch)
            for p, r in self._readings.items()
            if r.has_position
        }
