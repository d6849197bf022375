"""Roles of replicas: which are refused or tried again for their log's sake, and their text."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from odradek.broker.controller.journal import STATE_CHANGES
from odradek.broker.replication.partition import Partition
from odradek.log.disk import StorageError
from odradek.log.log import Log
from odradek.model.errors import ErrorCode
from odradek.model.partition import NO_LEADER, TopicPartition

log = logging.getLogger(__name__)
state_changes = logging.getLogger(STATE_CHANGES)
_PAUSES_MS: Final = (50, 200, 1_000, 2_000)  # the controller waits 30 s for its answer


class RefusedRoles(dict[TopicPartition, tuple[int, int]]):
    """The partitions whose role was refused: the leader epoch of the role, and that of the log."""

    def refuses(self, held: Log, leader_epoch: int) -> bool:
        """Whether a log of this topic is from a later leader epoch than the role.

        The store was put back to an earlier state then. A leader in an epoch from before the end of
        its log would give that epoch's number to other records; its followers, which have the later
        epoch as well, could never agree with it.
        """
        name, own = held.partition, held.epochs.latest_epoch
        if own <= leader_epoch:
            self.pop(name, None)
            return False
        if self.get(name) != (leader_epoch, own):
            log.warning(
                "%s: the controller's leader epoch is %d, and the log has leader epoch %d already: "
                "the coordination store is older than the log. The role is refused until the "
                "stored leader epoch is above it",
                name,
                leader_epoch,
                own,
            )
        self[name] = leader_epoch, own
        return True


def described(partition: Partition) -> str:
    """A replica's role, for the state-change log; empty if that log is not at DEBUG."""
    if not state_changes.isEnabledFor(logging.DEBUG):
        return ""
    held, leader = partition.log, partition.leader
    if held is None:
        return "offline"
    if partition.leader_epoch < 0:
        return "new"
    if leader is not None:
        isr = ",".join(map(str, leader.isr.committed))
        role = f"leader, ISR {isr}"
    elif partition.leader_id == NO_LEADER:
        role = "without a leader"
    else:
        role = f"follower of {partition.leader_id}"
    return (
        f"{role}, leader epoch {partition.leader_epoch}, partition epoch "
        f"{partition.partition_epoch}, log end {held.leo}, high watermark {held.high_watermark}"
    )


async def tried_again(take: Callable[[], ErrorCode], name: TopicPartition) -> ErrorCode:
    """Take a role, for which the log may have to be created; again if descriptors ran out.

    The controller orders a role once. A directory that stays online is no reason to repeat it.

    Raises:
        StorageError: they did not come back within seconds, or the disk has failed.
    """
    for pause_ms in _PAUSES_MS:
        try:
            return take()
        except StorageError as error:
            if not error.left_nothing:
                raise
            log.warning("%s: its role is taken in %d ms: %s", name, pause_ms, error)
        await asyncio.sleep(pause_ms / 1000)
    return take()
