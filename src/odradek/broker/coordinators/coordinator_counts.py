"""The number of partitions that the keys of coordinators are hashed over.

The coordinator of a group or transactional id leads partition `hash(key) % count`. If the count
followed the topic, every key would move when the topic grows: to coordinators without its committed
offsets, producer epoch and open transaction, while brokers with older metadata still use the former
ones. So the count is fixed:

    in a cluster of Odradek   when the first broker sees the topic, by a znode
                              (`/odradek/coordinators/TOPIC`) that has the topic's id
    beside Apache's brokers   when this broker starts, as theirs is (`GroupMetadataManager.startup`,
                              `TransactionStateManager.startup`), so that all agree after restarts

A topic that is deleted and created again has another id and another count. Until the count is read
there is no coordinator. Apache Kafka reads the count at each start, so after a restart it does not
find the offsets from before the topic grew. Odradek's CreatePartitions refuses to grow the topic
(`odradek.broker.admin.topics`).
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from odradek.broker.cluster.metadata_cache import MetadataCache
from odradek.broker.serving.tasks import Tasks
from odradek.coord import layout, layout_odradek
from odradek.coord.layout import TopicNode
from odradek.coord.layout_odradek import CoordinatorCount
from odradek.coord.registry import latest
from odradek.coord.store import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    Stat,
    Store,
    StoreError,
)
from odradek.coord.znode import CorruptNodeError
from odradek.model.names import GROUP_TOPIC, TRANSACTION_TOPIC
from odradek.net.retry import until
from odradek.wire.schema import ZERO_UUID

log = logging.getLogger(__name__)

TOPICS: Final = (GROUP_TOPIC, TRANSACTION_TOPIC)
_PAUSE_S: Final = 0.5


class Fixed(NamedTuple):
    """The count of one topic, with the topic's id."""

    topic_id: bytes
    partitions: int


def count_to_use(stored: TopicNode, noted: CoordinatorCount | None, *, all_are_ours: bool) -> int:
    """The number of partitions for the hash, by the topic's znode and the znode of its count."""
    present = len(stored.assignments)
    if not all_are_ours or noted is None or noted.topic_id != stored.topic_id:
        return present
    return min(noted.partitions, present)


class CoordinatorCounts:
    """The counts of both topics, for one broker."""

    def __init__(
        self,
        store: Store,
        cache: MetadataCache,
        tasks: Tasks,
        *,
        all_are_ours: Callable[[], bool],
    ) -> None:
        """`all_are_ours`: whether all registered brokers run Odradek (`FeatureShell`)."""
        self._store = store
        self.cache = cache
        self._tasks = tasks
        self._all_are_ours = all_are_ours
        self._fixed: dict[str, Fixed] = {}
        self._being_read: set[str] = set()

    def of(self, topic: str) -> int:
        """The count of a topic; 0 while it is not known, or the topic does not exist."""
        fixed, shown = self._fixed.get(topic), self.cache.topic(topic)
        if fixed is None or (shown is not None and shown.topic_id != fixed.topic_id):
            return 0
        return fixed.partitions

    async def load(self) -> None:
        """Fix the counts of the topics that exist when this broker starts.

        Raises:
            ConnectionLostError, SessionExpiredError: see `odradek.coord.store`.
        """
        for topic in TOPICS:
            await until(partial(self._read, topic), _PAUSE_S)

    def metadata_changed(self) -> None:
        """Read the count of a topic that is new in the metadata cache."""
        for topic in TOPICS:
            if topic in self._being_read or self.cache.topic(topic) is None or self.of(topic):
                continue
            self._being_read.add(topic)
            self._tasks.start(self._learn(topic), f"count of the partitions of {topic}")

    async def _learn(self, topic: str) -> None:
        try:
            while self.cache.topic(topic) is not None and not self.of(topic):
                try:
                    await self._read(topic)
                except StoreError as error:
                    log.info("%s: its number of partitions cannot be read: %s", topic, error)
                if not self.of(topic):
                    await asyncio.sleep(_PAUSE_S)
        finally:
            self._being_read.discard(topic)

    async def _read(self, topic: str) -> bool:
        """Fix the count by what is stored. False: another broker has written it meanwhile."""
        note_path = layout_odradek.coordinator_count_path(topic)
        node, note = await latest(self._store, [layout.topic_path(topic), note_path])
        if node is None:
            return True
        try:
            stored = layout.decode_topic(topic, node[0])
        except CorruptNodeError as error:
            log.error("there is no coordinator for %s: %s", topic, error)  # noqa: TRY400 - the message is enough
            return True
        noted = _decoded(topic, note)
        count = count_to_use(stored, noted, all_are_ours=self._all_are_ours())
        wanted = CoordinatorCount(stored.topic_id, count)
        if noted != wanted and not await self._write(note_path, wanted, note):
            return False
        if count < len(stored.assignments):
            log.error(
                "%s has %d partitions, but only the %d that it had when it was created are used: "
                "coordinators would not find the state of their keys in the others",
                topic,
                len(stored.assignments),
                count,
            )
        topic_id = ZERO_UUID if stored.topic_id is None else stored.topic_id.bytes
        self._fixed[topic] = Fixed(topic_id, count)
        return True

    async def _write(
        self, path: str, count: CoordinatorCount, before: tuple[bytes | None, Stat] | None
    ) -> bool:
        data = layout_odradek.encode_coordinator_count(count)
        with suppress(NodeExistsError, BadVersionError, NoNodeError):
            if before is None:
                await self._store.create(path, data, make_parents=True)
            else:
                await self._store.set_data(path, data, before[1].version)
            return True
        return False


def _decoded(topic: str, note: tuple[bytes | None, Stat] | None) -> CoordinatorCount | None:
    if note is None:
        return None
    try:
        return layout_odradek.decode_coordinator_count(topic, note[0])
    except CorruptNodeError as error:
        log.error("%s: written again", error)  # noqa: TRY400 - the message is enough
        return None
