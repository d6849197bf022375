"""From which replica a consumer had best read (KIP-392).

The leader, unless the consumer says in which rack it is, no leader is there, and another replica
is: then that one of them that reaches furthest, and of those that reach as far who caught up last.
Only who is in sync and has what is asked for comes into question.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER: Final = "org.apache.kafka.common.replica.LeaderSelector"


class Candidate(NamedTuple):
    """A follower that has what is asked for."""

    broker: int
    rack: str | None
    leo: int
    caught_up_ms: int


def nearest(
    candidates: Iterable[Candidate], *, leader_rack: str | None, client_rack: str
) -> int | None:
    """The follower to read from; None for the leader."""
    if not client_rack or leader_rack == client_rack:
        return None
    near = [candidate for candidate in candidates if candidate.rack == client_rack]
    best = max(near, key=lambda c: (c.leo, c.caught_up_ms, -c.broker), default=None)
    return best.broker if best is not None else None
