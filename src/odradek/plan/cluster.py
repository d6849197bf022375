"""A snapshot of a cluster, as the planner needs it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

from odradek.model.partition import NO_LEADER, TopicPartition


@dataclass(frozen=True, slots=True)
class Replicas:
    """One partition: its replicas in order, the preferred leader first; and its size."""

    brokers: tuple[int, ...]
    size_bytes: int = 0
    leader: int = NO_LEADER
    in_sync: tuple[int, ...] = ()


@dataclass(frozen=True)
class ClusterPicture:
    """A snapshot: brokers with their racks, and partitions with their replicas.

    What is known of the racks is found once: rules ask for it for every replica.
    """

    racks: Mapping[int, str | None]
    partitions: Mapping[TopicPartition, Replicas]
    isr_min: Mapping[str, int] = field(default_factory=dict)  # by topic, where it is known

    @cached_property
    def knows_racks(self) -> bool:
        """Whether every broker has a rack: otherwise racks are ignored."""
        return bool(self.racks) and all(rack is not None for rack in self.racks.values())

    @cached_property
    def rack_names(self) -> frozenset[str]:
        """The racks of all brokers, by `rack_of`."""
        return frozenset(map(self.rack_of, self.racks))

    def without_racks(self) -> Self:
        """The same brokers, for a plan that ignores racks."""
        return replace(self, racks=dict.fromkeys(self.racks))

    def rack_of(self, broker: int) -> str:
        """The rack of a broker; a name of its own if racks are ignored or the broker is unknown."""
        rack = self.racks.get(broker)
        return rack if rack is not None and self.knows_racks else f"broker {broker}"


@dataclass(frozen=True, slots=True)
class Load:
    """The replicas, leaders and bytes of one broker."""

    replicas: int = 0
    leaders: int = 0
    size_bytes: int = 0


def loads(
    racks: Iterable[int],
    assignment: Mapping[TopicPartition, Sequence[int]],
    sizes: Mapping[TopicPartition, int],
) -> dict[int, Load]:
    """The load of each broker under an assignment, with preferred replicas as leaders."""
    replicas = dict.fromkeys(sorted(racks), 0)
    leaders = dict(replicas)
    size_bytes = dict(replicas)
    for partition, brokers in assignment.items():
        for place, broker in enumerate(brokers):
            replicas[broker] = replicas.get(broker, 0) + 1
            leaders[broker] = leaders.get(broker, 0) + (not place)
            size_bytes[broker] = size_bytes.get(broker, 0) + sizes.get(partition, 0)
    return {b: Load(replicas[b], leaders[b], size_bytes[b]) for b in sorted(replicas)}
