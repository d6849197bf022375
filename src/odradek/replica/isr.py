"""The ISR of one partition at its leader: the stored ISR, and the change that is in flight.

    COMMITTED   the ISR is as the controller has stored it
    EXPANDING   one more replica is requested; it counts before the response: the high watermark
                waits for it, because the controller may have stored it (maximal ISR, KIP-497)
    SHRINKING   fewer replicas are requested; those leaving count until the response, for the same
                reason

So the high watermark waits for every replica that may be in the stored ISR. Shrinking is always
safe; to join, a replica has to reach the high watermark and the start of the leader's epoch
(KIP-320). At most one change is in flight, and responses carry the partition epoch, which shows
a response that arrives late.
"""

from dataclasses import dataclass
from enum import Enum


class IsrState(Enum):
    """Whether an ISR change is in flight (Kafka: `PartitionState`)."""

    COMMITTED = "committed"
    EXPANDING = "expanding"
    SHRINKING = "shrinking"


@dataclass(slots=True)
class Isr:
    """The in-sync replicas, including the leader, in the order in which they joined."""

    committed: tuple[int, ...]
    partition_epoch: int  # of the stored state
    state: IsrState = IsrState.COMMITTED
    proposed: tuple[int, ...] = ()

    @property
    def maximal(self) -> frozenset[int]:
        """Every replica that may be in the stored ISR."""
        return frozenset(self.committed).union(self.proposed)

    @property
    def is_in_flight(self) -> bool:
        """Whether the controller's response to a change is outstanding."""
        return self.state is not IsrState.COMMITTED

    def expand(self, replica: int) -> tuple[int, ...]:
        """Begin to add a replica that has caught up. Returns the ISR to request."""
        assert not self.is_in_flight, self
        assert replica not in self.committed, (replica, self)
        self.state = IsrState.EXPANDING
        self.proposed = (*self.committed, replica)
        return self.proposed

    def shrink(self, leaving: frozenset[int]) -> tuple[int, ...]:
        """Begin to remove replicas that have fallen behind. Returns the ISR to request."""
        assert not self.is_in_flight, self
        assert leaving < set(self.committed), (leaving, self)
        self.state = IsrState.SHRINKING
        self.proposed = tuple(r for r in self.committed if r not in leaving)
        return self.proposed

    def stored(self, isr: tuple[int, ...], partition_epoch: int) -> bool:
        """Take over the ISR that the controller has stored. Returns whether anything changed.

        An ISR with an older partition epoch is from a late response and changes nothing.
        """
        if partition_epoch < self.partition_epoch:
            return False
        changed = partition_epoch > self.partition_epoch or self.is_in_flight
        self.committed = isr
        self.partition_epoch = partition_epoch
        self.state = IsrState.COMMITTED
        self.proposed = ()
        return changed

    def refused(self) -> None:
        """The controller refused the change, and the stored ISR is unchanged."""
        self.state = IsrState.COMMITTED
        self.proposed = ()


def may_join(*, replica_leo: int, high_watermark: int, epoch_start_offset: int) -> bool:
    """Whether a follower with this log end offset may join the ISR (KIP-320)."""
    return replica_leo >= high_watermark and replica_leo >= epoch_start_offset
