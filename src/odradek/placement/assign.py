"""Which brokers hold the partitions of a new topic, racks unknown.

Leaders go round the brokers; so do the followers, each partition's shifted against its leader by
a distance that grows by one each time all brokers have led once. So neighbours do not copy
neighbours: when a broker dies, its load falls on all others.

    first replica of partition p    at (p + index) % brokers
    its j-th follower               1 + (shift + j) % (brokers - 1) places further

Index and shift are numbers already drawn: at random for a new topic, so that not every topic's
partition 0 is on the first broker.
"""

from collections.abc import Mapping, Sequence

from odradek.model.errors import ApiError, ErrorCode
from odradek.placement.assign_rack_aware import assign_rack_aware
from odradek.placement.walk import Start, follower_index

Replicas = tuple[int, ...]


def place(
    racks: Mapping[int, str | None],
    *,
    partitions: int,
    replication_factor: int,
    start: Start,
    rack_aware: bool = True,
) -> dict[int, Replicas]:
    """Place partitions on the live brokers, whose racks are known for all or for none.

    Raises:
        ApiError: no partitions, no replicas, more replicas than brokers, or racks for some only.
    """
    if partitions <= 0:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
    if replication_factor <= 0:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0."
        )
    if replication_factor > len(racks):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor: {replication_factor} larger than available brokers: "
            f"{len(racks)}.",
        )
    known = {broker: rack for broker, rack in sorted(racks.items()) if rack is not None}
    if rack_aware and known:
        if len(known) < len(racks):
            # Kafka fails with UNKNOWN_SERVER_ERROR here, as if it were the broker's fault.
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "Not all brokers have rack information for replica rack aware assignment.",
            )
        return assign_rack_aware(
            known,
            partitions=partitions,
            replication_factor=replication_factor,
            start=start,
        )
    return assign(
        sorted(racks),
        partitions=partitions,
        replication_factor=replication_factor,
        start=start,
    )


def assign(
    brokers: Sequence[int],
    *,
    partitions: int,
    replication_factor: int,
    start: Start,
) -> dict[int, Replicas]:
    """Assign without regard to racks; the arguments must make sense."""
    assert 0 < replication_factor <= len(brokers), (replication_factor, brokers)
    assignment = {}
    shift = start.shift
    for partition in range(start.first_partition, start.first_partition + partitions):
        if partition > 0 and partition % len(brokers) == 0:
            shift += 1
        first = (partition + start.index) % len(brokers)
        followers = (
            brokers[follower_index(first, shift, j, len(brokers))]
            for j in range(replication_factor - 1)
        )
        assignment[partition] = (brokers[first], *followers)
    return assignment
