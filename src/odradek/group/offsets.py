"""The committed offsets of one group: committed, staged, and pending in transactions.

    staged       the record is appended, and not yet on all in-sync replicas
    pending      the same within a transaction: it counts when the commit marker is written
    committed    what OffsetFetch answers

The commit that was appended later counts, also if its transaction ended sooner: so a replay of the
log gives the same offsets. A staged commit whose append failed or timed out is dropped, as in
Kafka; the client got the error and commits again. A pending one that timed out is kept, because it
stands in the log before its marker, and a replay counts it.

Several commits for one partition may be staged at the same time: each is settled by itself, so one
that is refused takes no other with it. (Apache Kafka 3.9 remembers only the last of them:
`GroupMetadata.pendingOffsetCommits`.)
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain

from odradek.group.records import NO_TIMESTAMP, Committed

Place = tuple[str, int]  # topic, partition
Commits = Mapping[Place, Committed]


def can_expire(*, is_staged: bool, is_pending: bool) -> bool:
    """Whether the offset of a partition may expire at all, whatever its age.

    Not while another is on its way. The tombstone would stand behind the commit in the log: a
    compaction keeps only the tombstone, and an offset that was committed in a transaction is gone
    although its marker comes later. As Kafka since 4.0 (`OffsetMetadataManager`); 3.9 spares
    staged ones.
    """
    return not (is_staged or is_pending)


def unsettled(commits: Sequence[Committed], settled: Committed) -> list[Committed]:
    """Of the commits for one partition: those that are left when one of them is settled."""
    return [commit for commit in commits if commit is not settled]


class Offsets:
    """All offsets of one group."""

    __slots__ = ("_pending", "_staged", "committed")

    def __init__(self) -> None:
        self.committed: dict[Place, Committed] = {}
        # In the order of the log. Of the pending ones, those before the last that is known to
        # stand there are dropped.
        self._staged: dict[Place, list[Committed]] = {}
        self._pending: dict[int, dict[Place, list[Committed]]] = {}  # by producer id

    def __bool__(self) -> bool:
        return bool(self.committed or self._staged or self._pending)

    def places(self) -> list[Place]:
        """All partitions with an offset that is committed, staged or pending."""
        return list(dict.fromkeys(chain(self.committed, self._staged, *self._pending.values())))

    def is_unstable(self, place: Place) -> bool:
        """Whether a commit is on its way that may change the committed offset."""
        return place in self._staged or self._is_pending(place)

    def _is_pending(self, place: Place) -> bool:
        return any(place in pending for pending in self._pending.values())

    # ------------------------------------------------------------------------ commits

    def stage(self, commits: Commits) -> None:
        """These were handed to the log."""
        for place, commit in commits.items():
            self._staged.setdefault(place, []).append(commit)

    def settle(self, commits: Commits, *, appended: bool) -> None:
        """These are on all in-sync replicas, or failed."""
        for place, commit in commits.items():
            staged = self._staged.get(place, ())
            if commit not in staged:
                continue  # deleted meanwhile, with its topic or group
            if appended:
                self._enter(place, commit)
            left = unsettled(staged, commit)
            if left:
                self._staged[place] = left
            else:
                del self._staged[place]

    def _enter(self, place: Place, commit: Committed) -> None:
        known = self.committed.get(place)
        if known is None or known.order < commit.order:
            self.committed[place] = commit

    # ------------------------------------------------------------------- transactions

    def stage_in_transaction(self, producer_id: int, commits: Commits) -> None:
        """These were handed to the log within a transaction."""
        pending = self._pending.setdefault(producer_id, {})
        for place, commit in commits.items():
            pending.setdefault(place, []).append(commit)

    def settle_in_transaction(self, producer_id: int, commits: Commits, *, appended: bool) -> None:
        """These stand in the log, or never will."""
        pending = self._pending.get(producer_id, {})
        for place, commit in commits.items():
            staged = pending.get(place, ())
            if commit not in staged:
                continue  # deleted meanwhile, or the transaction has ended
            if appended:
                pending[place] = [each for each in staged if each.order >= commit.order]
            elif left := unsettled(staged, commit):
                pending[place] = left
            else:
                del pending[place]
        if not pending:
            self._pending.pop(producer_id, None)

    def transaction_ended(self, producer_id: int, *, committed: bool) -> None:
        """The marker is written."""
        pending = self._pending.pop(producer_id, {})
        if committed:
            for place, commits in pending.items():
                self._enter(place, commits[-1])

    # ------------------------------------------------------------------------ removal

    def remove(self, places: Iterable[Place]) -> list[Place]:
        """Forget these, committed or not. Returns those that were there."""
        removed = []
        for place in places:
            was_staged = self._staged.pop(place, None) is not None
            was_pending = False
            for producer_id in list(self._pending):
                pending = self._pending[producer_id]
                was_pending = pending.pop(place, None) is not None or was_pending
                if not pending:
                    del self._pending[producer_id]
            if self.committed.pop(place, None) is not None or was_staged or was_pending:
                removed.append(place)
        return removed

    def remove_all(self) -> list[Place]:
        """Forget all of them. Returns what was there."""
        places = self.places()
        self.committed.clear()
        self._staged.clear()
        self._pending.clear()
        return places

    def expired(
        self,
        *,
        wall_ms: int,
        retention_ms: int,
        since: Callable[[Committed], int],
        spared: frozenset[str] = frozenset(),
    ) -> list[Place]:
        """Those whose retention is over, counted from `since`; not of the topics `spared`."""
        return [
            place
            for place, commit in self.committed.items()
            if place[0] not in spared
            and (
                wall_ms - since(commit) >= retention_ms
                if commit.expire_timestamp_ms == NO_TIMESTAMP
                else wall_ms >= commit.expire_timestamp_ms
            )
            and can_expire(is_staged=place in self._staged, is_pending=self._is_pending(place))
        ]
