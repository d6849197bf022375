"""More partitions for a topic that exists.

The number only ever grows, for a key would change its partition and a log cannot be split. What is
there stays; the new partitions go on where the round of the first ones would be, beginning
beside partition 0's first replica, with as many replicas as partition 0 has.
"""

from collections.abc import Mapping, Sequence

from odradek.model.errors import ApiError, ErrorCode
from odradek.placement.assign import place
from odradek.placement.manual import check_added
from odradek.placement.walk import Start


def expand(
    existing: Mapping[int, Sequence[int]],
    racks: Mapping[int, str | None],
    *,
    partitions: int,
    manual: Sequence[Sequence[int]] | None = None,
) -> dict[int, tuple[int, ...]]:
    """The added partitions, so that there are `partitions` in all: `manual`, or placed.

    Raises:
        ApiError: there are as many or more, or the manual assignment is none.
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
        start=Start(start, start, first_partition=len(existing)),
    )
