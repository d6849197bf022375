"""The leader imbalance of brokers: the share of preferred leaderships that others have.

A broker's imbalance is the share of the partitions it is the preferred replica of that other
brokers lead. Above `leader.imbalance.per.broker.percentage` the controller elects it again.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from odradek.model.partition import TopicPartition


@dataclass(slots=True)
class LeaderImbalance:
    """The partitions that one broker is the preferred replica of, by whether it leads them."""

    preferred_count: int = 0
    led_by_others: list[TopicPartition] = field(default_factory=list)  # or without a leader

    @property
    def ratio(self) -> float:
        """The share of these partitions that the broker does not lead, from 0 to 1."""
        return len(self.led_by_others) / self.preferred_count

    def exceeds(self, percentage: int) -> bool:
        """Whether the ratio is above a percentage; computed with integers."""
        return 100 * len(self.led_by_others) > percentage * self.preferred_count


def leader_imbalance(
    partitions: Iterable[tuple[TopicPartition, int, int | None]],
) -> dict[int, LeaderImbalance]:
    """Each preferred replica's imbalance, by broker, sorted.

    Takes partition, preferred replica and leader; a partition whose leader is None has never had
    one, and is not counted.
    """
    found: dict[int, LeaderImbalance] = {}
    for partition, preferred, leader in sorted(partitions, key=lambda entry: entry[0]):
        due = found.setdefault(preferred, LeaderImbalance())
        due.preferred_count += 1
        if leader is not None and leader != preferred:
            due.led_by_others.append(partition)
    return dict(sorted(found.items()))
