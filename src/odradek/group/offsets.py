"""The positions of one group: committed, on their way, and pending in transactions.

    staged       its record was appended, and is not on all replicas yet
    pending      the same within a transaction: it counts when the marker lands
    committed    what a consumer is told

What was appended later counts, also if its transaction ended sooner: so the log read from its
beginning gives the same positions. A staged position whose write failed or was not confirmed in
time is dropped, as in Kafka; the client was told so and commits again. A pending one that timed
out is kept, for it stands in the log before its marker, and whoever replays the log counts it.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import chain

from odradek.group.records import NO_TIMESTAMP, Committed

Place = tuple[str, int]  # topic, partition
Commits = Mapping[Place, Committed]


class Offsets:
    """All positions of one group."""

    __slots__ = ("_pending", "_staged", "committed")

    def __init__(self) -> None:
        self.committed: dict[Place, Committed] = {}
        self._staged: dict[Place, Committed] = {}  # the last of each place
        self._pending: dict[int, dict[Place, Committed]] = {}  # by producer id

    def __bool__(self) -> bool:
        return bool(self.committed or self._staged or self._pending)

    def places(self) -> list[Place]:
        """Everything of which something is known, or on its way."""
        return list(dict.fromkeys(chain(self.committed, self._staged, *self._pending.values())))

    def is_unstable(self, place: Place) -> bool:
        """Something is on its way that may change what is told of this place."""
        return place in self._staged or any(place in pending for pending in self._pending.values())

    # ------------------------------------------------------------------------ commits

    def stage(self, commits: Commits) -> None:
        """These were handed to the log."""
        self._staged.update(commits)

    def settle(self, commits: Commits, *, appended: bool) -> None:
        """What became of them."""
        for place, commit in commits.items():
            staged = self._staged.get(place)
            if staged is None:
                continue  # deleted meanwhile, with its topic
            if appended:
                self._enter(place, commit)
            if staged is commit:
                del self._staged[place]

    def _enter(self, place: Place, commit: Committed) -> None:
        known = self.committed.get(place)
        if known is None or known.order < commit.order:
            self.committed[place] = commit

    # ------------------------------------------------------------------- transactions

    def stage_in_transaction(self, producer_id: int, commits: Commits) -> None:
        """These were handed to the log, or stand in it, within a transaction."""
        self._pending.setdefault(producer_id, {}).update(commits)

    def drop_from_transaction(self, producer_id: int, commits: Commits) -> None:
        """These were never appended."""
        pending = self._pending.get(producer_id, {})
        for place, commit in commits.items():
            if pending.get(place) is commit:
                del pending[place]
        if not pending:
            self._pending.pop(producer_id, None)

    def transaction_ended(self, producer_id: int, *, committed: bool) -> None:
        """The marker has landed."""
        pending = self._pending.pop(producer_id, {})
        if committed:
            for place, commit in pending.items():
                self._enter(place, commit)

    # ------------------------------------------------------------------------ removal

    def remove(self, places: Iterable[Place]) -> list[Place]:
        """These are not to be remembered any longer. Returns those that were."""
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
        """Nothing is to be remembered. Returns what was."""
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
        """Those whose time is over, counted from `since`; not of the topics `spared`."""
        return [
            place
            for place, commit in self.committed.items()
            if place[0] not in spared
            and place not in self._staged
            and (
                wall_ms - since(commit) >= retention_ms
                if commit.expire_timestamp_ms == NO_TIMESTAMP
                else wall_ms >= commit.expire_timestamp_ms
            )
        ]
