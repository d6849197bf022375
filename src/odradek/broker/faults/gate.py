"""A coordination store from which a broker can be cut off, and whose session can be expired.

While it is cut off, requests fail with ConnectionLostError and watches do not fire; the session
expires when its time-out has passed, of which the broker is notified after `restore`. While it is
frozen, as a process by SIGSTOP, requests wait.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from odradek.coord.memory import MemoryStore
from odradek.coord.sqlite import SqliteStore
from odradek.coord.store import (
    ANY_VERSION,
    Access,
    ConnectionLostError,
    MultiError,
    Operation,
    Result,
    Stat,
    Store,
    Watcher,
)
from odradek.model.errors import OdradekError


class FaultError(OdradekError):
    """A fault that cannot be injected; the message has the reason."""


class StoreGate:
    """One broker's connection to its store (`odradek.coord.store.Store`)."""

    def __init__(self, store: Store, *, session_timeout_ms: int) -> None:
        self.on_session_lost: Callable[[], None] | None = None
        self.counts = store.counts
        self._store = store
        self._session_timeout_ms = session_timeout_ms
        self._is_cut = False
        self._thawed: asyncio.Future[None] | None = None  # while it is frozen
        self._session = 0  # the last session that the broker was notified of
        self._held: list[Callable[[], None]] = []
        self._expiry: asyncio.TimerHandle | None = None
        store.on_session_lost = lambda: self._event(self._lost)

    # ----------------------------------------------------------------------------- the faults

    def cut(self) -> None:
        """Cut the broker off, until `restore`."""
        self._apart()
        self._is_cut = True

    def restore(self) -> None:
        """Connect again, and report what has happened meanwhile."""
        self._is_cut = False
        self._together()

    def freeze(self) -> None:
        """Let all requests wait, and send no heartbeat, until `thaw`."""
        self._apart()
        self._thawed = asyncio.get_running_loop().create_future()

    def thaw(self) -> None:
        thawed, self._thawed = self._thawed, None
        if thawed is not None:
            thawed.set_result(None)
        self._together()

    @property
    def _is_apart(self) -> bool:
        return self._is_cut or self._thawed is not None

    def _apart(self) -> None:
        if not self._is_apart:
            self._session = self._store.session_id
            delay_s = self._session_timeout_ms / 1000
            self._expiry = asyncio.get_running_loop().call_later(delay_s, self._expire)

    def _together(self) -> None:
        if self._is_apart:
            return
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        held, self._held = self._held, []
        for event in held:
            event()

    def expire_session(self) -> None:
        """End the session as the store does after its time-out.

        Raises:
            FaultError: there is no session, or the store is ZooKeeper.
        """
        if not self._store.session_id:
            raise FaultError("the broker has no session with the coordination store now")
        self._expire()

    def _expire(self) -> None:
        store = self._store
        if isinstance(store, SqliteStore):
            store.end_dead_session(store.session_id)
        elif isinstance(store, MemoryStore):
            store.expire()
        else:
            raise FaultError(
                "sessions with ZooKeeper are expired at ZooKeeper: use a cluster with a store of "
                "its own (without zookeeper.connect)"
            )

    # ------------------------------------------------------------------------ what is passed on

    @property
    def session_id(self) -> int:
        return self._session if self._is_apart else self._store.session_id

    async def open(self) -> None:
        await self._check()
        await self._store.open()

    async def close(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        self._held.clear()
        await self._store.close()

    async def get(self, path: str, watch: Watcher | None = None) -> tuple[bytes | None, Stat]:
        await self._check()
        return await self._store.get(path, self._watcher(watch))

    async def exists(self, path: str, watch: Watcher | None = None) -> Stat | None:
        await self._check()
        return await self._store.exists(path, self._watcher(watch))

    async def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        await self._check()
        return await self._store.children(path, self._watcher(watch))

    async def access(self, path: str) -> list[Access]:
        await self._check()
        return await self._store.access(path)

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes | None, Stat] | None]:
        await self._check()
        return await self._store.get_many(paths)

    async def create(
        self,
        path: str,
        data: bytes | None = None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        await self._check()
        return await self._store.create(
            path, data, ephemeral=ephemeral, sequential=sequential, make_parents=make_parents
        )

    async def set_data(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        await self._check()
        return await self._store.set_data(path, data, version)

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._check()
        await self._store.delete(path, version)

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        await self._check()
        return await self._store.multi(operations)

    async def multi_many(
        self, batches: Sequence[Sequence[Operation]]
    ) -> list[list[Result] | MultiError]:
        await self._check()
        return await self._store.multi_many(batches)

    # --------------------------------------------------------------------------------- inside

    async def _check(self) -> None:
        if self._thawed is not None:
            await asyncio.shield(self._thawed)
        if self._is_cut:
            raise ConnectionLostError("the broker is cut off from the coordination store")

    def _watcher(self, watch: Watcher | None) -> Watcher | None:
        return None if watch is None else _GatedWatcher(self, watch)

    def _event(self, event: Callable[[], None]) -> None:
        """Report an event of the store now, or after `restore`."""
        if self._is_apart:
            self._held.append(event)
        else:
            event()

    def fire(self, watch: Watcher) -> None:
        self._event(watch)

    def _lost(self) -> None:
        if self.on_session_lost is not None:
            self.on_session_lost()


@dataclass(frozen=True, slots=True)
class _GatedWatcher:
    """Equal for equal watchers: a store calls a watcher once that is set twice on one node."""

    gate: StoreGate
    watch: Watcher

    def __call__(self) -> None:
        self.gate.fire(self.watch)
