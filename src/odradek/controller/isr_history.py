"""The last replica standing: who may lead when all that are in sync have lost their page cache.

An ISR shrinks to one broker, whose host then loses power. It comes back without its tail, as the
only member of the ISR; were it elected, the others would cut what they still have (KIP-966 tells
the story; Apache Kafka with ZooKeeper has no cure for it). Here

    doubtful     is a member of the ISR that was restarted since, and not after a clean stop
    remembered   is, for each partition that has one replica in sync or no leader, who left the ISR
                 before, how large it was from then on, and up to which transaction of the store
                 each of them was known to hold everything (`IsrHistory`)
    asked        are all replicas that are there, for the leader epoch and the end of their logs
    elected      is the one of these that reaches furthest, as soon as one was heard who has
                 everything that can have been committed, or so many of those who should have it
                 (`min.insync.replicas`) that not all of them can have lost power at once
    emptied      is one that lost its log with a directory: it is not heard, and does not lead while
                 another replica may have something. If all in the ISR are, those that left last
                 are waited for: what only the ISR had is gone

What was committed is on everybody who was in the ISR while it had `min.insync.replicas` members,
for below that the high watermark does not move. Of the logs of two who were in the last ISRs the
one with the later last epoch, or the same and the larger end, holds what was committed in the
other. That does not hold for a stranger, who left before: a leader may commit what was written in
an earlier epoch without writing anything in its own, and the stranger may have led in between, and
have written what nobody else ever had. His word counts within the same epoch alone, where one log
is the beginning of the other; or if none of those who should know has anything, for nothing is the
beginning of every log. A log that is empty because all in it was deleted knows of no epoch,
but below its end everything was committed: who ends before that has lost some of it.

A history is believed only if the state it belongs to is the one that stands: the same partition
epoch, written by the same controller. It is written in one transaction with that state: written
before it, it would take the place of the one that is still in force. What another kind of
controller has written since makes it void. In a cluster with brokers of another kind all this is
off: nobody can tell how they stopped.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Left(NamedTuple):
    """A replica that left the ISR."""

    isr_size: int  # the largest that the ISR has been since
    transaction_id: int  # until when it was in it


@dataclass(frozen=True, slots=True)
class IsrHistory:
    """What is remembered of one partition, beside its state."""

    partition_epoch: int
    controller_epoch: int
    left: Mapping[int, Left] = field(default_factory=dict)
    # Members of the ISR of a partition without a leader: until when they held everything.
    isr: Mapping[int, int] = field(default_factory=dict)


class LogEnd(NamedTuple):
    """Where a replica's log ends; compared as it stands."""

    leader_epoch: int
    end_offset: int


NO_LOG = LogEnd(-1, 0)


def next_history(
    *,
    before: IsrHistory | None,
    isr_before: Collection[int],
    isr: Collection[int],
    transaction_id: int,
    leads: bool,
) -> tuple[dict[int, Left], dict[int, int]]:
    """Tell what to remember with the next state: who has left, who was in sync until when.

    `before` is the valid history of the present state, `transaction_id` the one that wrote it.
    """
    known = dict(before.isr) if before else {}
    left = {
        replica: Left(max(gone.isr_size, len(isr)), gone.transaction_id)
        for replica, gone in (before.left if before else {}).items()
        if replica not in isr
    }
    for replica in isr_before:
        if replica not in isr:
            left[replica] = Left(len(isr), known.get(replica, transaction_id))
    in_sync = {} if leads else {r: known.get(r, transaction_id) for r in isr}
    return left, in_sync


def holders(isr: Collection[int], history: IsrHistory | None) -> frozenset[int]:
    """Who has everything that two or more had to acknowledge: the ISR, and who left one alone."""
    left = history.left if history else {}
    return frozenset(isr) | {replica for replica, gone in left.items() if gone.isr_size == 1}


def choose(  # noqa: PLR0913 - what an election by log ends goes by
    *,
    ends: Mapping[int, LogEnd],
    isr: Collection[int],
    history: IsrHistory | None,
    sound: Collection[int],
    isr_min: int,
    assigned: Collection[int],
    emptied: Collection[int] = (),
) -> int | None:
    """Find the replica to lead; None while somebody has to be waited for.

    `ends` are of those who were heard; `sound` those of the remembered who have lost nothing;
    `emptied` those that lost their log with a directory.
    """
    # Who is no replica any more has deleted what he had: nobody need wait for him.
    left = {r: gone for r, gone in history.left.items() if r in assigned} if history else {}
    if any(r not in emptied for r in assigned):
        ends = {replica: end for replica, end in ends.items() if replica not in emptied}
        left = {replica: gone for replica, gone in left.items() if replica not in emptied}
        isr = [r for r in isr if r not in emptied] or _last_to_leave(left, assigned, emptied)
    expected = set(isr) | {replica for replica, gone in left.items() if gone.isr_size < isr_min}
    heard = expected & ends.keys()
    if not ends or not (heard & set(sound) or len(heard) >= min(isr_min, len(expected))):
        return None
    order = {replica: place for place, replica in enumerate(assigned)}
    emptied_at = [end for epoch, end in ends.values() if epoch == NO_LOG.leader_epoch]
    whole = {r for r, end in ends.items() if end.end_offset >= max(emptied_at, default=0)}

    def reach(replica: int) -> tuple[LogEnd, bool, int]:
        return ends[replica], replica in isr, -order.get(replica, len(order))

    # Also of those who left when one was left, where that one was enough.
    trusted = set(isr) | {r for r, gone in left.items() if gone.isr_size < max(isr_min, 2)}
    best = max(trusted & whole or whole, key=reach)
    if ends[best] == NO_LOG:
        return max(whole, key=reach)
    same_epoch = [r for r in whole if ends[r].leader_epoch == ends[best].leader_epoch]
    return max(same_epoch, key=reach)


def _last_to_leave(
    left: Mapping[int, Left], assigned: Collection[int], emptied: Collection[int]
) -> list[int]:
    """Who holds most of what was committed, where all in-sync replicas have lost their logs."""
    last = max((gone.transaction_id for gone in left.values()), default=None)
    if last is None:
        return [replica for replica in assigned if replica not in emptied]
    return [replica for replica, gone in left.items() if gone.transaction_id == last]
