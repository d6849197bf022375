"""Which orders a replica obeys: epochs fence.

controller epoch   an order of an older controller is refused whole
broker epoch       an order meant for an earlier life of this broker is refused whole
leader epoch       of each partition: only a newer reign changes a role. The same reign with a
                   newer partition epoch carries another ISR or assignment
topic id           an order for another topic of the same name is refused
"""

from odradek.model.errors import ErrorCode
from odradek.model.partition import EPOCH_DURING_DELETE


def refuse_request(
    *, controller_epoch: int, newest_controller_epoch: int, broker_epoch: int, own_broker_epoch: int
) -> ErrorCode:
    """Why a controller's request is refused as a whole; NONE if it is not.

    A broker epoch of -1 comes from a controller that does not know of them. One newer than
    ours is of a registration whose answer we have not seen yet: it is for us. A broker that has
    never been registered (its own is -1) obeys nobody: what comes is for the life before.
    """
    if controller_epoch < newest_controller_epoch:
        return ErrorCode.STALE_CONTROLLER_EPOCH
    if own_broker_epoch < 0 or -1 < broker_epoch < own_broker_epoch:
        return ErrorCode.STALE_BROKER_EPOCH
    return ErrorCode.NONE


def refuse_role(
    *,
    leader_epoch: int,
    partition_epoch: int,
    known_leader_epoch: int,
    known_partition_epoch: int,
) -> ErrorCode:
    """Why the order for one partition is refused; NONE if it is obeyed."""
    if (leader_epoch, partition_epoch) <= (known_leader_epoch, known_partition_epoch):
        return ErrorCode.STALE_CONTROLLER_EPOCH
    return ErrorCode.NONE


def refuse_stop(*, leader_epoch: int, known_leader_epoch: int) -> ErrorCode:
    """Why an order to stop a replica is refused; NONE if it is obeyed.

    -1 comes from a controller older than leader epochs in StopReplica; the deletion of a topic
    overrules every epoch.
    """
    if leader_epoch in (EPOCH_DURING_DELETE, -1) or leader_epoch >= known_leader_epoch:
        return ErrorCode.NONE
    return ErrorCode.FENCED_LEADER_EPOCH
