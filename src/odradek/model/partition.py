"""A partition's state in the cluster: assigned replicas, leader and ISR.

Values only, with their invariants. How this state changes is in `odradek.controller` (the
whole cluster) and in `odradek.replica` (one broker).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

NO_LEADER: Final = -1
# In LeaderAndIsr and UpdateMetadata, never stored: the partition is being deleted.
LEADER_DURING_DELETE: Final = -2
# A StopReplica with this epoch deletes the topic and overrides every leader epoch.
EPOCH_DURING_DELETE: Final = -2

# leader_recovery_state (KIP-704)
RECOVERED: Final = 0
RECOVERING: Final = 1


class TopicPartition(NamedTuple):
    """A partition's topic and index. `str()` gives the name of its log directory: `orders-7`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The indexes of partitions by topic, in the given order."""
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return topics


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """The assigned replicas in order of preference, and what a reassignment adds and removes."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        assert len(set(self.replicas)) == len(self.replicas), self
        assert set(self.adding) <= set(self.replicas), self
        assert set(self.removing) <= set(self.replicas), self

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after the reassignment."""
        return tuple(r for r in self.replicas if r not in self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        """The replicas before the reassignment."""
        return tuple(r for r in self.replicas if r not in self.adding)

    @property
    def is_being_reassigned(self) -> bool:
        """Whether a reassignment adds or removes replicas."""
        return bool(self.adding or self.removing)

    def reassigned_to(self, target: tuple[int, ...]) -> "Assignment":
        """A reassignment from the original replicas to `target`; it replaces one under way.

        If `target` is the original replicas, nothing is added or removed: a cancellation.
        """
        origin = self.origin
        return Assignment(
            replicas=tuple(dict.fromkeys(target + origin)),
            adding=tuple(r for r in target if r not in origin),
            removing=tuple(r for r in origin if r not in target),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsr:
    """Leader, leader epoch and ISR as stored by the controller (Kafka: `LeaderAndIsr`)."""

    leader: int  # a broker id, or NO_LEADER
    leader_epoch: int
    isr: tuple[int, ...]
    # The version of the stored state this was read from, for a conditional write (ZooKeeper:
    # zkVersion).
    partition_epoch: int
    leader_recovery_state: int = RECOVERED

    def __post_init__(self) -> None:
        # The ISR is never empty: its last member stays in it when that broker fails, because
        # it is the only replica known to have every committed record.
        assert self.isr, self
        assert len(set(self.isr)) == len(self.isr), self
        assert self.leader < 0 or self.leader in self.isr, self

    def led_by(self, leader: int, isr: tuple[int, ...]) -> "LeaderAndIsr":
        """A new leader epoch: every change of leader or ISR by the controller begins one."""
        return replace(self, leader=leader, isr=isr, leader_epoch=self.leader_epoch + 1)
