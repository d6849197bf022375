"""Configuration, change notifications and producer ids in the store: each write is atomic.

Nothing is decided here: the callers have checked names, values and permissions. A write that only
the current controller may make takes a check of the controller epoch's version as `guard`; if it
fails, the `MultiError` has its index. Callers handle lost connections.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from odradek.coord import layout
from odradek.coord.layout_config import (
    CONFIG_CHANGE_PREFIX,
    CONFIG_CHANGES,
    ConfigEntity,
    decode_config,
    encode_config,
    encode_config_change,
)
from odradek.coord.store import (
    ANY_VERSION,
    BadVersionError,
    Check,
    Create,
    MultiError,
    NodeExistsError,
    NoNodeError,
    Operation,
    SetData,
    Stat,
    Store,
    StoreError,
    Watcher,
)
from odradek.coord.tree import parent_of

_PRODUCER_ID_MAX: Final = (1 << 63) - 1


async def latest(store: Store, paths: Sequence[str]) -> list[tuple[bytes | None, Stat] | None]:
    """The current state of many nodes, None for those that do not exist.

    A plain read may return less: a ZooKeeper server may be behind the others. A read after a write
    of the same session is not older than the write.
    """
    await store.multi([Check(layout.TOPICS, ANY_VERSION)])
    return await store.get_many(paths)


# -------------------------------------------------------------------------- configuration


class StoredConfig(NamedTuple):
    """An entity's overrides as read, and the version that a write is conditional on."""

    overrides: dict[str, str]
    version: int | None  # None: the node does not exist


async def read_config(store: Store, entity: ConfigEntity) -> StoredConfig:
    """An entity's overrides; empty where none were ever written."""
    try:
        data, stat = await store.get(entity.path)
    except NoNodeError:
        return StoredConfig({}, None)
    return StoredConfig(decode_config(entity.path, data), stat.version)


async def write_config(
    store: Store,
    entity: ConfigEntity,
    overrides: dict[str, str],
    version: int | None,
    *,
    guard: Check | None = None,
) -> None:
    """Replace an entity's overrides, read at `version`, and notify every broker.

    Raises:
            BadVersionError: the node was written meanwhile: read again.
        MultiError: the guard failed.
    """
    path, data = entity.path, encode_config(overrides)
    notice = f"{CONFIG_CHANGES}/{CONFIG_CHANGE_PREFIX}"
    operations: list[Operation] = [Create(notice, encode_config_change(entity), sequential=True)]
    if version is not None:
        operations.append(SetData(path, data, version))
    else:
        missing = []
        parent = parent_of(path)
        while await store.exists(parent) is None:
            missing.append(Create(parent))
            parent = parent_of(parent)
        operations += [*reversed(missing), Create(path, data)]
    try:
        await _guarded(store, operations, guard)
    except (NodeExistsError, NoNodeError) as error:
        raise BadVersionError(f"{path} was written meanwhile: {error}") from error


# ------------------------------------------------------------------- change notifications


class Notices:
    """The sequential change notifications below one node, each returned once to this broker."""

    def __init__(self, store: Store, parent: str, prefix: str, *, on_change: Watcher) -> None:
        self._store = store
        self._parent = parent
        self._prefix = prefix
        self._on_change = on_change
        self._last = -1
        self._created_ms: dict[str, int] = {}  # of those that exist, by path

    async def unseen(self) -> list[tuple[str, bytes | None]]:
        """Path and data of the notifications since the last call, in order; sets the watch again.

        Call it after a new session too: the watch ended with the old one.
        """
        names = await self._store.children(self._parent, self._on_change)
        numbers = {name: layout.sequence_number(name, self._prefix) for name in names}
        paths = {f"{self._parent}/{name}": n for name, n in numbers.items() if n is not None}
        self._created_ms = {p: ms for p, ms in self._created_ms.items() if p in paths}
        unseen = sorted((p for p, n in paths.items() if n > self._last), key=paths.__getitem__)
        notices = []
        for path, node in zip(unseen, await self._store.get_many(unseen), strict=True):
            self._last = paths[path]
            if node is not None:  # else it is so old that it was removed meanwhile
                notices.append((path, node[0]))
                self._created_ms[path] = node[1].created_ms
        return notices

    async def drop(self, *, before_ms: int) -> None:
        """Remove older ones: a broker that was away for so long reads everything at its start."""
        for path, created_ms in list(self._created_ms.items()):
            if created_ms < before_ms:
                with suppress(NoNodeError):  # another broker has removed it already
                    await self._store.delete(path)
                del self._created_ms[path]


# --------------------------------------------------------------------------- producer ids


async def next_producer_id_block(
    store: Store, broker: int, *, guard: Check | None = None
) -> layout.ProducerIdBlock:
    """Draw the next block of producer ids for a broker. A lost answer loses a block, no more.

    Raises:
        StoreError: there are no ids left.
        MultiError: the guard failed.
    """
    while True:
        data, stat = await store.get(layout.PRODUCER_ID_BLOCK)
        last = layout.decode_producer_id_block(data)
        first = last.end_producer_id if last else 0
        end = first + layout.PRODUCER_ID_BLOCK_SIZE
        if end - 1 > _PRODUCER_ID_MAX:
            raise StoreError(f"{layout.PRODUCER_ID_BLOCK}: all producer ids are used up")
        block = layout.ProducerIdBlock(broker, first, end)
        with suppress(BadVersionError):
            written = layout.encode_producer_id_block(block)
            await _guarded(store, [SetData(layout.PRODUCER_ID_BLOCK, written, stat.version)], guard)
            return block


async def _guarded(store: Store, operations: list[Operation], guard: Check | None) -> None:
    guards = [] if guard is None else [guard]
    try:
        await store.multi([*guards, *operations])
    except MultiError as error:
        if error.index < len(guards):
            raise
        raise error.cause from None
