"""How far leadership has strayed from the preferred replicas.

A broker's imbalance is the share of the partitions that it should lead, as their preferred replica,
and that others lead. Above `leader.imbalance.per.broker.percentage` the controller gives them back.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from odradek.model.partition import TopicPartition


@dataclass(slots=True)
class LeaderImbalance:
    """One broker's due: the partitions it is the preferred replica of."""

    preferred_count: int = 0
    led_by_others: list[TopicPartition] = field(default_factory=list)  # or by nobody

    @property
    def ratio(self) -> float:
        """The part of its due that the broker does not lead, from 0 to 1."""
        return len(self.led_by_others) / self.preferred_count

    def exceeds(self, percentage: int) -> bool:
        """Whether the ratio is above a percentage; computed in whole numbers."""
        return 100 * len(self.led_by_others) > percentage * self.preferred_count


def leader_imbalance(
    partitions: Iterable[tuple[TopicPartition, int, int | None]],
) -> dict[int, LeaderImbalance]:
    """Each preferred replica's imbalance, by broker, sorted.

    Takes partition, preferred replica and leader; a leader of None, that nobody has led it yet,
    is no imbalance.
    """
    found: dict[int, LeaderImbalance] = {}
    for partition, preferred, leader in sorted(partitions, key=lambda entry: entry[0]):
        due = found.setdefault(preferred, LeaderImbalance())
        due.preferred_count += 1
        if leader is not None and leader != preferred:
            due.led_by_others.append(partition)
    return dict(sorted(found.items()))
