"""The committed offsets of one group: committed, staged, and pending in transactions.

    staged       the record is appended, and not yet on all in-sync replicas
    pending      the same within a transaction: committed with its commit marker
    committed    what OffsetFetch answers

Of two commits the one that was appended later counts, whichever is settled first: so a replay of
the log gives the same offsets. A staged commit whose append failed or timed out is dropped, as in
Kafka; the client got the error and commits again. A pending one that timed out is kept: it is in
the log before its marker, and a replay commits it.

Several commits for one partition may be staged at the same time. Each is settled by itself, so one
that fails does not drop the others. (Apache Kafka 3.9 keeps only the last of them:
`GroupMetadata.pendingOffsetCommits`.)
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, pairwise

from odradek.group.records import NO_TIMESTAMP, CommittedOffset
from odradek.model.clock import WallMs
from odradek.model.invariants import hold
from odradek.model.partition import TopicPartition

OffsetsByPartition = Mapping[TopicPartition, CommittedOffset]


def can_expire(*, is_staged: bool, is_pending: bool) -> bool:
    """Whether the offset of a partition may expire, whatever its age.

    It may not while another commit for the partition is staged or pending:

    1. A producer commits an offset in a transaction; the record is in the log.
    2. The committed offset of before expires: a tombstone is appended behind that record.
    3. The log is compacted, which keeps the tombstone only.
    4. The commit marker is written. The next coordinator finds no offset.

    As Kafka since 4.0 (`OffsetMetadataManager`); 3.9 checks staged commits only.
    """
    return not (is_staged or is_pending)


def unsettled(
    commits: Sequence[CommittedOffset], settled: CommittedOffset
) -> list[CommittedOffset]:
    """The commits for one partition without the one that is settled."""
    return [commit for commit in commits if commit is not settled]


class Offsets:
    """All offsets of one group."""

    __slots__ = ("_pending", "_staged", "committed")

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, CommittedOffset] = {}
        # In the order of the log. Pending ones before the last that is known to be in the log are
        # dropped.
        self._staged: dict[TopicPartition, list[CommittedOffset]] = {}
        self._pending: dict[int, dict[TopicPartition, list[CommittedOffset]]] = {}  # by producer id

    def __bool__(self) -> bool:
        return bool(self.committed or self._staged or self._pending)

    def partitions(self) -> list[TopicPartition]:
        """All partitions with an offset that is committed, staged or pending."""
        return list(dict.fromkeys(chain(self.committed, self._staged, *self._pending.values())))

    def is_unstable(self, partition: TopicPartition) -> bool:
        """Whether a commit is staged or pending that may change the committed offset."""
        return partition in self._staged or self._is_pending(partition)

    def _is_pending(self, partition: TopicPartition) -> bool:
        return any(partition in pending for pending in self._pending.values())

    def validate(self, group: str) -> None:
        """Check what holds after every event.

        Raises:
            InvariantError: something does not hold.
        """
        for producer_id, pending in self._pending.items():
            hold(bool(pending), group, "nothing is pending of producer %s", producer_id)
        for by_partition in (self._staged, *self._pending.values()):
            for partition, commits in by_partition.items():
                ordered = all(first.order < second.order for first, second in pairwise(commits))
                hold(bool(commits) and ordered, group, "%s: %s", partition, commits)

    def pending_producers(self) -> Iterable[int]:
        return self._pending.keys()

    # ------------------------------------------------------------------------ commits

    def stage(self, commits: OffsetsByPartition) -> None:
        for partition, commit in commits.items():
            self._staged.setdefault(partition, []).append(commit)

    def settle(self, commits: OffsetsByPartition, *, appended: bool) -> None:
        """Commits are on all in-sync replicas (`appended`), or failed."""
        for partition, commit in commits.items():
            staged = self._staged.get(partition, ())
            if commit not in staged:
                continue  # deleted meanwhile, with its topic or group
            if appended:
                self._enter(partition, commit)
            if len(staged) == 1:
                del self._staged[partition]
            else:
                self._staged[partition] = unsettled(staged, commit)

    def _enter(self, partition: TopicPartition, commit: CommittedOffset) -> None:
        before = self.committed.get(partition)
        if before is None or before.order < commit.order:
            self.committed[partition] = commit

    # ------------------------------------------------------------------- transactions

    def stage_in_transaction(self, producer_id: int, commits: OffsetsByPartition) -> None:
        """Commits are appended to the log within a transaction."""
        pending = self._pending.setdefault(producer_id, {})
        for partition, commit in commits.items():
            pending.setdefault(partition, []).append(commit)

    def settle_in_transaction(
        self, producer_id: int, commits: OffsetsByPartition, *, appended: bool
    ) -> None:
        """Commits of a transaction are on all in-sync replicas (`appended`), or failed."""
        pending = self._pending.get(producer_id, {})
        for partition, commit in commits.items():
            staged = pending.get(partition, ())
            if commit not in staged:
                continue  # deleted meanwhile, or the transaction has ended
            if appended:
                pending[partition] = [each for each in staged if each.order >= commit.order]
            elif left := unsettled(staged, commit):
                pending[partition] = left
            else:
                del pending[partition]
        if not pending:
            self._pending.pop(producer_id, None)

    def transaction_ended(self, producer_id: int, *, committed: bool) -> None:
        """The marker is written: pending offsets are committed, or dropped."""
        pending = self._pending.pop(producer_id, {})
        if committed:
            for partition, commits in pending.items():
                self._enter(partition, commits[-1])

    # ------------------------------------------------------------------------ removal

    def remove(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Drop offsets, staged and pending ones, too. Returns those that were there."""
        removed = []
        for partition in partitions:
            was_staged = self._staged.pop(partition, None) is not None
            was_pending = False
            for producer_id in list(self._pending):
                pending = self._pending[producer_id]
                was_pending = pending.pop(partition, None) is not None or was_pending
                if not pending:
                    del self._pending[producer_id]
            if self.committed.pop(partition, None) is not None or was_staged or was_pending:
                removed.append(partition)
        return removed

    def remove_all(self) -> list[TopicPartition]:
        """Drop all offsets. Returns their partitions."""
        partitions = self.partitions()
        self.committed.clear()
        self._staged.clear()
        self._pending.clear()
        return partitions

    def expired(
        self,
        *,
        wall_ms: WallMs,
        retention_ms: int,
        since: Callable[[CommittedOffset], int],
        spared: frozenset[str] = frozenset(),
    ) -> list[TopicPartition]:
        """Offsets whose retention, counted from `since`, is over; not of the topics `spared`."""
        return [
            partition
            for partition, commit in self.committed.items()
            if partition[0] not in spared
            and (
                wall_ms - since(commit) >= retention_ms
                if commit.expire_timestamp_ms == NO_TIMESTAMP
                else wall_ms >= commit.expire_timestamp_ms
            )
            and can_expire(
                is_staged=partition in self._staged, is_pending=self._is_pending(partition)
            )
        ]
