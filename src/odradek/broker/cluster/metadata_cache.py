"""The cluster's metadata as the controller announced it: brokers, topics, leaders.

Metadata requests are answered from here, never from the store. Only UpdateMetadata changes the
cache; a request that creates a topic waits until the cache has it (`wait_until`).
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from odradek.model.clock import MonotonicMs
from odradek.model.cluster import Broker, EndPoint
from odradek.model.partition import LEADER_DURING_DELETE, NO_LEADER
from odradek.wire.messages.update_metadata import UpdateMetadataRequest
from odradek.wire.schema import ZERO_UUID

DELETED_IDS_MAX: Final = 10_000
_PROTOCOL_NAMES: Final = {0: "PLAINTEXT", 1: "SSL", 2: "SASL_PLAINTEXT", 3: "SASL_SSL"}


class PartitionMetadata(NamedTuple):
    """The replicas of a partition and its leader."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]


class TopicMetadata:
    """One topic and its partitions, by index."""

    __slots__ = ("name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: bytes) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions: dict[int, PartitionMetadata] = {}


class MetadataCache:
    """The cluster in this broker's metadata. `version` grows with every change."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        monotonic_ms: Callable[[], MonotonicMs],
        *,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.version = 0
        self.controller_id = -1
        self.brokers: dict[int, Broker] = {}
        self._topics: dict[str, TopicMetadata] = {}
        self._by_id: dict[bytes, TopicMetadata] = {}
        self._deleted_ids: dict[str, bytes] = {}  # of the latest announced deletions, by topic
        self._loop = loop
        self._monotonic_ms = monotonic_ms
        self._changed = changed
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[bool]]] = []

    # ------------------------------------------------------------------- look-ups

    @property
    def partition_count(self) -> int:
        return sum(len(topic.partitions) for topic in self._topics.values())

    @property
    def topics(self) -> Mapping[str, TopicMetadata]:
        """All topics by their names."""
        return self._topics

    def topic(self, name: str) -> TopicMetadata | None:
        return self._topics.get(name)

    def topic_by_id(self, topic_id: bytes) -> TopicMetadata | None:
        return self._by_id.get(topic_id)

    def topic_name(self, topic_id: bytes) -> str | None:
        topic = self.topic_by_id(topic_id)
        return topic.name if topic is not None else None

    def deleted_id(self, name: str) -> bytes | None:
        """The id of the last topic of this name whose deletion the controller has announced.

        Only the last `DELETED_IDS_MAX` are kept.
        """
        return self._deleted_ids.get(name)

    def partition(self, topic: str, index: int) -> PartitionMetadata | None:
        """The metadata of a partition; None if there is none."""
        known = self._topics.get(topic)
        return known.partitions.get(index) if known else None

    def live_end_points(self, listener: str) -> Iterable[tuple[Broker, EndPoint]]:
        """The brokers that can be reached on a listener, in the order of their ids."""
        for broker_id in sorted(self.brokers):
            broker = self.brokers[broker_id]
            end_point = broker.end_point(listener)
            if end_point is not None:
                yield broker, end_point

    async def wait_for(self, predicate: Callable[[], bool], within_ms: int) -> bool:
        """Wait until `predicate` holds; False if it does not within `within_ms`."""
        return await self.wait_until(predicate, self._monotonic_ms() + within_ms)

    async def wait_until(self, predicate: Callable[[], bool], deadline_ms: int) -> bool:
        """Wait until `predicate` holds; False if it does not before the (monotonic) deadline."""
        if predicate():
            return True
        left_ms = deadline_ms - self._monotonic_ms()
        if left_ms <= 0:
            return False
        future: asyncio.Future[bool] = self._loop.create_future()
        entry = (predicate, future)
        self._waiting.append(entry)
        try:
            async with asyncio.timeout(left_ms / 1000):
                return await future
        except TimeoutError:
            return predicate()
        finally:
            if entry in self._waiting:
                self._waiting.remove(entry)

    # --------------------------------------------------------------------- changes

    def update(self, request: UpdateMetadataRequest) -> list[str]:
        """Apply UpdateMetadata. Returns the names of topics that are deleted now."""
        self.controller_id = request.controller_id
        self.brokers = {
            live.id: Broker(
                id=live.id,
                rack=live.rack,
                end_points=tuple(
                    EndPoint(
                        listener=point.listener,
                        security_protocol=_PROTOCOL_NAMES.get(point.security_protocol, "PLAINTEXT"),
                        host=point.host,
                        port=point.port,
                    )
                    for point in live.endpoints
                ),
            )
            for live in request.live_brokers
        }
        deleted = []
        for topic_state in request.topic_states:
            name, topic_id = topic_state.topic_name, topic_state.topic_id
            for state in topic_state.partition_states:
                if state.leader == LEADER_DURING_DELETE:
                    self._note_deletion(name, topic_id)
                    if self._remove_partition(name, state.partition_index):
                        deleted.append(name)
                    continue
                topic = self._topics.get(name)
                if topic is None or topic.topic_id != topic_id:
                    topic = self._new_topic(name, topic_id)
                topic.partitions[state.partition_index] = PartitionMetadata(
                    state.leader,
                    state.leader_epoch,
                    tuple(state.replicas),
                    tuple(state.isr),
                    tuple(state.offline_replicas),
                )
        self.version += 1
        self._changed()
        self._wake()
        return deleted

    def leader_of(self, partition: PartitionMetadata) -> int:
        """The leader, if it is registered; otherwise NO_LEADER."""
        return partition.leader if partition.leader in self.brokers else NO_LEADER

    def _new_topic(self, name: str, topic_id: bytes) -> TopicMetadata:
        old = self._topics.get(name)
        if old is not None:  # the topic was deleted and created again
            self._by_id.pop(old.topic_id, None)
        topic = self._topics[name] = TopicMetadata(name, topic_id)
        if topic_id != ZERO_UUID:
            self._by_id[topic_id] = topic
        return topic

    def _note_deletion(self, name: str, topic_id: bytes) -> None:
        if topic_id == ZERO_UUID:
            return  # without an id it cannot be distinguished from the next topic of its name
        self._deleted_ids.pop(name, None)
        self._deleted_ids[name] = topic_id
        if len(self._deleted_ids) > DELETED_IDS_MAX:
            del self._deleted_ids[next(iter(self._deleted_ids))]

    def _remove_partition(self, name: str, index: int) -> bool:
        topic = self._topics.get(name)
        if topic is None:
            return False
        topic.partitions.pop(index, None)
        if topic.partitions:
            return False
        del self._topics[name]
        self._by_id.pop(topic.topic_id, None)
        return True

    def _wake(self) -> None:
        still_waiting = []
        for predicate, future in self._waiting:
            if future.done():
                continue
            if predicate():
                future.set_result(True)
            else:
                still_waiting.append((predicate, future))
        self._waiting = still_waiting
