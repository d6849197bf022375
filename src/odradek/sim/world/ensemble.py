"""The simulated coordination store, with a listener for every change."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from odradek.coord import layout, layout_odradek
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

    def put_back_except_topics(self, copy: StoreCopy) -> None:
        """Put back a copy as if it had been made after the last change of topics and options.

        So clients still find the topics that they use; states of partitions, epochs, producer ids
        and counters are those of the copy.
        """
        nodes = {path: node for path, node in copy.nodes.items() if not _is_kept(path)}
        nodes |= {path: node for path, node in self._nodes.items() if _is_kept(path)}
        for path, node in copy.nodes.items():
            topic = layout.topic_path(_topic_of(path))
            if (
                _topic_of(path)
                and path in nodes
                and topic in nodes
                and topic in copy.nodes
                and nodes[topic].created_id == copy.nodes[topic].created_id
            ):
                nodes[path] = node
        self.put_back(StoreCopy(nodes, self._last_transaction_id))

    def write(self, change: Callable[[Draft], T]) -> T:
        drafts: list[Draft] = []

        def noted(draft: Draft) -> T:
            drafts.append(draft)
            return change(draft)

        result = super().write(noted)
        self.written(drafts[0].changes)
        return result


_KEPT: Final = ("/admin", "/config", layout.TOPICS, layout_odradek.ISR)


def _is_kept(path: str) -> bool:
    return any(path == root or path.startswith(f"{root}/") for root in _KEPT)


def _topic_of(path: str) -> str:
    """The topic of a partition's state, or of its ISR history; empty for other nodes."""
    words = path.split("/")
    if path.startswith(f"{layout.TOPICS}/") and words[-1] == "state":
        return words[3]
    if path.startswith(f"{layout_odradek.ISR}/"):
        return words[3].rpartition("-")[0]
    return ""
