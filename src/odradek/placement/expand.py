"""Added partitions of an existing topic.

The number only grows: a key would change its partition, and a log cannot be split. Existing
partitions stay; the assignment of the first ones is continued for the new ones, beginning at
partition 0's first replica, with the replication factor of partition 0.
"""

from collections.abc import Mapping, Sequence

from odradek.model.errors import ApiError, ErrorCode
from odradek.placement.assign import place
from odradek.placement.manual import check_added
from odradek.placement.walk import RoundStart


def expand(
    existing: Mapping[int, Sequence[int]],
    racks: Mapping[int, str | None],
    *,
    partitions: int,
    manual: Sequence[Sequence[int]] | None = None,
) -> dict[int, tuple[int, ...]]:
    """The added partitions, for a total of `partitions`: assigned by `manual`, or placed.

    Raises:
        ApiError: the topic has as many or more, or the manual assignment is not valid.
    """
    added = partitions - len(existing)
    if added < 0:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic currently has {len(existing)} partitions, which is higher than the "
            f"requested {partitions}.",
        )
    if added == 0:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS, f"Topic already has {len(existing)} partitions."
        )
    if manual is not None:
        return check_added(manual, added=added, existing=existing, brokers=racks)
    brokers = sorted(racks)
    preferred = existing[0][0]
    start = next((i for i, broker in enumerate(brokers) if broker >= preferred), 0)
    return place(
        racks,
        partitions=added,
        replication_factor=len(existing[0]),
        start=RoundStart(start, start, first_partition=len(existing)),
    )
