"""A client's cached metadata: brokers, topics, partitions and their leaders. Pure.

A response may come from a broker whose metadata is out of date. A partition state with an older
leader epoch than the cached one is ignored, unless the topic id has changed (KIP-320).
"""

from collections.abc import Iterable
from typing import NamedTuple

from odradek.model.partition import NO_LEADER, TopicPartition
from odradek.wire.messages.metadata import MetadataResponse, MetadataResponseTopic
from odradek.wire.schema import ZERO_UUID


class Node(NamedTuple):
    """One broker with the address that its listener advertises."""

    id: int
    host: str
    port: int
    rack: str | None = None


class PartitionMetadata(NamedTuple):
    """Leader, leader epoch and replicas of one partition."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()


class TopicMetadata(NamedTuple):
    """An existing topic with its partitions."""

    id: bytes
    is_internal: bool
    partitions: dict[int, PartitionMetadata]


class ClusterMetadata:
    """What the Metadata responses so far have contained."""

    def __init__(self) -> None:
        self.nodes: dict[int, Node] = {}
        self.controller = -1
        self.cluster_id: str | None = None
        self.topics: dict[str, TopicMetadata] = {}
        self.errors: dict[str, int] = {}  # error codes of requested topics, by name

    def update(self, answer: MetadataResponse, *, all_topics: bool = False) -> None:
        """Merge a response; with `all_topics`, topics that it does not contain are removed."""
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

    def _topic(self, name: str, received: MetadataResponseTopic) -> TopicMetadata:
        known = self.topics.get(name)
        if known is not None and known.id != received.topic_id:
            known = None
        partitions = {}
        for partition in sorted(received.partitions, key=lambda p: p.partition_index):
            state = PartitionMetadata(
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
        return TopicMetadata(received.topic_id, received.is_internal, partitions)

    # --------------------------------------------------------------------------- queries

    def leader(self, partition: TopicPartition) -> int:
        """The leader of a partition if it is a registered broker, else NO_LEADER."""
        state = self.state(partition)
        return state.leader if state is not None and state.leader in self.nodes else NO_LEADER

    def state(self, partition: TopicPartition) -> PartitionMetadata | None:
        topic = self.topics.get(partition.topic)
        return None if topic is None else topic.partitions.get(partition.partition)

    def leader_epoch(self, partition: TopicPartition) -> int:
        """The leader epoch of a partition; -1 if the partition is not cached."""
        state = self.state(partition)
        return -1 if state is None else state.leader_epoch

    def partitions(self, topic: str) -> list[TopicPartition]:
        """All partitions of a topic, in order; empty if the topic is not cached."""
        state = self.topics.get(topic)
        return [TopicPartition(topic, index) for index in state.partitions] if state else []

    def topic_id(self, topic: str) -> bytes:
        """The id of a topic; zero if the topic is not cached, or the broker sent no id."""
        state = self.topics.get(topic)
        return state.id if state else ZERO_UUID

    def without_leader(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Those of the given partitions that have no leader."""
        return [partition for partition in partitions if self.leader(partition) == NO_LEADER]
