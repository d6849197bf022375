"""The cluster's metadata as the controller announced it: brokers, topics, leaders.

Metadata requests are answered from here, never from the store. Only UpdateMetadata changes the
cache; a request that creates a topic waits until the cache has it (`wait_until`).
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from odradek.broker.cluster.expected_leaders import ExpectedLeaders
from odradek.model.clock import MonotonicMs
from odradek.model.cluster import Broker, EndPoint
from odradek.model.invariants import hold
from odradek.model.partition import LEADER_DURING_DELETE, NO_LEADER
from odradek.wire.messages.update_metadata import UpdateMetadataRequest
from odradek.wire.schema import ZERO_UUID

DEPARTED_MS: Final = 5_000
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
        hold_ms: int = 0,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """`hold_ms`: how long a response may wait for a leader that is expected."""
        self.version = 0
        self.controller_id = -1
        self.brokers: dict[int, Broker] = {}
        self._topics: dict[str, TopicMetadata] = {}
        self._by_id: dict[bytes, TopicMetadata] = {}
        self._deleted_ids: dict[str, bytes] = {}  # of the latest announced deletions, by topic
        self._loop = loop
        self._monotonic_ms = monotonic_ms
        self._changed = changed
        self._departed: list[tuple[Broker, MonotonicMs]] = []  # since when they are not registered
        self.expected = ExpectedLeaders(hold_ms)
        self._lost: set[int] = set()  # leaders without a connection from here since their loss
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

    # ------------------------------------------------------------- leaders that are expected

    async def wait_for_leaders(self, topics: Sequence[str] | None) -> None:
        """Wait while a newer leader of these topics (None: all) is expected."""
        await self._wait(partial(self.expected.until_ms, topics))

    async def wait_for_leaders_of(self, partitions: Collection[tuple[str, int]]) -> None:
        """Wait while a newer leader of one of these partitions is expected."""
        await self._wait(partial(self.expected.until_ms_of, partitions))

    async def _wait(self, held_until: Callable[[MonotonicMs], int]) -> None:
        until_ms = held_until(self._monotonic_ms())
        if until_ms:
            await self.wait_until(lambda: not held_until(self._monotonic_ms()), until_ms)

    def leader_lost(self, leader: int) -> None:
        """The connection to this broker is lost: another leader is expected for its partitions.

        A loss is a reason once. While the broker stays registered and cannot be reached from here,
        failed attempts to connect are not further ones: its clients may well reach it.
        """
        if self.expected.hold_ms and leader not in self._lost:
            self._lost.add(leader)
            for topic, index, known in self._led_by(leader):
                self.expected.expect(topic, index, known.leader_epoch + 1, self._monotonic_ms())

    def leader_reached(self, leader: int) -> None:
        """There is a connection to this broker again."""
        self._lost.discard(leader)
        if self.expected:
            for topic, index, _ in self._led_by(leader):
                self.expected.drop(topic, index)
            self._wake()

    def leader_announced(self, topic: str, index: int, leader_epoch: int) -> None:
        """The controller has sent this leader epoch to the replicas, or will soon."""
        known = self.partition(topic, index)
        if known is None or leader_epoch > known.leader_epoch:
            self.expected.expect(topic, index, leader_epoch, self._monotonic_ms())

    def leaders_of(self, topics: Iterable[str], count_max: int) -> set[int]:
        """The leaders of these topics' partitions, of the first `count_max`."""
        known = (self._topics[name] for name in topics if name in self._topics)
        partitions = (found for topic in known for found in topic.partitions.values())
        return {found.leader for found in islice(partitions, count_max)}

    def _led_by(self, leader: int) -> list[tuple[str, int, PartitionMetadata]]:
        return [
            (name, index, known)
            for name, topic in self._topics.items()
            for index, known in topic.partitions.items()
            if known.leader == leader
        ]

    def validate(self) -> None:
        """Check that each response that waits has a reason, and waits no longer than it may.

        Raises:
            InvariantError: a leader epoch is expected that the metadata has, or for too long.
        """
        latest_ms = self._monotonic_ms() + self.expected.hold_ms
        for (topic, index), (epoch, deadline_ms) in self.expected.items():
            known = self.partition(topic, index)
            name = f"metadata of {topic}-{index}"
            known_epoch = -1 if known is None else known.leader_epoch
            hold(epoch > known_epoch, name, "leader epoch %d is expected, and is there", epoch)
            hold(deadline_ms <= latest_ms, name, "a response waits until %d", deadline_ms)

    # --------------------------------------------------------------------- changes

    def update(self, request: UpdateMetadataRequest) -> list[str]:
        """Apply UpdateMetadata. Returns the names of topics that are deleted now."""
        self.controller_id = request.controller_id
        before = self.brokers
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
        self._note_departures(before)
        deleted = []
        for topic_state in request.topic_states:
            name, topic_id = topic_state.topic_name, topic_state.topic_id
            for state in topic_state.partition_states:
                self.expected.met(name, state.partition_index, state.leader_epoch)
                if state.leader == LEADER_DURING_DELETE:
                    self.expected.drop(name, state.partition_index)
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

    def _note_departures(self, before: dict[int, Broker]) -> None:
        if not self.expected.hold_ms:  # responses are as Kafka's
            return
        now = self._monotonic_ms()
        gone = [broker for broker in before.values() if broker.id not in self.brokers]
        self._departed = [
            (broker, at) for broker, at in self._departed if broker.id not in self.brokers
        ] + [(broker, now) for broker in gone]

    def departed_end_points(self, listener: str) -> list[tuple[Broker, EndPoint]]:
        """The addresses of brokers that have ended in the last `DEPARTED_MS`."""
        if not self._departed:
            return []
        since = self._monotonic_ms() - DEPARTED_MS
        self._departed = [(broker, at) for broker, at in self._departed if at > since]
        points = ((broker, broker.end_point(listener)) for broker, _ in self._departed)
        return [(broker, point) for broker, point in points if point is not None]

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
