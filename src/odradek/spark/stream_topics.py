"""The topics of a streaming query, and which of them are gone.

A broker that has just started answers UNKNOWN_TOPIC_OR_PARTITION for every topic until the
controller has sent it the metadata, which may take seconds. A query that took this for a deleted
topic would drop its offsets, and read all of it again when the broker knows it. So a topic that
is missing is asked for again for `default.api.timeout.ms`, and its offsets are kept even then;
they are dropped only when the topic is there under another id, which is another topic (KIP-516).
"""

import re
from collections.abc import Collection
from typing import NamedTuple

from odradek.client.arrow.cluster import ArrowCluster, Patience
from odradek.model.partition import TopicPartition
from odradek.spark.options import ReadOptions


class Seen(NamedTuple):
    """What a look at the cluster shows."""

    partitions: list[TopicPartition]  # of the query, without those of `replaced`
    missing: list[str]  # topics that are not there, after a whole time-out
    replaced: list[str]  # topics that were deleted and made again
    kept: list[TopicPartition]  # those the query has begun with and goes on with, there or not


class StreamTopics:
    """What a query has seen of its topics, from trigger to trigger."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._pattern = None if options.pattern is None else re.compile(options.pattern)
        self._ids: dict[str, bytes] = {}
        self._missing: set[str] = set()  # those that a whole time-out was waited for

    async def look(self, cluster: ArrowCluster, begun: Collection[TopicPartition]) -> Seen:
        """Look for the topics of the query, of which `begun` have offsets already.

        Raises:
            ApiError, ConnectionError: see `ArrowCluster.retried`.
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

    async def find(self, cluster: ArrowCluster, names: Collection[str]) -> dict[str, list[int]]:
        """The partitions of those topics that are there, or come within the time-out."""
        patience = Patience(cluster.settings.api_timeout_ms)
        while True:
            found = await cluster.present(names)
            self._missing -= found.keys()
            missing = {name for name in names if name not in found}
            # One that is deleted holds up one trigger, not each of them.
            if missing <= self._missing:
                return found
            if not await patience.once_more():
                self._missing |= missing
                return found

    async def _names(self, cluster: ArrowCluster, begun: Collection[TopicPartition]) -> list[str]:
        if self._pattern is None:
            names = self._options.subscribe or [name.topic for name in self._options.assign]
            return list(dict.fromkeys(names))
        listed = [topic for topic in await cluster.topics() if self._pattern.search(topic)]
        # A list of topics by a broker that has just started may lack some.
        known = [name.topic for name in begun if self._pattern.search(name.topic)]
        return list(dict.fromkeys([*listed, *known]))

    def _is_wanted(self, partition: TopicPartition) -> bool:
        if self._options.assign:
            return partition in self._options.assign
        if self._pattern is not None:
            return self._pattern.search(partition.topic) is not None
        return partition.topic in self._options.subscribe
