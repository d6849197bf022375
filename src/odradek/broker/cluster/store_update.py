"""Changing one node of the store, with a notification for all brokers.

ACLs, quotas and credentials have this in common: read, change, write if the node has not been
written meanwhile; otherwise the change is applied to the newer value.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Final

from odradek.coord.store import (
    BadVersionError,
    ConnectionLostError,
    Create,
    Delete,
    MultiError,
    NodeExistsError,
    NoNodeError,
    Operation,
    SessionExpiredError,
    SetData,
    Stat,
    Store,
)
from odradek.model.errors import ApiError, ErrorCode

NOTICE_AGE_MS_MAX: Final = 15 * 60 * 1000  # as Kafka: then a notification is deleted
_ATTEMPTS: Final = 5
_PAUSE_SECONDS: Final = 0.1

# From a node's data (None: there is no node) to its new data (None: delete the node).
Change = Callable[[bytes | None], bytes | None]


async def read(store: Store, path: str) -> bytes | None:
    """A node's data; None if there is no node."""
    (node,) = await store.get_many([path])
    return None if node is None else node[0]


async def children(store: Store, path: str) -> list[str]:
    """The names below a node; empty if there is no node."""
    try:
        return await store.children(path)
    except NoNodeError:
        return []


async def update(store: Store, path: str, change: Change, notice: Create) -> None:
    """Change a node and notify all brokers, in one transaction; do nothing if nothing changes.

    Raises:
        ApiError: raised by `change`; or others kept writing the node meanwhile.
        StoreError: the store failed.
    """
    for _ in range(_ATTEMPTS):
        (node,) = await store.get_many([path])
        before = None if node is None else node[0]
        after = change(before)
        if after == before:
            return
        if node is None:
            assert after is not None
            await _make_parents(store, path)
            write: Operation = Create(path, after)
        elif after is None:
            write = Delete(path, node[1].version)
        else:
            write = SetData(path, after, node[1].version)
        await _make_parents(store, notice.path)
        try:
            await store.multi([write, notice])
        except MultiError:
            continue  # the node was written meanwhile
        return
    raise ApiError(
        ErrorCode.UNKNOWN_SERVER_ERROR, f"others wrote {path} {_ATTEMPTS} times meanwhile; retry"
    )


class ChangeFollower(ABC):
    """Follows a part of the store by watches: handles each change until it is cancelled.

    A lost connection is waited for. After a lost session everything is read again, because the
    watches ended with it.
    """

    def __init__(self) -> None:
        self._is_blind = False  # the watches ended with their session
        self._something = asyncio.Event()
        self._watch = self._something.set  # one object: the store notifies a watcher once

    @abstractmethod
    async def load(self) -> None:
        """Read everything, and begin to watch for changes."""

    @abstractmethod
    async def _handle(self) -> None:
        """Read what has changed, and watch again."""

    def session_opened(self) -> None:
        """A new session was opened: `run` reads everything, and watches again."""
        self._is_blind = True
        self._something.set()

    async def run(self) -> None:
        """Handle changes until cancelled."""
        while True:
            await self._something.wait()
            self._something.clear()
            try:
                if self._is_blind:
                    await self.load()
                    self._is_blind = False
                await self._handle()
            except SessionExpiredError:
                continue
            except ConnectionLostError:
                await asyncio.sleep(_PAUSE_SECONDS)
                self._something.set()


async def purge(
    store: Store, notices: Mapping[str, tuple[bytes | None, Stat] | None], *, created_before_ms: int
) -> None:
    """Delete old notifications, which every broker has handled or will not handle any more."""
    for path, node in notices.items():
        if node is not None and node[1].created_ms < created_before_ms:
            try:
                await store.delete(path)
            except (NoNodeError, BadVersionError):
                continue  # another broker deleted it


async def _make_parents(store: Store, path: str) -> None:
    parent = path.rpartition("/")[0]
    if parent and await store.exists(parent) is None:
        try:
            await store.create(parent, make_parents=True)
        except NodeExistsError:
            return  # another broker created it
