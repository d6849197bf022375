"""Counts the errors of partitions in fetch responses, for metrics and by client."""

from odradek.broker.error_counts import Subject
from odradek.broker.replication.replica_manager import ReplicaManager
from odradek.broker.serving.session import Session
from odradek.obs.metrics import RequestMetrics
from odradek.replica.fetch_session import SessionPartition
from odradek.wire.api_keys import ApiKey


class FetchErrors:
    """The errors of one broker's Fetch responses."""

    def __init__(self, metrics: RequestMetrics, replicas: ReplicaManager) -> None:
        self._metrics = metrics
        self._replicas = replicas

    def count(
        self, session: Session, wanted: SessionPartition, error: int, *, is_follower: bool
    ) -> None:
        """Count an error. Followers get some in each election: theirs are in the metrics only."""
        self._metrics.errors[ApiKey.FETCH, error] += 1
        if not is_follower:
            topic = wanted.key[0]
            name = topic if isinstance(topic, str) else self._replicas.topic_name(topic)
            session.count_error(ApiKey.FETCH, error, Subject(topic=name or ""))
