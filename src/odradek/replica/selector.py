"""Which replica a consumer should read from (KIP-392).

The leader, unless the consumer sends its rack, the leader is in another one, and there is an
in-sync follower in the consumer's rack that has the fetch offset: then the follower with the
highest log end offset, and among equals the one that caught up last.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER: Final = "org.apache.kafka.common.replica.LeaderSelector"


class ReplicaView(NamedTuple):
    """An in-sync follower that has the fetch offset."""

    broker: int
    rack: str | None
    leo: int
    caught_up_ms: int


def nearest(
    candidates: Iterable[ReplicaView], *, leader_rack: str | None, client_rack: str
) -> int | None:
    """The follower to read from; None means the leader."""
    if not client_rack or leader_rack == client_rack:
        return None
    near = [candidate for candidate in candidates if candidate.rack == client_rack]
    best = max(near, key=lambda c: (c.leo, c.caught_up_ms, -c.broker), default=None)
    return best.broker if best is not None else None
