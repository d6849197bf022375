"""Replica assignment of a new topic without racks.

Leaders are assigned to the brokers in turn; the followers too, shifted against their leader by a
distance that grows by one each time every broker has been the leader once. So when a broker fails,
its load is taken over by all others.

    first replica of partition p    at (p + index) % brokers
    its j-th follower               1 + (shift + j) % (brokers - 1) places further

Index and shift are drawn by the caller: at random for a new topic, so that not every topic's
partition 0 is on the first broker.
"""

from collections.abc import Mapping, Sequence

from odradek.model.errors import ApiError, ErrorCode
from odradek.placement.assign_rack_aware import assign_rack_aware
from odradek.placement.walk import RoundStart, follower_index

Replicas = tuple[int, ...]


def place(
    racks: Mapping[int, str | None],
    *,
    partitions: int,
    replication_factor: int,
    start: RoundStart,
    rack_aware: bool = True,
) -> dict[int, Replicas]:
    """Assign partitions to the running brokers, of which all or none have a rack.

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
            # Kafka answers UNKNOWN_SERVER_ERROR here, though the error is the request's.
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
    start: RoundStart,
) -> dict[int, Replicas]:
    """Assign without racks. The arguments are checked by `place`."""
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
