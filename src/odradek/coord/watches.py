"""One-shot watches: who wants to hear of the next change of which node.

Pure. A watcher that is set twice on the same node hears once, as with ZooKeeper.
"""

from collections.abc import Iterable

from odradek.coord.store import Watcher
from odradek.coord.tree import Change, ChangeKind, parent_of


class Watches:
    """The watches of one session, by what they wait for."""

    def __init__(self) -> None:
        # Dicts, for they are sets that keep the order in which watches were set.
        self._data: dict[str, dict[Watcher, None]] = {}
        self._children: dict[str, dict[Watcher, None]] = {}

    def watch_data(self, path: str, watcher: Watcher) -> None:
        """Tell when the node comes, is written or goes."""
        self._data.setdefault(path, {})[watcher] = None

    def watch_children(self, path: str, watcher: Watcher) -> None:
        """Tell when a child comes or goes, or the node itself goes."""
        self._children.setdefault(path, {})[watcher] = None

    def fired_by(self, changes: Iterable[Change]) -> list[Watcher]:
        """The watchers to call, in order; they are forgotten here."""
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
        """The same where no more is known than that a child came or went."""
        return list(self._children.pop(path, ()))

    def all_fired(self) -> list[Watcher]:
        """All of them, for a reader that lost track of the changes."""
        fired = [
            w for watchers in (self._data, self._children) for s in watchers.values() for w in s
        ]
        self.clear()
        return fired

    def clear(self) -> None:
        """Forget all: the session is over."""
        self._data.clear()
        self._children.clear()
