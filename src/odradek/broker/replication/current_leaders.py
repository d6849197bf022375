"""The leader that a refused Produce or Fetch should be sent to instead (KIP-951).

With it in the response a client needs no Metadata request: Java's producer (3.7) retries at once
instead of after `retry.backoff.ms`, and librdkafka (2.4) does not depend on the metadata of the
broker that it happens to ask.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from odradek.broker.cluster.metadata_cache import MetadataCache
from odradek.broker.replication.replica_manager import ReplicaManager
from odradek.broker.serving.purgatory import DataRequest
from odradek.model.cluster import Broker, EndPoint
from odradek.model.errors import ErrorCode
from odradek.model.partition import NO_LEADER
from odradek.wire.messages import fetch, produce

IN_PRODUCE_SINCE: Final = 10
IN_FETCH_SINCE: Final = 12
END_POINTS_IN_FETCH_SINCE: Final = 16
_MOVED: Final = {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH}

ProduceAnswers = Iterable[tuple[str, list[produce.ProducePartitionResult]]]
FetchAnswers = Iterable[tuple[str | bytes, list[fetch.PartitionData]]]


class CurrentLeader(NamedTuple):
    """A leader, its leader epoch, and where the client reaches it."""

    epoch: int
    broker: Broker
    end_point: EndPoint


class CurrentLeaders:
    """Names leaders in responses, as far as this broker has them."""

    def __init__(self, replicas: ReplicaManager, metadata: MetadataCache, broker_id: int) -> None:
        self._replicas = replicas
        self._metadata = metadata
        self._broker_id = broker_id

    def of(self, topic: str, index: int, listener: str) -> CurrentLeader | None:
        """The leader in the newest leader epoch that this broker has of the partition.

        LeaderAndIsr reaches a replica before or after UpdateMetadata. None: the leader is not
        registered, lacks the client's listener, or is this broker, which has refused the request
        (it may lead again in a newer epoch than the client's: that one is named).
        """
        held, known = self._replicas.get(topic, index), self._metadata.partition(topic, index)
        leader, epoch, leads_here = NO_LEADER, -1, False
        if held is not None:
            leader, epoch, leads_here = held.leader_id, held.leader_epoch, held.leader is not None
        if known is not None and known.leader_epoch > epoch:
            leader, epoch = known.leader, known.leader_epoch
        broker = self._metadata.brokers.get(leader)
        if broker is None or (leader == self._broker_id and not leads_here):
            return None
        end_point = broker.end_point(listener)
        return None if end_point is None else CurrentLeader(epoch, broker, end_point)

    def name_in_produce(
        self, call: DataRequest, topics: ProduceAnswers
    ) -> list[produce.NodeEndpoint]:
        """Add the leaders to the refusals of a Produce response. Returns their addresses."""
        if call.header.api_version < IN_PRODUCE_SINCE:
            return []
        listener = call.connection.session.listener
        named: dict[int, produce.NodeEndpoint] = {}
        for topic, answers in topics:
            for number, answer in enumerate(answers):
                found = None
                if answer.error_code in _MOVED:
                    found = self.of(topic, answer.partition, listener)
                if found is not None:
                    broker, point = found.broker, found.end_point
                    answers[number] = answer._replace(
                        current_leader=produce.LeaderIdAndEpoch(
                            leader_id=broker.id, leader_epoch=found.epoch
                        )
                    )
                    named[broker.id] = produce.NodeEndpoint(
                        node_id=broker.id, host=point.host, port=point.port, rack=broker.rack
                    )
        return list(named.values())

    def name_in_fetch(self, call: DataRequest, topics: FetchAnswers) -> list[fetch.NodeEndpoint]:
        """Add the leaders to the refusals of a Fetch response. Returns their addresses."""
        if call.header.api_version < IN_FETCH_SINCE:
            return []
        listener = call.connection.session.listener
        named: dict[int, fetch.NodeEndpoint] = {}
        for key, answers in topics:
            topic = key if isinstance(key, str) else self._metadata.topic_name(key)
            for answer in answers:
                found = None
                if answer.error_code in _MOVED and topic is not None:
                    found = self.of(topic, answer.partition_index, listener)
                if found is not None:
                    broker, point = found.broker, found.end_point
                    answer.current_leader = fetch.LeaderIdAndEpoch(
                        leader_id=broker.id, leader_epoch=found.epoch
                    )
                    named[broker.id] = fetch.NodeEndpoint(
                        node_id=broker.id, host=point.host, port=point.port, rack=broker.rack
                    )
        return list(named.values()) if call.header.api_version >= END_POINTS_IN_FETCH_SINCE else []
