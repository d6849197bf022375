"""The ISR of one led partition: what is stored, and the one change that is on its way.

    COMMITTED   what the controller has stored
    EXPANDING   asked for one more member; until the answer it counts already: the high watermark
                waits for it, for the controller may have stored it (maximal ISR, KIP-497)
    SHRINKING   asked for fewer; until the answer those leaving count still, for the same reason

So the high watermark always waits for every replica that may be in the stored ISR. Shrinking is
always safe; joining needs the end of the high watermark and the start of the leader's epoch
(KIP-320). At most one change is in flight, and answers carry the partition epoch, so that a late
one is recognised.
"""

from dataclasses import dataclass
from enum import Enum


class IsrState(Enum):
    """Whether a change is on its way."""

    COMMITTED = "committed"
    EXPANDING = "expanding"
    SHRINKING = "shrinking"


@dataclass(slots=True)
class Isr:
    """The in-sync replicas, the leader among them, in the order in which they joined."""

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
        """Whether an answer is awaited."""
        return self.state is not IsrState.COMMITTED

    def expand(self, replica: int) -> tuple[int, ...]:
        """One more has caught up. Returns what to ask the controller for."""
        assert not self.is_in_flight, self
        assert replica not in self.committed, (replica, self)
        self.state = IsrState.EXPANDING
        self.proposed = (*self.committed, replica)
        return self.proposed

    def shrink(self, leaving: frozenset[int]) -> tuple[int, ...]:
        """Some have fallen behind. Returns what to ask the controller for."""
        assert not self.is_in_flight, self
        assert leaving < set(self.committed), (leaving, self)
        self.state = IsrState.SHRINKING
        self.proposed = tuple(r for r in self.committed if r not in leaving)
        return self.proposed

    def stored(self, isr: tuple[int, ...], partition_epoch: int) -> bool:
        """The controller says what is stored. Whether that is news.

        What is older than what we know, an answer that was overtaken, changes nothing.
        """
        if partition_epoch < self.partition_epoch:
            return False
        news = partition_epoch > self.partition_epoch or self.is_in_flight
        self.committed = isr
        self.partition_epoch = partition_epoch
        self.state = IsrState.COMMITTED
        self.proposed = ()
        return news

    def refused(self) -> None:
        """The controller did not take the change, and nothing else was stored."""
        self.state = IsrState.COMMITTED
        self.proposed = ()


def may_join(*, replica_leo: int, high_watermark: int, epoch_start_offset: int) -> bool:
    """Whether a follower that has fetched up to `replica_leo` may be in sync (KIP-320)."""
    return replica_leo >= high_watermark and replica_leo >= epoch_start_offset
