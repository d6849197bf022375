"""The simulated coordination store, with a listener for every change."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from odradek.coord.memory import MemoryTree
from odradek.coord.tree import ROOT, Change, Draft, TreeNode, name_of, parent_of
from odradek.model.clock import WallMs

T = TypeVar("T")


class StoreCopy(NamedTuple):
    """A backup of the store: its nodes, and the last transaction in it."""

    nodes: Mapping[str, TreeNode]
    last_transaction_id: int


class WatchedTree(MemoryTree):
    """A `MemoryTree` that reports the changes of each transaction to one listener."""

    def __init__(self, wall_ms: Callable[[], WallMs]) -> None:
        super().__init__(wall_ms)
        self.put_back_at = -1  # the last transaction of the copy that was put back last; -1: none
        self.written: Callable[[Sequence[Change]], None] = lambda _changes: None

    def copy(self) -> StoreCopy:
        """A consistent copy, as a backup takes it."""
        return StoreCopy(dict(self._nodes), self._last_transaction_id)

    def put_back(self, copy: StoreCopy) -> None:
        """Replace everything by a copy, as an administrator does: every session is over.

        Transaction ids continue after those of the copy, so that they are given out again.
        """
        for session in list(self._sessions):
            self.expire(session)
        self._nodes = dict(copy.nodes)
        self._names = {}
        for path in self._nodes:
            if path != ROOT:
                self._names.setdefault(parent_of(path), set()).add(name_of(path))
        self._last_transaction_id = self.put_back_at = copy.last_transaction_id
        # The sessions of the copy time out: nobody has them.
        owned = sorted(path for path, node in self._nodes.items() if node.owner)
        if owned:
            self.write(lambda draft: draft.expire(owned))

    def write(self, change: Callable[[Draft], T]) -> T:
        drafts: list[Draft] = []

        def noted(draft: Draft) -> T:
            drafts.append(draft)
            return change(draft)

        result = super().write(noted)
        self.written(drafts[0].changes)
        return result
