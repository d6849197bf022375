"""The store in memory: an ensemble for tests and the simulator, with faults on request.

A `MemoryTree` is the ensemble: nodes and sessions. A `MemoryStore` is one broker's connection to
it. Requests and answers are delivered after a delay each; answers and watch events arrive in the
order in which the tree sent them, as over one TCP connection.

Nothing here reads a clock or draws a random number: delays and losses come from `fate`, which is
called once for each request and each event; timers are the event loop's, so that a run on virtual
time is repeated exactly. Other faults:

    store.cut()             no connection to the ensemble: requests are lost, the session
                            expires at the tree when its time-out has passed
    store.restore()         ... and there is a connection again
    store.pause()           the process is stopped: nothing is delivered, no heartbeat sent
    store.resume()          ... and continues; what has arrived is delivered
    store.crash()           the process was killed; nothing is ever delivered again
    tree.expire(session)    the ensemble expires a session
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Final, NamedTuple, TypeVar

from odradek.coord.store import (
    ANY_VERSION,
    EVERYBODY,
    Access,
    ConnectionLostError,
    Create,
    Delete,
    MultiError,
    NoNodeError,
    Operation,
    Result,
    SessionExpiredError,
    SetData,
    Stat,
    StoreCounts,
    StoreError,
    Watcher,
)
from odradek.coord.tree import (
    EMPTY_ROOT,
    ROOT,
    Change,
    Draft,
    TreeNode,
    check_path,
    name_of,
    parent_of,
)
from odradek.coord.watches import Watches
from odradek.model.clock import WallMs

T = TypeVar("T")


class RequestLoss(Enum):
    """What becomes of a request when its connection breaks. The caller cannot distinguish them."""

    NONE = 0
    BEFORE = 1  # it never arrived
    AFTER = 2  # it was carried out, and the answer was lost


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFate:
    """Delays and loss of one request, or of one watch event (its answer's delay)."""

    request_delay_ms: int = 0
    answer_delay_ms: int = 0
    loss: RequestLoss = RequestLoss.NONE


SMOOTH: Final = RequestFate()


class MemoryTree:
    """The ensemble: its nodes and sessions."""

    def __init__(self, wall_ms: Callable[[], WallMs] = lambda: WallMs(0)) -> None:
        self._wall_ms = wall_ms
        self._nodes: dict[str, TreeNode] = {ROOT: EMPTY_ROOT}
        self._names: dict[str, set[str]] = {}  # names of children, by parent
        self._sessions: dict[int, MemoryStore] = {}
        self._last_transaction_id = 0
        self._last_session = 0

    def begin_session(self, store: "MemoryStore") -> int:
        self._last_session += 1
        self._sessions[self._last_session] = store
        return self._last_session

    def is_open(self, session: int) -> bool:
        """Whether a session exists and has not ended."""
        return session in self._sessions

    def expire(self, session: int) -> None:
        """End a session: its ephemeral nodes are removed, and its owner is notified."""
        store = self._sessions.pop(session, None)
        if store is None:
            return
        owned = sorted(path for path, node in self._nodes.items() if node.owner == session)
        self.write(lambda draft: draft.expire(owned))
        store.expired(session)

    def find(self, path: str) -> TreeNode | None:
        check_path(path)
        return self._nodes.get(path)

    def node(self, path: str) -> TreeNode:
        """A node that exists.

        Raises:
            NoNodeError: it does not.
        """
        node = self.find(path)
        if node is None:
            raise NoNodeError(f"{path} does not exist")
        return node

    def names(self, path: str) -> list[str]:
        """The names of a node's children, sorted."""
        return sorted(self._names.get(path, ()))

    def write(self, change: Callable[[Draft], T]) -> T:
        """Carry out a change as one transaction, and fire the watches."""
        draft = Draft(
            self._nodes.get,
            last_transaction_id=self._last_transaction_id,
            wall_ms=self._wall_ms(),
        )
        result = change(draft)
        self._last_transaction_id = draft.last_transaction_id
        for path, node in draft.nodes.items():
            if node is None:
                self._nodes.pop(path, None)
                self._names.get(parent_of(path), set()).discard(name_of(path))
            else:
                self._nodes[path] = node
                if path != ROOT:
                    self._names.setdefault(parent_of(path), set()).add(name_of(path))
        for session in sorted(self._sessions):
            self._sessions[session].changed(draft.changes)
        return result


class _Parcel(NamedTuple):
    """An answer or an event on its way to the broker."""

    due: float
    deliver: Callable[[], None]
    lose: Callable[[], None] | None  # None: an event, which is delivered after a reconnection


class MemoryStore:
    """One broker's connection; see `odradek.coord.store.Store` for the contract."""

    def __init__(
        self,
        tree: MemoryTree,
        *,
        session_timeout_ms: int = 18_000,
        fate: Callable[[str], RequestFate] = lambda _: SMOOTH,
    ) -> None:
        self.on_session_lost: Callable[[], None] | None = None
        self.counts: StoreCounts | None = None
        self._tree = tree
        self._session_timeout_ms = session_timeout_ms
        self.fate = fate  # of each request and event; it may be replaced at any time
        self._session = 0
        self._is_over = False  # as far as this side has been notified
        self._is_cut = False
        self._is_paused = False
        self._watches = Watches()
        self._arriving: deque[_Parcel] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._expiry: asyncio.TimerHandle | None = None

    @property
    def session_id(self) -> int:
        return 0 if self._is_over else self._session

    async def open(self) -> None:
        assert not self.session_id, "the session is still open"
        self._is_over = False
        self._session = 0
        self._watches.clear()
        await self._arrive("open")
        self._session = self._tree.begin_session(self)

    async def close(self) -> None:
        session, self._session = self._session, 0
        self._watches.clear()
        if not self._is_cut:  # a client that is cut off cannot close its session: it expires
            self._tree.expire(session)

    @cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        """The loop of the first request: `get_running_loop` is a system call each time."""
        return asyncio.get_running_loop()

    # -------------------------------------------------------------------------- faults

    def cut(self) -> None:
        """Break the connection until `restore`: answers on their way are lost."""
        if self._is_cut:
            return
        self._is_cut = True
        if not self._is_paused:
            self._expire_after(self._session_timeout_ms)
        arriving, self._arriving = self._arriving, deque()
        for parcel in arriving:
            if parcel.lose is not None:
                parcel.lose()
            else:
                self._arriving.append(parcel)

    def restore(self) -> None:
        """Connect again: what was missed is delivered, such as the end of the session."""
        self._is_cut = False
        self._reachable_again()

    def expire(self) -> None:
        """End the session at the tree, as its time-out does."""
        self._tree.expire(self._session)

    def pause(self) -> None:
        """Stop the process: the tree receives nothing from it."""
        if self._is_paused:
            return
        self._is_paused = True
        if not self._is_cut:
            self._expire_after(self._session_timeout_ms)

    def resume(self) -> None:
        """Continue the process, even if its session has expired meanwhile."""
        self._is_paused = False
        self._reachable_again()

    def _reachable_again(self) -> None:
        if self._is_cut or self._is_paused:
            return
        if self._expiry is not None:
            self._expiry.cancel()
        self._schedule()

    def crash(self, noticed_after_ms: int | None = None) -> None:
        """Be the connection of a process that was killed: nothing is delivered any more.

        The session expires at its time-out, or after `noticed_after_ms` (as with SQLite).
        """
        self._is_cut = True
        if self._session:
            self._expire_after(
                self._session_timeout_ms if noticed_after_ms is None else noticed_after_ms
            )
        self.on_session_lost = None
        self._watches.clear()
        self._arriving.clear()

    def _expire_after(self, delay_ms: int) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry = self._loop.call_later(delay_ms / 1000, self._tree.expire, self._session)

    # ---------------------------------------------------------------- events from the tree

    def changed(self, changes: Sequence[Change]) -> None:
        """The tree has changed: send the events of this connection's watches."""
        fired = self._watches.fired_by(changes)
        if fired:
            self._send(self.fate("watch"), lambda: _call_all(fired))

    def expired(self, session: int) -> None:
        """The tree has ended this session. The broker is notified when the event arrives."""
        if session == self._session:
            self._send(self.fate("expiry"), self._lost)

    def _lost(self) -> None:
        self._is_over = True
        self._watches.clear()
        if self.on_session_lost is not None:
            self.on_session_lost()

    # ------------------------------------------------------------------------- delivery

    def _send(
        self, fate: RequestFate, deliver: Callable[[], None], lose: Callable[[], None] | None = None
    ) -> None:
        due = self._loop.time() + fate.answer_delay_ms / 1000
        self._arriving.append(_Parcel(due, deliver, lose))
        self._schedule()

    def _schedule(self) -> None:
        if self._timer is None and self._arriving and not (self._is_cut or self._is_paused):
            self._timer = self._loop.call_at(self._arriving[0].due, self._deliver)

    def _deliver(self) -> None:
        self._timer = None
        # The clock's granularity: a timer may fire a little before the time it names.
        now = self._loop.time() + 1e-6
        # In order: nothing is delivered before what was sent before it, even if due earlier.
        while self._arriving and self._arriving[0].due <= now:
            if self._is_cut or self._is_paused:
                return
            self._arriving.popleft().deliver()
        self._schedule()

    async def _arrive(self, operation: str) -> RequestFate:
        """Deliver a request to the tree.

        Raises:
            ConnectionLostError: it was lost on the way.
        """
        fate = self.fate(operation)
        if fate.request_delay_ms:
            await asyncio.sleep(fate.request_delay_ms / 1000)
        if self._is_cut or fate.loss is RequestLoss.BEFORE:
            raise ConnectionLostError(f"{operation}: the connection to the store was lost")
        return fate

    async def _request(self, operation: str, serve: Callable[[], T]) -> T:
        session = self._session
        if self._is_over or not session:
            raise SessionExpiredError(f"session {session} is over" if session else "not open")
        fate = await self._arrive(operation)
        arrived: asyncio.Future[T] = self._loop.create_future()
        lost = ConnectionLostError(f"{operation}: the connection to the store was lost")
        try:
            if not self._tree.is_open(session):
                raise SessionExpiredError(f"session {session} is over")
            result = serve()
        except StoreError as error:
            answer: T | StoreError = error
        else:
            answer = lost if fate.loss is RequestLoss.AFTER else result
        self._send(fate, lambda: _settle(arrived, answer), lambda: _settle(arrived, lost))
        return await arrived

    # ---------------------------------------------------------------------------- reads

    async def get(self, path: str, watch: Watcher | None = None) -> tuple[bytes | None, Stat]:
        def serve() -> tuple[bytes | None, Stat]:
            node = self._tree.find(path)
            if node is None:
                raise NoNodeError(f"{path} does not exist")
            if watch is not None:
                self._watches.watch_data(path, watch)
            return node.data, node.stat()

        return await self._request("get", serve)

    async def exists(self, path: str, watch: Watcher | None = None) -> Stat | None:
        def serve() -> Stat | None:
            node = self._tree.find(path)
            if watch is not None:
                self._watches.watch_data(path, watch)
            return node.stat() if node else None

        return await self._request("exists", serve)

    async def access(self, path: str) -> list[Access]:
        """A fixed answer: every client may do everything."""
        await self.get(path)
        return [EVERYBODY]

    async def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        def serve() -> list[str]:
            if self._tree.find(path) is None:
                raise NoNodeError(f"{path} does not exist")
            if watch is not None:
                self._watches.watch_children(path, watch)
            return self._tree.names(path)

        return await self._request("children", serve)

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes | None, Stat] | None]:
        def serve() -> list[tuple[bytes | None, Stat] | None]:
            nodes = map(self._tree.find, paths)
            return [(node.data, node.stat()) if node else None for node in nodes]

        return await self._request("get_many", serve)

    # --------------------------------------------------------------------------- writes

    async def create(
        self,
        path: str,
        data: bytes | None = None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        operation = Create(path, data, ephemeral=ephemeral, sequential=sequential)

        def change(draft: Draft) -> str:
            if make_parents:
                return draft.create_with_parents(operation, session=self._session)
            return draft.single(operation, session=self._session)

        return await self._request("create", lambda: self._tree.write(change))

    async def set_data(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        operation = SetData(path, data, version)

        def change(draft: Draft) -> Stat:
            return draft.single(operation, session=self._session)

        return await self._request("set_data", lambda: self._tree.write(change))

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        operation = Delete(path, version)

        def change(draft: Draft) -> None:
            draft.single(operation, session=self._session)

        await self._request("delete", lambda: self._tree.write(change))

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        def change(draft: Draft) -> list[Result]:
            return draft.multi(operations, session=self._session)

        return await self._request("multi", lambda: self._tree.write(change))

    async def multi_many(
        self, batches: Sequence[Sequence[Operation]]
    ) -> list[list[Result] | MultiError]:
        def serve() -> list[list[Result] | MultiError]:
            outcomes: list[list[Result] | MultiError] = []
            for operations in batches:
                try:
                    outcomes.append(self._tree.write(_multi(operations, self._session)))
                except MultiError as error:
                    outcomes.append(error)
            return outcomes

        return await self._request("multi_many", serve)


def _multi(operations: Sequence[Operation], session: int) -> Callable[[Draft], list[Result]]:
    return lambda draft: draft.multi(operations, session=session)


def _call_all(watchers: Sequence[Watcher]) -> None:
    for watcher in watchers:
        watcher()


def _settle(arrived: asyncio.Future[T], answer: T | StoreError) -> None:
    if arrived.done():  # the requester was cancelled
        return
    if isinstance(answer, StoreError):
        arrived.set_exception(answer)
    else:
        arrived.set_result(answer)
