"""A follower's truncations to what its leader has, with the line in the log that says so."""

import logging
from typing import Final

from odradek.broker.replication.partition import Partition
from odradek.log.log import Log
from odradek.replica.follower import EpochEnd, truncation_offset

log = logging.getLogger(__name__)

# Logged with each truncation to what the leader has.
TRUNCATED: Final = (
    "%s is cut from %d to %d%s; the log of its leader, broker %d in leader epoch %d, %s"
)


def truncate_diverged(partition: Partition, leader_end: EpochEnd, *, leader_start: int) -> bool:
    """Truncate after a diverging epoch; whether the next fetch asks for anything else."""
    held = partition.log
    if held is None:
        return False
    before = ends_of(held)
    own = EpochEnd(*held.end_offset_for_epoch(leader_end.epoch))
    cut = truncation_offset(leader=leader_end, own=own, leo=held.leo)
    if held.log_start_offset < leader_start >= cut:
        # All of the remaining log is below the leader's log start, so that it cannot be
        # compared with the leader's: it is deleted.
        log.info(
            "%s: the log is below its leader's log start, and restarts at %d",
            partition.topic_partition,
            leader_start,
        )
        held.truncate_fully_and_start_at(leader_start)
    elif cut < held.leo:
        truncate(partition, held, cut, "differs from there on")
    else:
        # This broker led in an epoch without appending: other logs do not have that epoch.
        held.cut_epochs()
    return ends_of(held) != before


def ends_of(held: Log) -> tuple[int, int, int]:
    """What a fetch names of this log: if it is as before, so is the answer."""
    return held.log_start_offset, held.leo, held.epochs.latest_epoch


def truncate(partition: Partition, held: Log, offset: int, leader_log: str) -> None:
    """Truncate what the leader does not have; committed records among it are lost."""
    is_loss = offset < held.high_watermark
    loss = f", below the high watermark {held.high_watermark}: committed records are lost"
    log.log(
        logging.WARNING if is_loss else logging.INFO,
        TRUNCATED,
        partition.topic_partition,
        held.leo,
        offset,
        loss if is_loss else "",
        partition.leader_id,
        partition.leader_epoch,
        leader_log,
    )
    held.truncate_to(offset)
