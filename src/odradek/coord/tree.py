"""The rules of the tree: what each operation does to its nodes, wherever these are stored.

Pure. The stores in memory and in SQLite differ in where nodes are stored and how changes are
delivered; what a create, a write, a delete, a check or a multi means is decided here once, as
ZooKeeper does:

* every successful multi has a transaction id of its own, which all its operations share;
* a node's version counts its writes, beginning with 0;
* a sequential node is named by the number of children its parent has ever had;
* an ephemeral node belongs to a session and has no children.

A `Draft` collects changes over nodes that it only reads. A multi that fails changes nothing in it.
"""

from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Final, NamedTuple, assert_never, overload

from odradek.coord.store import (
    ANY_VERSION,
    BadVersionError,
    Check,
    Create,
    Delete,
    MultiError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    Result,
    SetData,
    Stat,
    StoreError,
)
from odradek.model.clock import WallMs

ROOT: Final = "/"


class TreeNode(NamedTuple):
    """One node. Replaced as a whole, never changed: a draft may have another one for the path."""

    data: bytes | None
    version: int
    created_id: int
    modified_id: int
    created_ms: int
    modified_ms: int
    owner: int  # session id, 0 if the node is persistent
    children_count: int
    creations: int  # the number of children ever created

    def stat(self) -> Stat:
        """The node's metadata for a reader."""
        return Stat(
            version=self.version,
            created_id=self.created_id,
            modified_id=self.modified_id,
            created_ms=self.created_ms,
            modified_ms=self.modified_ms,
            ephemeral_owner=self.owner,
            data_length=len(self.data or b""),
            children_count=self.children_count,
            # ZooKeeper's cversion counts creations and deletions.
            children_version=2 * self.creations - self.children_count,
        )


EMPTY_ROOT: Final = TreeNode(b"", 0, 0, 0, 0, 0, 0, 0, 0)


class ChangeKind(IntEnum):
    """What happened to a node."""

    CREATED = 0
    WRITTEN = 1
    DELETED = 2


class Change(NamedTuple):
    """A change of one node, for the watches."""

    path: str
    kind: ChangeKind


def parent_of(path: str) -> str:
    """The path of the parent."""
    return path.rpartition("/")[0] or ROOT


def name_of(path: str) -> str:
    """The last part of a path."""
    return path.rpartition("/")[2]


@lru_cache(maxsize=10_000)  # a refused path is not cached: exceptions are not
def check_path(path: str) -> None:
    """Refuse a path that is not absolute.

    Raises:
        StoreError: with the path and the rule.
    """
    if path == ROOT:
        return
    if not path.startswith("/") or any(part in ("", ".", "..") for part in path[1:].split("/")):
        raise StoreError(f"path {path!r}: must be absolute, without empty, '.' or '..' parts")


class Draft:
    """Changes to be committed together: what several multis do to the nodes that `find` returns."""

    def __init__(
        self, find: Callable[[str], TreeNode | None], *, last_transaction_id: int, wall_ms: WallMs
    ) -> None:
        self._find = find
        self._wall_ms = wall_ms
        self.last_transaction_id = last_transaction_id
        self.nodes: dict[str, TreeNode | None] = {}  # None: deleted
        self.changes: list[Change] = []

    def multi(self, operations: Sequence[Operation], *, session: int) -> list[Result]:
        """Apply all of the operations.

        Raises:
            MultiError: one of them cannot be applied, and none was.
        """
        step = _Step(self._find_drafted, self.last_transaction_id + 1, self._wall_ms, session)
        results: list[Result] = []
        for index, operation in enumerate(operations):
            try:
                results.append(step.apply(operation))
            except StoreError as error:
                raise MultiError(index, error) from error
        self._accept(step)
        return results

    @overload
    def single(self, operation: Create, *, session: int) -> str: ...
    @overload
    def single(self, operation: SetData, *, session: int) -> Stat: ...
    @overload
    def single(self, operation: Delete | Check, *, session: int) -> None: ...
    def single(self, operation: Operation, *, session: int) -> Result:
        """Apply one operation.

        Raises:
            StoreError: it cannot be applied.
        """
        step = _Step(self._find_drafted, self.last_transaction_id + 1, self._wall_ms, session)
        result = step.apply(operation)
        self._accept(step)
        return result

    def create_with_parents(self, operation: Create, *, session: int) -> str:
        """Create a node and its missing ancestors."""
        missing = []
        parent = parent_of(operation.path)
        while self._find_drafted(parent) is None:
            missing.append(parent)
            parent = parent_of(parent)
        check_path(operation.path)
        step = _Step(self._find_drafted, self.last_transaction_id + 1, self._wall_ms, session)
        for path in reversed(missing):
            step.create(Create(path))
        made = step.create(operation)
        self._accept(step)
        return made

    def expire(self, ephemerals: Sequence[str]) -> None:
        """Remove the ephemeral nodes of a session that has ended."""
        step = _Step(self._find_drafted, self.last_transaction_id + 1, self._wall_ms, 0)
        for path in ephemerals:
            step.apply(Delete(path))
        self._accept(step)

    def _find_drafted(self, path: str) -> TreeNode | None:
        return self.nodes[path] if path in self.nodes else self._find(path)

    def _accept(self, step: "_Step") -> None:
        if step.changes:  # a multi of checks only is not a transaction
            self.last_transaction_id += 1
        self.nodes |= step.nodes
        self.changes += step.changes


class _Step:
    """One multi while its operations are applied."""

    def __init__(
        self,
        find: Callable[[str], TreeNode | None],
        transaction_id: int,
        wall_ms: WallMs,
        session: int,
    ) -> None:
        self._find = find
        self._transaction_id = transaction_id
        self._wall_ms = wall_ms
        self._session = session
        self.nodes: dict[str, TreeNode | None] = {}
        self.changes: list[Change] = []

    def apply(self, operation: Operation) -> Result:
        check_path(operation.path)
        match operation:
            case Create():
                return self.create(operation)
            case SetData(path, data, version):
                node = self._expect(path, version)._replace(
                    data=data, modified_id=self._transaction_id, modified_ms=self._wall_ms
                )
                node = node._replace(version=node.version + 1)
                self._put(path, node, ChangeKind.WRITTEN)
                return node.stat()
            case Delete(path, version):
                self._delete(path, version)
                return None
            case Check(path, version):
                self._expect(path, version)
                return None
            case _:
                assert_never(operation)

    def create(self, operation: Create) -> str:
        path = operation.path
        parent_path = parent_of(path)
        parent = self._get(parent_path)
        if parent is None:
            raise NoNodeError(f"{path}: its parent {parent_path} does not exist")
        if parent.owner:
            raise StoreError(f"{path}: its parent is ephemeral, and can have no children")
        if operation.sequential:
            path = f"{path}{parent.creations:010d}"
        if self._get(path) is not None:
            raise NodeExistsError(f"{path} exists already")
        self.nodes[parent_path] = parent._replace(
            children_count=parent.children_count + 1, creations=parent.creations + 1
        )
        node = EMPTY_ROOT._replace(
            data=operation.data,
            created_id=self._transaction_id,
            modified_id=self._transaction_id,
            created_ms=self._wall_ms,
            modified_ms=self._wall_ms,
            owner=self._session if operation.ephemeral else 0,
        )
        self._put(path, node, ChangeKind.CREATED)
        return path

    def _delete(self, path: str, version: int) -> None:
        if path == ROOT:
            raise StoreError("/ cannot be deleted")
        node = self._expect(path, version)
        if node.children_count:
            raise NotEmptyError(f"{path} has {node.children_count} children")
        parent = self._expect(parent_of(path), ANY_VERSION)
        self.nodes[parent_of(path)] = parent._replace(children_count=parent.children_count - 1)
        self._put(path, None, ChangeKind.DELETED)

    def _expect(self, path: str, version: int) -> TreeNode:
        node = self._get(path)
        if node is None:
            raise NoNodeError(f"{path} does not exist")
        if version not in (ANY_VERSION, node.version):
            raise BadVersionError(f"{path} has version {node.version}, not {version}")
        return node

    def _get(self, path: str) -> TreeNode | None:
        return self.nodes[path] if path in self.nodes else self._find(path)

    def _put(self, path: str, node: TreeNode | None, kind: ChangeKind) -> None:
        self.nodes[path] = node
        self.changes.append(Change(path, kind))
