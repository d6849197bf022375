"""Which partitions were deleted: decided by the store and the controller, not by the cache.

A partition may be missing from the metadata cache because it is new: UpdateMetadata reaches each
broker at another time, and a coordinator may have to end a transaction in a topic that its broker's
metadata does not have yet. So a partition counts as deleted only if

    * the store has no node of the topic, or one without this partition (the topic was created again
      with fewer partitions), or
    * the controller has announced the deletion of the topic with the id that the store has. The
      node stays until the last replica is deleted, which may take as long as a broker is offline.

In all other cases the marker waits. (Apache Kafka 3.9 treats what its cache does not have as
deleted: `TransactionMarkerChannelManager.addTxnMarkersToBrokerQueue`. So the marker for a new topic
may be lost.)
"""

import logging
from collections.abc import Collection
from typing import Final

from odradek.broker.cluster.metadata_cache import MetadataCache
from odradek.coord import layout
from odradek.coord.layout import TopicNode
from odradek.coord.registry import latest
from odradek.coord.store import Store, StoreError
from odradek.coord.znode import CorruptNodeError
from odradek.model.clock import Clock
from odradek.model.partition import TopicPartition

log = logging.getLogger(__name__)

LOOK_AGAIN_MS: Final = 1_000  # after the store still had the topic


def is_deleted(
    partition: TopicPartition, stored: TopicNode | None, announced_id: bytes | None
) -> bool:
    """Whether a partition is deleted.

    `stored` is the topic's node, None if there is none; `announced_id` is the id of the last topic
    of this name whose deletion the controller has announced.
    """
    if stored is None or partition.partition not in stored.assignments:
        return True
    return stored.topic_id is not None and stored.topic_id.bytes == announced_id


class DeletedPartitions:
    """Asks the store, for each topic at most once in `LOOK_AGAIN_MS`."""

    def __init__(self, store: Store, cache: MetadataCache, clock: Clock) -> None:
        self._store = store
        self._cache = cache
        self._clock = clock
        self._next_look_ms: dict[str, int] = {}  # monotonic, by topic

    async def among(self, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        """The partitions among these that are known to be deleted."""
        monotonic_ms = self._clock.monotonic_ms()
        self._next_look_ms = {t: due for t, due in self._next_look_ms.items() if due > monotonic_ms}
        topics = sorted({topic for topic, _ in partitions} - self._next_look_ms.keys())
        if not topics:
            return frozenset()
        try:
            nodes = await latest(self._store, [layout.topic_path(topic) for topic in topics])
        except StoreError as error:
            log.info("it is not known whether %d topics are deleted: %s", len(topics), error)
            return frozenset()
        deleted = set[TopicPartition]()
        for topic, node in zip(topics, nodes, strict=True):
            if node is not None:
                self._next_look_ms[topic] = monotonic_ms + LOOK_AGAIN_MS
            try:
                stored = None if node is None else layout.decode_topic(topic, node[0])
            except CorruptNodeError as error:
                log.error("transactions in topic %s wait: %s", topic, error)  # noqa: TRY400 - no bug
                continue
            announced_id = self._cache.deleted_id(topic)
            deleted.update(
                partition
                for partition in partitions
                if partition.topic == topic and is_deleted(partition, stored, announced_id)
            )
        return frozenset(deleted)
