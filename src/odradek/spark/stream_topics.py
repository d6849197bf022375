"""The topics of a streaming query, and which of them were deleted.

A broker that has just started answers UNKNOWN_TOPIC_OR_PARTITION for every topic until the
controller has sent it the metadata, which may take seconds. A query that took this for a deleted
topic would drop its offsets, and read all of it again later. So the metadata of a missing topic is
requested again for `default.api.timeout.ms`, and its offsets are kept even then; they are dropped
only when the topic has another id, which means another topic of that name (KIP-516).
"""

from collections.abc import Collection
from typing import NamedTuple

from odradek.client.arrow.cluster import existing, retries, topic_names
from odradek.client.cluster import Cluster
from odradek.model.java_pattern import compile_java_pattern
from odradek.model.partition import TopicPartition
from odradek.spark.options import ReadOptions


class Seen(NamedTuple):
    """The query's topics in the cluster's metadata."""

    partitions: list[TopicPartition]  # of the query, without those of `replaced`
    missing: list[str]  # topics still missing after a whole timeout
    replaced: list[str]  # topics that were deleted and created again
    kept: list[TopicPartition]  # those with offsets, existing or missing


class StreamTopics:
    """The topic ids and missing topics of a query, from trigger to trigger."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._pattern = None if options.pattern is None else compile_java_pattern(options.pattern)
        self._ids: dict[str, bytes] = {}
        self._missing: set[str] = set()  # those that a whole timeout was spent on

    async def look(self, cluster: Cluster, begun: Collection[TopicPartition]) -> Seen:
        """Read the metadata of the query's topics; partitions in `begun` have offsets already.

        Raises:
            ApiError, ConnectionError: see `client.arrow.cluster.retried`.
        """
        names = await self._names(cluster, begun)
        found = await self.find(cluster, names)
        topics_begun = {partition.topic for partition in begun}
        replaced = []
        for topic in found:
            topic_id = cluster.topic_id(topic)
            if topic in topics_begun and self._ids.get(topic, topic_id) != topic_id:
                replaced.append(topic)
            else:
                self._ids[topic] = topic_id
        there = [
            TopicPartition(topic, number)
            for topic, numbers in found.items()
            if topic not in replaced
            for number in numbers
        ]
        return Seen(
            partitions=[name for name in there if self._is_wanted(name)],
            missing=[name for name in names if name not in found],
            replaced=replaced,
            kept=[name for name in begun if name.topic not in replaced and self._is_wanted(name)],
        )

    async def find(self, cluster: Cluster, names: Collection[str]) -> dict[str, list[int]]:
        """The partitions of the topics that exist or appear within the timeout."""
        attempts = retries(cluster.settings.api_timeout_ms)
        while True:
            found = await existing(cluster, names)
            self._missing -= found.keys()
            missing = {name for name in names if name not in found}
            # A deleted topic delays one trigger, not each of them.
            if missing <= self._missing:
                return found
            if not await attempts.pause():
                self._missing |= missing
                return found

    async def _names(self, cluster: Cluster, begun: Collection[TopicPartition]) -> list[str]:
        if self._pattern is None:
            names = self._options.subscribe or [name.topic for name in self._options.assign]
            return list(dict.fromkeys(names))
        listed = [topic for topic in await topic_names(cluster) if self._pattern.search(topic)]
        # The list of topics of a broker that has just started may be incomplete.
        known = [name.topic for name in begun if self._pattern.search(name.topic)]
        return list(dict.fromkeys([*listed, *known]))

    def _is_wanted(self, partition: TopicPartition) -> bool:
        if self._options.assign:
            return partition in self._options.assign
        if self._pattern is not None:
            return self._pattern.search(partition.topic) is not None
        return partition.topic in self._options.subscribe
