"""One-shot watches: which watchers to call for which changes.

Pure. A watcher that is set twice on the same node is called once, as with ZooKeeper.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from odradek.coord.store import Watcher
from odradek.coord.tree import Change, ChangeKind, parent_of

T = TypeVar("T")


@dataclass(frozen=True)
class Watch(Generic[T]):
    """A watcher that equals each one with the same call: it is kept once, and called once.

    The node of a broker that stays registered never changes, and is read, and watched, each time
    another broker is registered. Watchers that differ would collect there.
    """

    call: Callable[[T], None]
    about: T

    def __call__(self) -> None:
        self.call(self.about)


class Watches:
    """The watches of one session, by path."""

    def __init__(self) -> None:
        # Dicts as ordered sets: watchers are called in the order in which they were set.
        self._data: dict[str, dict[Watcher, None]] = {}
        self._children: dict[str, dict[Watcher, None]] = {}

    def watch_data(self, path: str, watcher: Watcher) -> None:
        """Call `watcher` when the node is created, written or removed."""
        self._data.setdefault(path, {})[watcher] = None

    def watch_children(self, path: str, watcher: Watcher) -> None:
        """Call `watcher` when a child is created or removed, or the node itself is removed."""
        self._children.setdefault(path, {})[watcher] = None

    def fired_by(self, changes: Iterable[Change]) -> list[Watcher]:
        """The watchers to call, in order; they are removed here."""
        fired: list[Watcher] = []
        for path, kind in changes:
            fired += self._data.pop(path, ())
            if kind is ChangeKind.WRITTEN:
                continue
            if kind is ChangeKind.DELETED:
                fired += self._children.pop(path, ())
            fired += self._children.pop(parent_of(path), ())
        return fired

    def fired_by_children_of(self, path: str) -> list[Watcher]:
        """The watchers to call where only the parent of the changed node is known."""
        return list(self._children.pop(path, ()))

    def all_fired(self) -> list[Watcher]:
        """Remove and return all of them, for a reader that does not have every change."""
        fired = [
            w for watchers in (self._data, self._children) for s in watchers.values() for w in s
        ]
        self.clear()
        return fired

    def clear(self) -> None:
        """Remove all without calling them: the session has ended."""
        self._data.clear()
        self._children.clear()
