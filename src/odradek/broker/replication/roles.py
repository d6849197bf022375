"""Roles of replicas: those that are refused for their log's sake, and their text in the log."""

import logging

from odradek.broker.controller.journal import STATE_CHANGES
from odradek.broker.replication.partition import Partition
from odradek.log.log import Log
from odradek.model.partition import NO_LEADER, TopicPartition

log = logging.getLogger(__name__)
state_changes = logging.getLogger(STATE_CHANGES)


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
