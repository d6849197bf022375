"""The contract of the coordination store: ZooKeeper's, whichever implementation is used.

A tree of nodes, each with data and a version. What every implementation guarantees:

* **Conditional writes.** `set_data` and `delete` take the version they were derived from
  (ANY_VERSION: none); `multi` applies all of its operations or none.
* **Ephemeral nodes** exist as long as the session that created them.
* **One-shot watches.** A watch fires once for the next change after the read that set it,
  and is delivered before the reader can see the change by another read.
* **An ascending transaction id**: `Stat.created_id` (ZooKeeper: czxid) of a broker's
  registration node is its broker epoch.
* **Session expiry is an event**: `on_session_lost` is called; after it every call raises
  `SessionExpiredError` until `open` has made a new session.
* **Connection loss leaves the outcome unknown**: `ConnectionLostError` means that the
  operation may or may not have happened. A writer that gets it reads again and compares.

A watcher is called on the event loop as a plain function: it notes the event and returns, and
raises nothing. Set twice on one node it is called once.

Paths are absolute and Kafka's (`odradek.coord.layout`). Everything runs on the broker's event
loop; implementations that need threads pass their results back to it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from odradek.model.errors import OdradekError, StoreConflictError
from odradek.obs.metrics import Histogram

ANY_VERSION: Final = -1


class StoreError(OdradekError):
    """An operation on the store failed; the text contains the path."""


class NoNodeError(StoreError):
    """The node does not exist."""


class NodeExistsError(StoreError):
    """The node exists already."""


class NotEmptyError(StoreError):
    """The node still has children."""


class BadVersionError(StoreError, StoreConflictError):
    """The node's version is not the expected one."""


class SessionExpiredError(StoreError):
    """The session has expired or was closed, and its ephemeral nodes are removed."""


class ConnectionLostError(StoreError):
    """The store did not answer: the operation may or may not have happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stat:
    """A node's metadata: ZooKeeper's Stat."""

    version: int
    created_id: int  # czxid
    modified_id: int  # mzxid
    created_ms: int
    modified_ms: int
    ephemeral_owner: int  # session id, 0 if the node is persistent
    data_length: int
    children_count: int
    children_version: int = 0


class Access(NamedTuple):
    """One entry of a node's ZooKeeper ACL (not Kafka's): permissions are letters of `cdrwa`."""

    scheme: str
    id: str
    permissions: str


EVERYBODY: Final = Access("world", "anyone", "cdrwa")


@dataclass(frozen=True, slots=True)
class Create:
    """Create a node. A sequential node gets ten digits appended to its name."""

    path: str
    data: bytes | None = None
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    """Write a node's data if it has this version."""

    path: str
    data: bytes | None
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a node without children if it has this version."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Do nothing, but fail the whole `multi` unless the node has this version."""

    path: str
    version: int


Operation = Create | SetData | Delete | Check
# Of a Create: the path created; of a SetData: the node's new Stat; of the others: None.
Result = str | Stat | None

Watcher = Callable[[], None]


class MultiError(StoreError):
    """A `multi` was refused as a whole. `index` is the operation that failed, `cause` its error."""

    def __init__(self, index: int, cause: StoreError) -> None:
        super().__init__(f"operation {index} of a multi: {cause}")
        self.index = index
        self.cause = cause


@dataclass(slots=True)
class StoreCounts:
    """What happened between a broker and servers of the store since the start."""

    connects: int = 0
    disconnects: int = 0
    expiries: int = 0
    request_ms: Histogram = field(default_factory=Histogram)
    changed: Callable[[bool], None] | None = None  # called when the connection is there, or lost

    def connection(self, *, is_there: bool) -> None:
        """Count that the connection was made, or lost."""
        self.connects += is_there
        self.disconnects += not is_there
        if self.changed is not None:
            self.changed(is_there)


class Store(Protocol):
    """One broker's connection to the coordination store.

    Every coroutine may raise `SessionExpiredError` and `ConnectionLostError` besides those named.
    """

    on_session_lost: Callable[[], None] | None
    counts: StoreCounts | None  # None: the store has no servers

    @property
    def session_id(self) -> int:
        """The current session; 0 before `open` and after its expiry."""

    async def open(self) -> None:
        """Connect and begin a session (again, after an expiry).

        Raises:
            StartupError: the store cannot be used; the message says what to do.
        """

    async def close(self) -> None:
        """End the session: its ephemeral nodes are removed at once."""

    async def get(self, path: str, watch: Watcher | None = None) -> tuple[bytes | None, Stat]:
        """A node's data and Stat. `watch` fires when the data changes or the node is removed.

        Raises:
            NoNodeError: the node does not exist; no watch is set.
        """

    async def exists(self, path: str, watch: Watcher | None = None) -> Stat | None:
        """A node's Stat, or None. `watch` fires when it is created, changed or removed."""

    async def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        """The names of a node's children, sorted.

        `watch` fires when a child is created or removed, or the node itself is removed.

        Raises:
            NoNodeError: the node does not exist; no watch is set.
        """

    async def access(self, path: str) -> list[Access]:
        """A node's ZooKeeper ACL.

        Raises:
            NoNodeError: the node does not exist.
        """

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes | None, Stat] | None]:
        """Many nodes read in one pipelined step, None for those that do not exist."""

    async def create(
        self,
        path: str,
        data: bytes | None = None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        """Create a node and return its path (with the number, if sequential).

        Raises:
            NodeExistsError: it exists already.
            NoNodeError: its parent does not exist (unless `make_parents`).
        """

    async def set_data(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        """Write a node's data.

        Raises:
            NoNodeError: it does not exist.
            BadVersionError: it has another version.
        """

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Remove a node.

        Raises:
            NoNodeError: it does not exist.
            BadVersionError: it has another version.
            NotEmptyError: it has children.
        """

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        """Apply all of the operations, or none.

        Raises:
            MultiError: one operation was refused.
        """

    async def multi_many(
        self, batches: Sequence[Sequence[Operation]]
    ) -> list[list[Result] | MultiError]:
        """Many independent `multi`s in one pipelined step; each succeeds or fails on its own."""
