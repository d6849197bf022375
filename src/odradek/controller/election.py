"""Leader election: the strategies, as rules on values.

A rule here gets what it needs as arguments and returns its verdict. It does not know
the coordination store, the state machines, metrics or the clock: the caller counts,
logs, stores and sends requests.

    first        a new partition: first live replica; the ISR is all that live
    offline      first live replica of the ISR; with unclean election allowed, else any
    preferred    the first replica of the assignment, if live and in sync
    reassign     first live replica of the target assignment that is in sync
    controlled   first live one in sync which is not on a broker being shut down

Every rule walks the assignment in its order, so that equal inputs elect equal leaders
and leadership falls back to the preferred replica when it can. None means: no replica may lead
by this rule.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple


class Elected(NamedTuple):
    """The verdict: a leader, and the ISR with which it starts."""

    leader: int
    isr: tuple[int, ...]


def elect_first(*, assigned: Sequence[int], live: Collection[int]) -> Elected | None:
    """Choose the first leader of a partition: without records, all online replicas are in sync."""
    isr = tuple(r for r in assigned if r in live)
    return Elected(isr[0], isr) if isr else None


def elect_when_offline(
    *, assigned: Sequence[int], isr: Sequence[int], live: Collection[int], unclean_allowed: bool
) -> Elected | None:
    """Choose a leader for a partition that has none; None if it has to stay offline."""
    for replica in assigned:
        if replica in live and replica in isr:
            return Elected(replica, tuple(r for r in isr if r in live))
    if not unclean_allowed:
        return None
    for replica in assigned:
        if replica in live:
            # No other replica is in sync with a leader that may lack committed records.
            return Elected(replica, (replica,))
    return None


def elect_preferred(
    *, assigned: Sequence[int], isr: Sequence[int], live: Collection[int]
) -> Elected | None:
    """Choose the first assigned replica, if it may lead now."""
    preferred = assigned[0]
    return Elected(preferred, tuple(isr)) if preferred in live and preferred in isr else None


def elect_for_reassignment(
    *, target: Sequence[int], isr: Sequence[int], live: Collection[int]
) -> Elected | None:
    """Move leadership into the target assignment."""
    for replica in target:
        if replica in live and replica in isr:
            return Elected(replica, tuple(isr))
    return None


def elect_for_shutdown(
    *,
    assigned: Sequence[int],
    isr: Sequence[int],
    live: Collection[int],
    shutting_down: Collection[int],
) -> Elected | None:
    """Move leadership away from brokers that leave, and take them out of the ISR."""
    for replica in assigned:
        if replica in live and replica in isr and replica not in shutting_down:
            return Elected(replica, tuple(r for r in isr if r not in shutting_down))
    return None
