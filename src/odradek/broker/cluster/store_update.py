"""Changing one node of the store, with a notification for all brokers; and following these.

ACLs, quotas, credentials and delegation tokens have this in common: read, change, write if the node
has not been written meanwhile; otherwise the change is applied to the newer value.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from odradek.coord.layout import sequence_number
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
from odradek.model.clock import Clock
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


class NoticeFollower(ChangeFollower):
    """Follows what sequential notifications below some nodes announce.

    Everything is read before the broker serves requests. After that, the notifications above the
    last one handled name what has changed, and it is read again.
    """

    def __init__(
        self, store: Store, clock: Clock, *, parents: Sequence[str], name_prefix: str
    ) -> None:
        """`name_prefix` is what the names of notifications begin with."""
        super().__init__()
        self._store = store
        self._clock = clock
        self._name_prefix = name_prefix
        self._seen = dict.fromkeys(parents, -1)  # the number of the last notification handled

    @abstractmethod
    async def _read_all(self) -> None:
        """Read everything, also after a lost session."""

    @abstractmethod
    async def _read_changed(self, notices: Mapping[str, bytes | None]) -> None:
        """Read what these notifications name, by their paths."""

    async def load(self) -> None:
        """Read everything, and begin to watch for changes.

        Raises:
            StoreError: the store cannot be read.
            StartupError: see `_read_all`.
        """
        for parent in self._seen:
            if await self._store.exists(parent) is None:
                try:
                    await self._store.create(parent, make_parents=True)
                except NodeExistsError:
                    continue  # another broker created it
        # Notifications first: what changes during `_read_all` is read once more.
        notices = await self._notices()
        await self._read_all()
        self._have_seen(notices)

    async def _handle(self) -> None:
        notices = await self._notices()
        nodes = dict(zip(notices, await self._store.get_many(list(notices)), strict=True))
        new = {
            path: node[0]
            for path, node in nodes.items()
            if node is not None and notices[path][1] > self._seen[notices[path][0]]
        }
        await self._read_changed(new)
        self._have_seen(notices)
        too_old_ms = self._clock.wall_ms() - NOTICE_AGE_MS_MAX
        await purge(self._store, nodes, created_before_ms=too_old_ms)

    async def _notices(self) -> dict[str, tuple[str, int]]:
        """The notifications, by path: parent and number. A watch is set for further ones."""
        notices = {}
        for parent in self._seen:
            for name in await self._store.children(parent, self._watch):
                number = sequence_number(name, self._name_prefix)
                if number is not None:
                    notices[f"{parent}/{name}"] = (parent, number)
        return notices

    def _have_seen(self, notices: dict[str, tuple[str, int]]) -> None:
        for parent, number in notices.values():
            self._seen[parent] = max(self._seen[parent], number)


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
