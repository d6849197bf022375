"""The picture that a client has of a cluster: brokers, and who leads what. Pure.

Answers may come from a broker that is behind. An older leader epoch than the known one is passed
over, unless the topic was made anew (KIP-320).
"""

from collections.abc import Iterable
from typing import NamedTuple

from odradek.model.partition import NO_LEADER, TopicPartition
from odradek.wire.messages.metadata import MetadataResponse, MetadataResponseTopic
from odradek.wire.schema import ZERO_UUID


class Node(NamedTuple):
    """One broker, as clients are told to reach it."""

    id: int
    host: str
    port: int
    rack: str | None = None


class PartitionState(NamedTuple):
    """Who leads and who holds one partition."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()


class TopicState(NamedTuple):
    """One topic that exists."""

    id: bytes
    is_internal: bool
    partitions: dict[int, PartitionState]


class Picture:
    """All that metadata has told so far."""

    def __init__(self) -> None:
        self.nodes: dict[int, Node] = {}
        self.controller = -1
        self.cluster_id: str | None = None
        self.topics: dict[str, TopicState] = {}
        self.errors: dict[str, int] = {}  # of topics that were asked for, by name

    def update(self, answer: MetadataResponse, *, all_topics: bool = False) -> None:
        """Take an answer in; `all_topics` says that what it does not name is gone."""
        self.nodes = {
            broker.node_id: Node(broker.node_id, broker.host, broker.port, broker.rack)
            for broker in answer.brokers
        }
        self.controller = answer.controller_id
        self.cluster_id = answer.cluster_id
        named = {topic.name: topic for topic in answer.topics if topic.name is not None}
        if all_topics:
            self.topics = {name: state for name, state in self.topics.items() if name in named}
            self.errors.clear()
        for name, topic in named.items():
            self.errors.pop(name, None)
            if topic.error_code:
                self.errors[name] = topic.error_code
                self.topics.pop(name, None)
            else:
                self.topics[name] = self._topic(name, topic)

    def _topic(self, name: str, told: MetadataResponseTopic) -> TopicState:
        known = self.topics.get(name)
        if known is not None and known.id != told.topic_id:
            known = None
        partitions = {}
        for partition in sorted(told.partitions, key=lambda p: p.partition_index):
            state = PartitionState(
                partition.leader_id,
                partition.leader_epoch,
                tuple(partition.replica_nodes),
                tuple(partition.isr_nodes),
                tuple(partition.offline_replicas),
            )
            before = known and known.partitions.get(partition.partition_index)
            if before and 0 <= state.leader_epoch < before.leader_epoch:
                state = before
            partitions[partition.partition_index] = state
        return TopicState(told.topic_id, told.is_internal, partitions)

    # ------------------------------------------------------------------- questions to it

    def leader(self, partition: TopicPartition) -> int:
        """The broker that leads a partition and is alive, or NO_LEADER."""
        state = self.state(partition)
        return state.leader if state is not None and state.leader in self.nodes else NO_LEADER

    def state(self, partition: TopicPartition) -> PartitionState | None:
        """One partition, if it is known."""
        topic = self.topics.get(partition.topic)
        return None if topic is None else topic.partitions.get(partition.partition)

    def partitions(self, topic: str) -> list[TopicPartition]:
        """All partitions of a topic, in order; none if it is not known."""
        state = self.topics.get(topic)
        return [TopicPartition(topic, index) for index in state.partitions] if state else []

    def topic_id(self, topic: str) -> bytes:
        """The id of a topic; zero if it is not known, or has none."""
        state = self.topics.get(topic)
        return state.id if state else ZERO_UUID

    def without_leader(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Those of them that nobody leads, as far as is known."""
        return [partition for partition in partitions if self.leader(partition) == NO_LEADER]
