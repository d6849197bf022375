"""Changing one node of the store, with a notification for all brokers; and following these.

ACLs, quotas, credentials and delegation tokens have this in common: read, change, write if the node
has not been written meanwhile; otherwise the change is applied to the newer value.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
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
    NotEmptyError,
    Operation,
    SessionExpiredError,
    SetData,
    Stat,
    Store,
    Watcher,
)
from odradek.model.clock import Clock
from odradek.model.errors import ApiError, ErrorCode

log = logging.getLogger(__name__)

NOTICE_AGE_MS_MAX: Final = 15 * 60 * 1000  # as Kafka: then a notification is deleted
_ATTEMPTS: Final = 5
_PAUSE_SECONDS: Final = 0.1
_REPEAT_SECONDS: Final = 5.0

Node = tuple[bytes | None, Stat]
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
    watches ended with it; and after a change that cannot be handled, such as a notification that
    somebody has written by hand: later changes must not wait for it.
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
            except Exception:  # one change must not end the following of all others
                log.exception("a change in the coordination store cannot be followed")
                await asyncio.sleep(_REPEAT_SECONDS)
                self.session_opened()


class NoticeFollower(ChangeFollower):
    """Follows what sequential notifications below some nodes announce.

    Everything is read before the broker serves requests. After that, the notifications that were
    not handled yet name what has changed, and it is read again.

    A notification is known by the transaction that created it. Numbers would not do: they begin
    again if the parent is deleted, go back if the store is put back from a backup, and are high if
    somebody creates such a node by hand; later notifications would be taken for handled ones.
    """

    def __init__(
        self, store: Store, clock: Clock, *, parents: Sequence[str], name_prefix: str
    ) -> None:
        """`name_prefix` is what the names of notifications begin with."""
        super().__init__()
        self._store = store
        self._clock = clock
        self._name_prefix = name_prefix
        self._parents = parents
        self._handled: dict[str, int] = {}  # the notifications, by path, and what created them

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
        # Notifications first: what changes during `_read_all` is read once more.
        notices = await self._notices()
        await self._read_all()
        self._handled = created_ids(notices)

    async def _handle(self) -> None:
        notices = await self._notices()
        await self._read_changed(
            {path: node[0] for path, node in new_notices(notices, self._handled).items()}
        )
        self._handled = created_ids(notices)
        too_old_ms = self._clock.wall_ms() - NOTICE_AGE_MS_MAX
        await purge(self._store, notices, created_before_ms=too_old_ms)

    async def _notices(self) -> dict[str, Node]:
        """The notifications, by path. A watch is set for further ones."""
        notices: dict[str, Node] = {}
        for parent in self._parents:
            notices |= await read_notices(self._store, parent, self._name_prefix, self._watch)
        return notices


async def read_notices(
    store: Store, parent: str, name_prefix: str, watch: Watcher
) -> dict[str, Node]:
    """The notifications below a node in the order of their numbers, by path.

    A watch is set for further ones; the parent is created if it does not exist, or not any more.
    """
    names = await _names(store, parent, watch)
    numbered = [(sequence_number(name, name_prefix), f"{parent}/{name}") for name in names]
    paths = [path for _, path in sorted((n, path) for n, path in numbered if n is not None)]
    nodes = await store.get_many(paths) if paths else []
    # One that does not exist any more was deleted by another broker because of its age.
    return {path: node for path, node in zip(paths, nodes, strict=True) if node is not None}


async def _names(store: Store, parent: str, watch: Watcher) -> list[str]:
    while True:
        try:
            return await store.children(parent, watch)
        except NoNodeError:
            with suppress(NodeExistsError):  # another broker created it
                await store.create(parent, make_parents=True)


def new_notices(notices: Mapping[str, Node], handled: Mapping[str, int]) -> dict[str, Node]:
    """The notifications that were not handled: another may have had the same path."""
    return {path: node for path, node in notices.items() if handled.get(path) != node[1].created_id}


def created_ids(notices: Mapping[str, Node]) -> dict[str, int]:
    """The transactions that created these notifications, by path."""
    return {path: node[1].created_id for path, node in notices.items()}


async def purge(store: Store, notices: Mapping[str, Node], *, created_before_ms: int) -> None:
    """Delete old notifications, which every broker has handled or will not handle any more."""
    for path, node in notices.items():
        if node[1].created_ms < created_before_ms:
            # Another broker deleted it; or somebody has created a node below it.
            with suppress(NoNodeError, BadVersionError, NotEmptyError):
                await store.delete(path)


async def _make_parents(store: Store, path: str) -> None:
    parent = path.rpartition("/")[0]
    if parent and await store.exists(parent) is None:
        try:
            await store.create(parent, make_parents=True)
        except NodeExistsError:
            return  # another broker created it
