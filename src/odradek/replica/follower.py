"""A follower's decisions: where to cut its log, and how far the leader's word carries.

A follower asks the leader for what comes after its log's end, and says which leader epoch its last
batch is of. If the leader's log never had that end, the answer is not records but a diverging
epoch: the newest epoch not above the one asked for, and where it ended at the leader. The follower
cuts its log by that and asks again, until the two agree. It never cuts to its high watermark
(KIP-101), and one answer may not be enough (KIP-279).
"""

from typing import Final, NamedTuple

NO_EPOCH: Final = -1


class EpochEnd(NamedTuple):
    """An epoch, and the first offset that is not of it any more."""

    epoch: int
    end_offset: int


def truncation_offset(*, told: EpochEnd, own: EpochEnd, leo: int) -> int:
    """Where to cut after a diverging answer; nothing is cut at `leo`.

    `told` is the leader's answer; `own` is where that same epoch, or the newest below it, ended
    in this log (`Log.end_offset_for_epoch`).

    If this log lacks the leader's epoch, what it has beyond the epoch before is not the
    leader's either; whether the rest agrees, the next answer will tell.
    """
    if NO_EPOCH in (told.epoch, own.epoch):
        return min(told.end_offset, leo)
    if own.epoch != told.epoch:
        return min(own.end_offset, leo)
    return min(own.end_offset, told.end_offset, leo)


def high_watermark(*, told: int, leo: int) -> int:
    """What is committed as far as this replica knows: never more than it has."""
    return min(told, leo)


class OutOfRange(NamedTuple):
    """Where to go on when the leader's log does not have the offset asked for."""

    truncate_to: int | None  # cut here; None: nothing to cut
    restart_at: int | None  # drop everything and begin here; None: go on


def out_of_range(*, leo: int, leader_start: int, leader_end: int) -> OutOfRange:
    """The leader answered OFFSET_OUT_OF_RANGE; it was then asked where its log begins and ends.

    Its log ends before ours only after an unclean election: what we have beyond is gone for
    everybody. It begins where ours ends, or after that, when its retention outran us: nobody can
    tell any more whether what we have before was ever its.
    """
    if leader_start >= min(leo, leader_end):
        return OutOfRange(truncate_to=None, restart_at=leader_start)
    if leader_end < leo:
        return OutOfRange(truncate_to=leader_end, restart_at=None)
    return OutOfRange(truncate_to=None, restart_at=None)
