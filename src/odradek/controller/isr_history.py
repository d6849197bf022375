"""Elections where every in-sync replica that is registered may lack records, decided by log ends.

The problem (KIP-966 calls it the last replica standing; Apache Kafka with ZooKeeper does not solve
it): 1. The ISR of a partition shrinks to {1}. 2. The host of broker 1 loses power, and with it the
tail of the log that was not flushed. 3. Broker 1 restarts as the only in-sync replica; were it
elected, the other replicas would truncate committed records that only they still have.

    doubtful    a member of the ISR that restarted since, and not after a clean stop
    history     for each partition with one in-sync replica or without a leader: which replicas left
                the ISR before, how large it was from then on, and up to which transaction of the
                store each of them was known to hold everything (`IsrHistory`)
    log ends    the leader epoch and offset at which logs end, of all registered replicas
    elected     is the replica with the latest end, as soon as a replica answered that has
                everything that can be committed, or so many of those that should have it
                (`min.insync.replicas`) that not all of them can have lost power at once
    emptied     a replica that lost its log with a directory: its answer does not count, and it does
                not lead while another replica may have records. If the whole ISR is emptied, the
                replicas that left it last are waited for: records that only the ISR had are lost
    put back    a replica on an older copy of its log directories lacks what was committed since: it
                is not waited for, and counts like one that left the ISR long ago

Committed records are on every replica that was in the ISR while it had `min.insync.replicas`
members, for with fewer members the high watermark does not move. Of two replicas of the last ISRs,
the log with the later last epoch, or the same epoch and the larger end, has the committed records
of both. This does not hold for a replica that left the ISR before: 1. It leads in epoch 5 and
appends a record that no other replica fetches. 2. Replica 1 is elected in epoch 6, and commits
records of epoch 4 without appending one. 3. The log of the first ends in the later epoch, and may
lack committed records. The end of such a replica counts within the same epoch only, where one log
is a prefix of the other; or if no replica of the last ISRs has any record. A log that is empty
because retention deleted all has no epoch, but below its end everything was committed: a log that
ends before that has lost some of it.

A history is valid only with the state that it was written with: the same partition epoch, and the
same controller epoch. Both are written in one transaction: written before, the history would
replace the one that still holds. What another kind of controller writes makes it void. In a
cluster with brokers of another kind none of this is used: it is not known how they stopped.
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
    """The replicas of a partition's last ISRs; stored beside its state."""

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
    """The history of the next state: the replicas that left, and until when each was in sync.

    `before` is the valid history of the present state, `transaction_id` the one that wrote it.
    """
    known = dict(before.isr) if before else {}
    left = {
        replica: Left(max(was.isr_size, len(isr)), was.transaction_id)
        for replica, was in (before.left if before else {}).items()
        if replica not in isr
    }
    for replica in isr_before:
        if replica not in isr:
            left[replica] = Left(len(isr), known.get(replica, transaction_id))
    in_sync = {} if leads else {r: known.get(r, transaction_id) for r in isr}
    return left, in_sync


def holders(isr: Collection[int], history: IsrHistory | None) -> frozenset[int]:
    """The replicas with all that two or more acknowledged: the ISR, and the last that left it."""
    left = history.left if history else {}
    return frozenset(isr) | {replica for replica, was in left.items() if was.isr_size == 1}


def choose(  # noqa: PLR0913 - what an election by log ends goes by
    *,
    ends: Mapping[int, LogEnd],
    isr: Collection[int],
    history: IsrHistory | None,
    sound: Collection[int],
    isr_min: int,
    assigned: Collection[int],
    emptied: Collection[int] = (),
    put_back: Collection[int] = (),
) -> int | None:
    """The replica to elect; None while another one has to be waited for.

    `ends` are those that were reported; `sound` are replicas of the history that lost nothing;
    `emptied` those that lost their log with a directory, `put_back` those whose log is an older
    copy of itself.
    """
    # A broker that is not assigned any more has deleted its log: it is not waited for.
    left = {r: was for r, was in history.left.items() if r in assigned} if history else {}
    if any(r not in emptied for r in assigned):
        ends = {replica: end for replica, end in ends.items() if replica not in emptied}
        lacking = {*emptied, *put_back}
        if lacking.issuperset(assigned):  # nobody has more than what was put back
            lacking = set(emptied)
        left = {replica: was for replica, was in left.items() if replica not in lacking}
        isr = [r for r in isr if r not in lacking] or _last_to_leave(left, assigned, lacking)
    expected = set(isr) | {replica for replica, was in left.items() if was.isr_size < isr_min}
    reported = expected & ends.keys()
    if not ends or not (reported & set(sound) or len(reported) >= min(isr_min, len(expected))):
        return None
    order = {replica: place for place, replica in enumerate(assigned)}
    emptied_at = [end for epoch, end in ends.values() if epoch == NO_LOG.leader_epoch]
    whole = {r for r, end in ends.items() if end.end_offset >= max(emptied_at, default=0)}

    def reach(replica: int) -> tuple[LogEnd, bool, int]:
        return ends[replica], replica in isr, -order.get(replica, len(order))

    # Also those that left when one replica was left, where one was enough to commit.
    trusted = set(isr) | {r for r, was in left.items() if was.isr_size < max(isr_min, 2)}
    best = max(trusted & whole or whole, key=reach)
    if ends[best] == NO_LOG:
        return max(whole, key=reach)
    same_epoch = [r for r in whole if ends[r].leader_epoch == ends[best].leader_epoch]
    return max(same_epoch, key=reach)


def _last_to_leave(
    left: Mapping[int, Left], assigned: Collection[int], emptied: Collection[int]
) -> list[int]:
    """The replicas with most of what was committed, if all in-sync replicas lost their logs."""
    last = max((was.transaction_id for was in left.values()), default=None)
    if last is None:
        return [replica for replica in assigned if replica not in emptied]
    return [replica for replica, was in left.items() if was.transaction_id == last]
