"""What brokers do to the store besides registering and reigning: topics asked for, configuration,
notices, producer ids. Each function is one step of Kafka's, whole or not at all.

They decide nothing: who calls has checked names, values and authority. A lost connection is theirs
to settle as well, for only they know whether to ask again is harmless.
"""

from contextlib import suppress
from typing import NamedTuple

from odradek.coord import layout
from odradek.coord.layout_config import (
    CONFIG_CHANGE_PREFIX,
    CONFIG_CHANGES,
    ConfigEntity,
    decode_config,
    encode_config,
    encode_config_change,
    topic_entity,
)
from odradek.coord.store import (
    BadVersionError,
    Create,
    MultiError,
    NodeExistsError,
    NoNodeError,
    Operation,
    SetData,
    Store,
    StoreError,
    Watcher,
)
from odradek.coord.tree import parent_of

_PRODUCER_ID_MAX = (1 << 63) - 1


# --------------------------------------------------------------------------------- topics


async def create_topic(
    store: Store, topic: str, node: layout.TopicNode, overrides: dict[str, str]
) -> None:
    """Write a new topic's configuration and assignment. The controller, who watches, does the rest.

    Raises:
        NodeExistsError: there is such a topic.
    """
    config_path = topic_entity(topic).path
    config = encode_config(overrides)
    # Somebody may have configured the topic before there was one.
    configured = await store.exists(config_path)
    await _all_of(
        store,
        [
            Create(config_path, config)
            if configured is None
            else SetData(config_path, config, configured.version),
            Create(layout.topic_path(topic), layout.encode_topic(node)),
        ],
    )


async def ask_to_delete_topic(store: Store, topic: str) -> None:
    """Leave the request that the controller watches for; once is enough."""
    with suppress(NodeExistsError):
        await store.create(layout.delete_topic_path(topic))


# -------------------------------------------------------------------------- configuration


class StoredConfig(NamedTuple):
    """An entity's overrides as they were read, and what to derive a write from."""

    overrides: dict[str, str]
    version: int | None  # None: there is no node


async def read_config(store: Store, entity: ConfigEntity) -> StoredConfig:
    """An entity's overrides; none where nothing was ever written."""
    try:
        data, stat = await store.get(entity.path)
    except NoNodeError:
        return StoredConfig({}, None)
    return StoredConfig(decode_config(entity.path, data), stat.version)


async def write_config(
    store: Store, entity: ConfigEntity, overrides: dict[str, str], version: int | None
) -> None:
    """Replace an entity's overrides, as they were at `version`, and let every broker know.

    Raises:
        BadVersionError: somebody else has written meanwhile: read again.
    """
    path, data = entity.path, encode_config(overrides)
    notice = f"{CONFIG_CHANGES}/{CONFIG_CHANGE_PREFIX}"
    operations: list[Operation] = [Create(notice, encode_config_change(entity), sequential=True)]
    if version is not None:
        operations.append(SetData(path, data, version))
    else:
        operations.append(Create(path, data))
        parent = parent_of(path)
        while await store.exists(parent) is None:
            operations.insert(1, Create(parent))
            parent = parent_of(parent)
    try:
        await _all_of(store, operations)
    except (NodeExistsError, NoNodeError) as error:
        raise BadVersionError(f"{path} was written by somebody else: {error}") from error


# -------------------------------------------------------------------------------- notices


class Notices:
    """The sequential notices below one node: each is handed on once, by every broker for itself."""

    def __init__(self, store: Store, parent: str, prefix: str, *, on_change: Watcher) -> None:
        self._store = store
        self._parent = parent
        self._prefix = prefix
        self._on_change = on_change
        self._last = -1
        self._created_ms: dict[str, int] = {}  # of those that are there, by path

    async def unseen(self) -> list[tuple[str, bytes | None]]:
        """Path and data of what has come since the last call, in order; watches for more.

        After a new session call it again: the watch went with the old one.
        """
        names = await self._store.children(self._parent, self._on_change)
        numbers = {name: layout.sequence_number(name, self._prefix) for name in names}
        paths = {f"{self._parent}/{name}": n for name, n in numbers.items() if n is not None}
        self._created_ms = {p: ms for p, ms in self._created_ms.items() if p in paths}
        unseen = sorted((p for p, n in paths.items() if n > self._last), key=paths.__getitem__)
        notices = []
        for path, node in zip(unseen, await self._store.get_many(unseen), strict=True):
            self._last = paths[path]
            if node is not None:  # else it is so old that it was dropped meanwhile
                notices.append((path, node[0]))
                self._created_ms[path] = node[1].created_ms
        return notices

    async def drop(self, *, before_ms: int) -> None:
        """Remove what is older: whoever was away for so long reads everything anyway."""
        for path, created_ms in list(self._created_ms.items()):
            if created_ms < before_ms:
                with suppress(NoNodeError):  # another broker was faster
                    await self._store.delete(path)
                del self._created_ms[path]


# --------------------------------------------------------------------------- producer ids


async def next_producer_id_block(store: Store, broker: int) -> layout.ProducerIdBlock:
    """Draw the next block of producer ids for a broker. A lost answer loses a block, no more.

    Raises:
        StoreError: there are no more.
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
            await store.set_data(
                layout.PRODUCER_ID_BLOCK, layout.encode_producer_id_block(block), stat.version
            )
            return block


async def _all_of(store: Store, operations: list[Operation]) -> None:
    try:
        await store.multi(operations)
    except MultiError as error:
        raise error.cause from None
