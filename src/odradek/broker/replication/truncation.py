"""A follower's truncations to what its leader has, with the line in the log that says so."""

import logging
from typing import Final

from odradek.broker.replication.partition import Partition
from odradek.log.log import Log
from odradek.log.repair.cuts import CutKind, LogCut
from odradek.replica.follower import EpochEnd, truncation_offset

log = logging.getLogger(__name__)

# Logged with each truncation to what the leader has.
TRUNCATED: Final = (
    "%s is cut from %d to %d; the log of its leader, broker %d in leader epoch %d, %s"
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
        restart(partition, held, leader_start)
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
    leader = partition.leader_id, partition.leader_epoch
    end, size_bytes, high_watermark = held.leo, held.size_bytes, held.high_watermark
    log.info(TRUNCATED, partition.topic_partition, end, offset, *leader, leader_log)
    held.truncate_to(offset)
    if held.leo < high_watermark:
        held.host.cut(
            LogCut(
                partition.topic_partition,
                CutKind.TRUNCATION,
                held.directory,
                held.leo,
                end,
                size_bytes - held.size_bytes,
                high_watermark,
                f"the log of its leader, broker {leader[0]} in leader epoch {leader[1]}, "
                f"{leader_log}",
            )
        )


def restart(partition: Partition, held: Log, offset: int) -> None:
    """Delete a log that ends below the leader's log start: the leader has deleted all of it."""
    log.info(
        "%s: the log, from %d to %d, is below the log start of its leader, broker %d, and restarts "
        "at %d",
        partition.topic_partition,
        held.log_start_offset,
        held.leo,
        partition.leader_id,
        offset,
    )
    held.truncate_fully_and_start_at(offset)
