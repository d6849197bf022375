"""The simulated coordination store, with a listener for every change."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from odradek.coord.memory import MemoryTree
from odradek.coord.tree import Change, Draft
from odradek.model.clock import WallMs

T = TypeVar("T")


class WatchedTree(MemoryTree):
    """A `MemoryTree` that reports the changes of each transaction to one listener."""

    def __init__(self, wall_ms: Callable[[], WallMs]) -> None:
        super().__init__(wall_ms)
        self.written: Callable[[Sequence[Change]], None] = lambda _changes: None

    def write(self, change: Callable[[Draft], T]) -> T:
        drafts: list[Draft] = []

        def noted(draft: Draft) -> T:
            drafts.append(draft)
            return change(draft)

        result = super().write(noted)
        self.written(drafts[0].changes)
        return result
