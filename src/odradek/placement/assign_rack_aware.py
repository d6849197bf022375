"""Replica assignment of a new topic with racks.

As in `assign`, but over the brokers taken from each rack in turn, and with a shift that grows by
the number of racks. A broker is skipped

* if its rack has a replica already while another rack has none, or
* if it has a replica already while another broker has none.

So with as many replicas as racks or more every rack has at least one, and with fewer none has two.
"""

from collections.abc import Mapping
from itertools import count, zip_longest

from odradek.placement.walk import RoundStart, follower_index


def alternate_racks(racks: Mapping[int, str]) -> list[int]:
    """The brokers, one from each rack in turn, racks and brokers sorted."""
    by_rack: dict[str, list[int]] = {}
    for broker, rack in sorted(racks.items()):
        by_rack.setdefault(rack, []).append(broker)
    rounds = zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
    return [broker for brokers in rounds for broker in brokers if broker is not None]


def assign_rack_aware(
    racks: Mapping[int, str],
    *,
    partitions: int,
    replication_factor: int,
    start: RoundStart,
) -> dict[int, tuple[int, ...]]:
    """Assign with racks. The arguments are checked by `place`."""
    assert 0 < replication_factor <= len(racks), (replication_factor, racks)
    brokers = alternate_racks(racks)
    racks_count = len(set(racks.values()))
    assignment = {}
    shift = start.shift
    for partition in range(start.first_partition, start.first_partition + partitions):
        if partition > 0 and partition % len(brokers) == 0:
            shift += 1
        first = (partition + start.index) % len(brokers)
        replicas = [brokers[first]]
        taken = {racks[brokers[first]]}
        steps = (
            count()
        )  # continues over all replicas of the partition: a skipped broker is not tried again
        while len(replicas) < replication_factor:
            at = follower_index(first, shift * racks_count, next(steps), len(brokers))
            broker = brokers[at]
            if broker in replicas or (racks[broker] in taken and len(taken) < racks_count):
                continue
            replicas.append(broker)
            taken.add(racks[broker])
        assignment[partition] = tuple(replicas)
    return assignment
