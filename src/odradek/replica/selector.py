"""Which replica a consumer should read from (KIP-392).

The leader, unless the consumer sends its rack, the leader is in another one, and there is an
in-sync follower in the consumer's rack that has the fetch offset: then the follower with the
highest log end offset, and among equals the one that caught up last.
"""

from collections.abc import Mapping
from typing import Final

from odradek.model.cluster import Broker
from odradek.replica.leader import LeaderReplica

RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER: Final = "org.apache.kafka.common.replica.LeaderSelector"


def nearest(
    leader: LeaderReplica,
    offset: int,
    *,
    brokers: Mapping[int, Broker],
    leader_rack: str | None,
    client_rack: str,
) -> int | None:
    """The follower to read from at this offset; None means the leader.

    `brokers` are those that are registered. A follower has the offset if it is between the log
    start offset and the log end offset of its last fetch.
    """
    if not client_rack or leader_rack == client_rack:
        return None
    near = [
        (progress.leo, progress.caught_up_ms, -follower)
        for follower, progress in leader.followers.items()
        if follower in leader.isr.committed
        and follower in brokers
        and brokers[follower].rack == client_rack
        and progress.log_start_offset <= offset <= progress.leo
    ]
    return -max(near)[2] if near else None
