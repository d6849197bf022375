"""A follower's decision: where to truncate its log.

A follower fetches from its log end offset and sends the leader epoch of its last batch. If the
leader's log does not have that end, the response has no records but a diverging epoch: the newest
epoch at the leader that is not above the follower's, and its end offset there. The follower
truncates by that and fetches again, until the logs agree. It never truncates to its high watermark
(KIP-101), and one truncation may not be enough (KIP-279).
"""

from typing import Final, NamedTuple

NO_EPOCH: Final = -1


class EpochEnd(NamedTuple):
    """A leader epoch and its end offset (exclusive)."""

    epoch: int
    end_offset: int


def truncation_offset(*, leader: EpochEnd, own: EpochEnd, leo: int) -> int:
    """The offset to truncate to after a diverging epoch; `leo` means no truncation.

    `leader` is the diverging epoch of the leader's response; `own` is that epoch, or the newest one
    below it, in this log (`Log.end_offset_for_epoch`).

    If this log lacks the leader's epoch, everything after the epoch before it is truncated;
    whether the rest agrees, the response to the next fetch shows.
    """
    if NO_EPOCH in (leader.epoch, own.epoch):
        return min(leader.end_offset, leo)
    if own.epoch != leader.epoch:
        return min(own.end_offset, leo)
    return min(own.end_offset, leader.end_offset, leo)


class OutOfRange(NamedTuple):
    """How a follower continues when the leader's log does not have its fetch offset."""

    truncate_to: int | None  # truncate to this offset; None: no truncation
    restart_at: int | None  # truncate fully and start at this offset; None: continue


def out_of_range(*, leo: int, leader_start: int, leader_end: int) -> OutOfRange:
    """Decide after OFFSET_OUT_OF_RANGE, from the leader's log start and log end offsets.

    The leader's log ends before the follower's only after an unclean election: what the follower
    has beyond is lost. The leader's log starts at the follower's end, or after it, if retention
    deleted what the follower lacks: then it cannot be known whether the follower's records were
    ever in the leader's log.
    """
    if leader_start >= min(leo, leader_end):
        return OutOfRange(truncate_to=None, restart_at=leader_start)
    if leader_end < leo:
        return OutOfRange(truncate_to=leader_end, restart_at=None)
    return OutOfRange(truncate_to=None, restart_at=None)
