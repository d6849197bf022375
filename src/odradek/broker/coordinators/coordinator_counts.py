"""How many partitions the keys of coordinators are hashed over, whatever their topics grow to.

A group or a transactional id is coordinated by the leader of the partition with the number
`hash(key) % count`. A count that follows the topic would move every key when the topic grows: to
coordinators that have no committed offset, no producer epoch and no open transaction of theirs,
while brokers that have not heard of it yet go on with the former ones. So the count is fixed:

    in a cluster of ours     when a broker of ours first sees the topic, by a note in the store
                             (`/odradek/coordinators/TOPIC`), with the topic's id
    beside Apache's brokers  when this broker starts, as theirs is (`GroupMetadataManager.startup`,
                             `TransactionStateManager.startup`), so that all agree after restarts

A topic that is deleted and made anew, with another id, has another count. Until it is read from
the store there is no coordinator. Apache Kafka takes the count anew at each start, so it finds no
offset of before when brokers are restarted after the topic grew; CreatePartitions of ours refuses
to grow it (`odradek.broker.admin.topics`).
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
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
from odradek.wire.schema import ZERO_UUID

log = logging.getLogger(__name__)

TOPICS: Final = (GROUP_TOPIC, TRANSACTION_TOPIC)
_PAUSE_S: Final = 0.5


class Fixed(NamedTuple):
    """The count of one topic."""

    topic_id: bytes
    partitions: int


def count_to_use(stored: TopicNode, noted: CoordinatorCount | None, *, all_are_ours: bool) -> int:
    """How many partitions keys are hashed over, by the topic's node and the note of its count."""
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
        """`all_are_ours`: whether no broker of another kind is registered (`FeatureShell`)."""
        self._store = store
        self.cache = cache
        self._tasks = tasks
        self._all_are_ours = all_are_ours
        self._fixed: dict[str, Fixed] = {}
        self._being_read: set[str] = set()

    def of(self, topic: str) -> int:
        """The count of a topic; 0 while it is not known, or the topic is not there."""
        fixed, shown = self._fixed.get(topic), self.cache.topic(topic)
        if fixed is None or (shown is not None and shown.topic_id != fixed.topic_id):
            return 0
        return fixed.partitions

    async def load(self) -> None:
        """Fix the counts of the topics that are there when this broker starts.

        Raises:
            ConnectionLostError, SessionExpiredError: see `odradek.coord.store`.
        """
        for topic in TOPICS:
            is_read = await self._read(topic)
            while not is_read:
                await asyncio.sleep(_PAUSE_S)
                is_read = await self._read(topic)

    def metadata_changed(self) -> None:
        """There may be a topic whose count is not known."""
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
                    log.info("%s: how many partitions it has is not known: %s", topic, error)
                if not self.of(topic):
                    await asyncio.sleep(_PAUSE_S)
        finally:
            self._being_read.discard(topic)

    async def _read(self, topic: str) -> bool:
        """Fix the count by what is stored now. False: another broker writes the note just now."""
        note_path = layout_odradek.coordinator_count_path(topic)
        node, note = await latest(self._store, [layout.topic_path(topic), note_path])
        if node is None:
            return True
        try:
            stored = layout.decode_topic(topic, node[0])
        except CorruptNodeError as error:
            log.error("no coordinator for the keys of %s: %s", topic, error)  # noqa: TRY400 - told
            return True
        noted = _decoded(topic, note)
        count = count_to_use(stored, noted, all_are_ours=self._all_are_ours())
        wanted = CoordinatorCount(stored.topic_id, count)
        if noted != wanted and not await self._write(note_path, wanted, note):
            return False
        if count < len(stored.assignments):
            log.error(
                "%s has %d partitions, but its keys stay in the %d that it had when it was made: "
                "in the others their state would not be found; they are not used",
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
        log.error("%s: written anew", error)  # noqa: TRY400 - told
        return None
