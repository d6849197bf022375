"""A partition as the cluster sees it: who holds it, who leads it, who is in sync.

Nouns only: values with the invariants that hold wherever they are seen. What may
*happen* to a partition is in `odradek.controller` (the cluster's view) and in
`odradek.replica` (one broker's view).
"""

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

NO_LEADER: Final = -1
# In LeaderAndIsr and UpdateMetadata, never stored: the partition is being deleted.
LEADER_DURING_DELETE: Final = -2
# A StopReplica with this epoch means "the topic goes": no epoch can be older than that.
EPOCH_DURING_DELETE: Final = -2

# leader_recovery_state (KIP-704)
RECOVERED: Final = 0
RECOVERING: Final = 1


class TopicPartition(NamedTuple):
    """The name of a partition. Printed the way Kafka names its directories: `orders-7`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """Which brokers hold a partition, in order; and what a reassignment brings and takes."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        assert len(set(self.replicas)) == len(self.replicas), self
        assert set(self.adding) <= set(self.replicas), self
        assert set(self.removing) <= set(self.replicas), self

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas once the reassignment is done."""
        return tuple(r for r in self.replicas if r not in self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        """The replicas as they were before the reassignment."""
        return tuple(r for r in self.replicas if r not in self.adding)

    @property
    def is_being_reassigned(self) -> bool:
        """Whether replicas come or go."""
        return bool(self.adding or self.removing)

    def reassigned_to(self, target: tuple[int, ...]) -> "Assignment":
        """On the way from the original replicas to these, whatever was under way before.

        With the original ones as the target nothing is added or removed: that is a cancellation.
        """
        origin = self.origin
        return Assignment(
            replicas=tuple(dict.fromkeys(target + origin)),
            adding=tuple(r for r in target if r not in origin),
            removing=tuple(r for r in origin if r not in target),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsr:
    """Who leads, since which epoch, and which replicas have everything committed."""

    leader: int  # a broker id, or NO_LEADER
    leader_epoch: int
    isr: tuple[int, ...]
    # Of the stored state this was read from, for a conditional write. On the wire: the
    # partition epoch (ZooKeeper: zkVersion).
    partition_epoch: int
    leader_recovery_state: int = RECOVERED

    def __post_init__(self) -> None:
        # The ISR is never emptied: when its last member dies it stays named there, for
        # it is the only replica known to have every committed record.
        assert self.isr, self
        assert len(set(self.isr)) == len(self.isr), self
        assert self.leader < 0 or self.leader in self.isr, self

    def led_by(self, leader: int, isr: tuple[int, ...]) -> "LeaderAndIsr":
        """The next reign: every change of leader or ISR begins a new leader epoch."""
        return replace(self, leader=leader, isr=isr, leader_epoch=self.leader_epoch + 1)
