"""High watermarks of partitions that this broker has no replica of, for the lag of its groups.

They are asked for when the metrics are read, at most every ten seconds, and are there at the next
reading. While no program reads the metrics no request is sent.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from odradek.broker.cluster.metadata_cache import MetadataCache
from odradek.broker.serving.tasks import Tasks
from odradek.model.partition import TopicPartition
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

log = logging.getLogger(__name__)

_EVERY_S: Final = 10
_CONSUMER: Final = -1
_LATEST: Final = -1
PARTITIONS_MAX: Final = 10_000  # of one round

Ask = Callable[[int, ListOffsetsRequest], Awaitable[ListOffsetsResponse]]


class LeaderEnds:
    """The high watermarks that leaders have last answered."""

    def __init__(self, ask: Ask, metadata: MetadataCache, tasks: Tasks) -> None:
        self._ask = ask
        self._metadata = metadata
        self._tasks = tasks
        self._known: dict[TopicPartition, int] = {}
        self._asked_s = -float(_EVERY_S)
        self.is_asking = False

    def of(self, partition: TopicPartition) -> int | None:
        """The high watermark at the last round; None if it is not known."""
        return self._known.get(partition)

    def want(self, partitions: Iterable[TopicPartition]) -> None:
        """Ask the leaders of these partitions, unless they were asked a moment ago."""
        now_s = asyncio.get_running_loop().time()
        wanted = list(partitions)[:PARTITIONS_MAX]
        if wanted and not self.is_asking and now_s - self._asked_s >= _EVERY_S:
            self._asked_s, self.is_asking = now_s, True
            self._tasks.start(self._round(wanted), "high watermarks for the lag of groups")

    async def _round(self, wanted: Iterable[TopicPartition]) -> None:
        by_leader: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for partition in wanted:
            found = self._metadata.partition(*partition)
            if found is not None and found.leader >= 0:
                by_leader[found.leader][partition.topic].append(partition.partition)
        known: dict[TopicPartition, int] = {}
        try:
            for leader, topics in by_leader.items():
                try:
                    response = await self._ask(leader, _request(topics))
                except (OSError, TimeoutError) as error:
                    log.debug("broker %d does not answer ListOffsets: %s", leader, error)
                    continue
                for topic in response.topics:
                    for answer in topic.partitions:
                        if not answer.error_code:
                            known[TopicPartition(topic.name, answer.partition_index)] = (
                                answer.offset
                            )
            self._known = known
        finally:
            self.is_asking = False


def _request(topics: dict[str, list[int]]) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        replica_id=_CONSUMER,
        topics=[
            ListOffsetsTopic(
                name=name,
                partitions=[
                    ListOffsetsPartition(partition_index=index, timestamp=_LATEST)
                    for index in indexes
                ],
            )
            for name, indexes in topics.items()
        ],
    )
