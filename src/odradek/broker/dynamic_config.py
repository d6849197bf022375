"""Options that change while the broker runs: of topics, brokers, users, client ids, addresses.

They are kept in the store; a notification under `/config/changes` names each entity that changed.
A broker handles those that it has not handled yet, reads the entities again, and passes their
options to its listener. Notifications older than fifteen minutes are deleted.

A topic that is new to this broker has no notification: `learn` reads its options.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final, Protocol

from odradek.broker.cluster.store_update import (
    NOTICE_AGE_MS_MAX,
    ChangeFollower,
    Node,
    created_ids,
    new_notices,
    purge,
    read_notices,
)
from odradek.coord.layout import decode_topic, topic_path
from odradek.coord.layout_config import (
    CONFIG_CHANGE_PREFIX,
    CONFIG_CHANGES,
    ConfigEntity,
    broker_entity,
    decode_config,
    decode_config_change,
    parse_entity_path,
    topic_entity,
)
from odradek.coord.store import NoNodeError, Store
from odradek.coord.znode import CorruptNodeError
from odradek.model.clock import Clock

SLICE: Final = 250  # entities read before others may run

CLIENT_KINDS: Final = ("users", "clients", "ips")

Overrides = Mapping[str, str]


class ConfigListener(Protocol):
    """Applies changed options of topics and brokers."""

    def topic_config(self, topic: str, overrides: Overrides) -> None:
        """Apply a topic's own options."""

    def broker_config(self, dynamic: Overrides, dynamic_default: Overrides) -> None:
        """Apply the options that are set for this broker, and for all brokers."""

    def client_configs(self, configs: Mapping[ConfigEntity, Overrides], *, whole: bool) -> None:
        """Apply the options of users, client ids and addresses.

        `whole`: no others have options.
        """

    def note(self, text: str) -> None:
        """Log a text for operators."""


class DynamicConfig(ChangeFollower):
    """Follows the configuration in the store, for one broker."""

    def __init__(
        self, store: Store, *, broker_id: int, clock: Clock, listener: ConfigListener
    ) -> None:
        super().__init__()
        self._store = store
        self._clock = clock
        self._listener = listener
        self._brokers = (broker_entity(broker_id), broker_entity(None))
        self._handled: dict[str, int] = {}  # the notifications, by path, and what created them
        self._progress = asyncio.Condition()

    async def load(self) -> None:
        """Read everything, and begin to watch for changes.

        Raises:
            StoreError: the store cannot be read.
        """
        # Notifications first: what changes while the options are read is read once more.
        notices = await self._notices()
        parents = await self._read_brokers(also=[f"/config/{kind}" for kind in CLIENT_KINDS])
        await self._read_all_clients(
            [
                kind
                for kind, node in zip(CLIENT_KINDS, parents, strict=True)
                if node is not None and node[1].children_count
            ]
        )
        topics = iter(await self._store.children("/config/topics"))
        while chunk := tuple(islice(topics, SLICE)):
            await self.learn(chunk)
            await asyncio.sleep(0)
        await self._have_handled(notices)

    async def learn(self, topics: Sequence[str]) -> None:
        """Read the options of topics that are new to this broker."""
        paths = [topic_entity(topic).path for topic in topics]
        nodes = await self._store.get_many(paths)
        for topic, path, node in zip(topics, paths, nodes, strict=True):
            overrides = self._decode(path, node)
            if overrides is not None:
                self._listener.topic_config(topic, overrides)

    async def topic_ids(self, topics: Sequence[str]) -> Mapping[str, bytes]:
        """The ids of those topics that have one in the store."""
        nodes = await self._store.get_many([topic_path(topic) for topic in topics])
        found: dict[str, bytes] = {}
        for topic, node in zip(topics, nodes, strict=True):
            with suppress(CorruptNodeError):
                topic_id = None if node is None else decode_topic(topic, node[0]).topic_id
                if topic_id is not None:
                    found[topic] = topic_id.bytes
        return found

    async def wait_handled(self, notice: str, deadline_ms: int) -> bool:
        """Wait until this broker has applied a notification; False if not before the deadline."""
        left_ms = deadline_ms - self._clock.monotonic_ms()
        try:
            async with asyncio.timeout(max(0, left_ms) / 1000), self._progress:
                await self._progress.wait_for(lambda: notice in self._handled)
        except TimeoutError:
            return notice in self._handled
        return True

    # --------------------------------------------------------------------------- notices

    async def _notices(self) -> dict[str, Node]:
        return await read_notices(self._store, CONFIG_CHANGES, CONFIG_CHANGE_PREFIX, self._watch)

    async def _handle(self) -> None:
        notices = await self._notices()
        changed: dict[ConfigEntity, None] = {}
        for path, (data, _) in new_notices(notices, self._handled).items():
            entity = self._entity(path, data)
            if entity is not None:
                changed[entity] = None
        await self._read(changed)
        await self._have_handled(notices)
        too_old_ms = self._clock.wall_ms() - NOTICE_AGE_MS_MAX
        await purge(self._store, notices, created_before_ms=too_old_ms)

    async def _have_handled(self, notices: Mapping[str, Node]) -> None:
        async with self._progress:
            self._handled = created_ids(notices)
            self._progress.notify_all()

    def _entity(self, path: str, data: bytes | None) -> ConfigEntity | None:
        try:
            return decode_config_change(path, data)
        except CorruptNodeError as error:
            self._listener.note(str(error))
            return None

    # -------------------------------------------------------------------------- entities

    async def _read(self, changed: Iterable[ConfigEntity]) -> None:
        topics, clients = [], []
        for entity in changed:
            ((kind, name), *more) = entity.levels
            if kind == "topics" and name is not None and not more:
                topics.append(name)
            elif entity in self._brokers:
                await self._read_brokers()
            elif kind in CLIENT_KINDS:
                clients.append(entity)
        if topics:
            await self.learn(topics)
        if clients:
            configs, _ = await self._read_clients(clients)
            self._listener.client_configs(configs, whole=False)

    async def _read_brokers(self, also: Sequence[str] = ()) -> Sequence[Node | None]:
        """Apply the brokers' options. Returns other nodes, read in the same request."""
        paths = [entity.path for entity in self._brokers]
        *others, own_node, default_node = await self._store.get_many([*also, *paths])
        own, default = map(self._decode, paths, (own_node, default_node))
        if own is not None and default is not None:
            self._listener.broker_config(own, default)
        return others

    async def _read_all_clients(self, kinds: Iterable[str]) -> None:
        configs: dict[ConfigEntity, Overrides] = {}
        for kind in kinds:
            found, parents = await self._read_clients(await self._entities(kind))
            configs |= found
            for parent in parents:  # users with client ids
                found, _ = await self._read_clients(
                    await self._entities(f"{parent.entity_path}/clients")
                )
                configs |= found
        self._listener.client_configs(configs, whole=True)

    async def _entities(self, entity_path: str) -> list[ConfigEntity]:
        try:
            names = await self._store.children(f"/config/{entity_path}")
        except NoNodeError:
            return []
        return [parse_entity_path(f"{entity_path}/{name}") for name in names]

    async def _read_clients(
        self, entities: Sequence[ConfigEntity]
    ) -> tuple[dict[ConfigEntity, Overrides], list[ConfigEntity]]:
        """The options of entities, and those entities that have others below them."""
        configs: dict[ConfigEntity, Overrides] = {}
        parents = []
        waiting = iter(entities)
        while chunk := tuple(islice(waiting, SLICE)):
            nodes = await self._store.get_many([entity.path for entity in chunk])
            for entity, node in zip(chunk, nodes, strict=True):
                overrides = self._decode(entity.path, node)
                if overrides is not None:
                    configs[entity] = overrides
                if node is not None and node[1].children_count:
                    parents.append(entity)
        return configs, parents

    def _decode(self, path: str, node: Node | None) -> dict[str, str] | None:
        """The options set for an entity; None if they cannot be read: the former ones stay."""
        if node is None:
            return {}
        try:
            return decode_config(path, node[0])
        except CorruptNodeError as error:
            self._listener.note(str(error))
            return None
