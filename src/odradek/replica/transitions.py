"""Which controller requests a replica accepts: epochs fence late ones.

controller epoch   a request of a former controller is refused as a whole
broker epoch       a request for an earlier registration of this broker is refused as a whole
leader epoch       of each partition: only a newer one changes the leader. The same one with a
                   newer partition epoch carries another ISR or assignment
topic id           a request for another topic of the same name is refused
"""

from collections.abc import Container, Mapping

from odradek.model.errors import ErrorCode
from odradek.model.partition import EPOCH_DURING_DELETE


def refuse_request(
    *, controller_epoch: int, newest_controller_epoch: int, broker_epoch: int, own_broker_epoch: int
) -> ErrorCode:
    """The error code of a controller's request as a whole; NONE if it is accepted.

    A broker epoch of -1 comes from a controller without broker epochs. One newer than the own is
    of a registration whose response has not arrived yet: the request is accepted. A broker that
    was never registered (own broker epoch -1) refuses everything: it is for an earlier
    registration.
    """
    if own_broker_epoch < 0 or -1 < broker_epoch < own_broker_epoch:
        return ErrorCode.STALE_BROKER_EPOCH
    if controller_epoch < newest_controller_epoch:
        return ErrorCode.STALE_CONTROLLER_EPOCH
    return ErrorCode.NONE


def is_registered(
    follower_id: int,
    broker_epoch: int,
    *,
    announced: Container[int],
    registered: Mapping[int, int],
) -> bool:
    """Whether a fetch with this replica id can be that of a broker (CVE-2018-1288).

    `announced` are the brokers in the controller's metadata, `registered` the broker epochs of
    those whose registration this broker has read from the store. A broker epoch of -1 comes from a
    version of Fetch without it. A higher one than the known is of a registration that has not been
    read yet: the controller compares it before the follower joins the ISR (KIP-903).
    """
    known = registered.get(follower_id)
    if known is None:
        return follower_id in announced
    return broker_epoch < 0 or broker_epoch >= known


def refuse_role(
    *,
    leader_epoch: int,
    partition_epoch: int,
    known_leader_epoch: int,
    known_partition_epoch: int,
) -> ErrorCode:
    """The error code for one partition of a LeaderAndIsr request; NONE if it is accepted."""
    if (leader_epoch, partition_epoch) <= (known_leader_epoch, known_partition_epoch):
        return ErrorCode.STALE_CONTROLLER_EPOCH
    return ErrorCode.NONE


def refuse_stop(*, leader_epoch: int, known_leader_epoch: int) -> ErrorCode:
    """The error code for one partition of a StopReplica request; NONE if it is accepted.

    -1 comes from a controller without leader epochs in StopReplica; the deletion of a topic
    overrides every epoch.
    """
    if leader_epoch in (EPOCH_DURING_DELETE, -1) or leader_epoch >= known_leader_epoch:
        return ErrorCode.NONE
    return ErrorCode.FENCED_LEADER_EPOCH
