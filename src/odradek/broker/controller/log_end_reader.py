"""Reads where replicas' logs end, for an election in which every in-sync replica may lack records.

ListOffsets as a debugging replica (-2), Kafka's own way to read past the high watermark: a broker
answers from its log, whether it leads or follows. A broker that does not respond is sent the
request again, a few times.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from odradek.broker.serving.tasks import Tasks
from odradek.controller.effects import ReadLogEnds
from odradek.controller.isr_history import NO_LOG, LogEnd
from odradek.model.errors import ErrorCode
from odradek.model.partition import TopicPartition
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

DEBUGGING_REPLICA: Final = -2
_LATEST: Final = -1
_ATTEMPTS: Final = 5
_PAUSE_S: Final = 0.5

Ends = Mapping[TopicPartition, Mapping[int, LogEnd]]
# Ask one broker.
AskBroker = Callable[[int, ListOffsetsRequest], Awaitable[ListOffsetsResponse]]


class LogEndReader:
    """Asks brokers, in the background."""

    def __init__(self, ask: AskBroker, tasks: Tasks) -> None:
        """`ask` raises OSError where no answer comes."""
        self._ask = ask
        self._tasks = tasks

    def find(self, wanted: ReadLogEnds, found: Callable[[Ends], None]) -> None:
        """Read all of these; `found` is called with the responses that came."""
        self._tasks.start(self._find(wanted, found), "log ends")

    async def _find(self, wanted: ReadLogEnds, found: Callable[[Ends], None]) -> None:
        of_broker: dict[int, list[TopicPartition]] = {}
        for partition, replicas in wanted.replicas.items():
            for replica in replicas:
                of_broker.setdefault(replica, []).append(partition)
        ends: dict[TopicPartition, dict[int, LogEnd]] = {name: {} for name in wanted.replicas}
        await asyncio.gather(
            *(self._of_broker(broker, names, ends) for broker, names in of_broker.items())
        )
        found(ends)

    async def _of_broker(
        self,
        broker: int,
        names: Sequence[TopicPartition],
        ends: dict[TopicPartition, dict[int, LogEnd]],
    ) -> None:
        request = _request(names)
        for attempt in range(_ATTEMPTS):
            if attempt:
                await asyncio.sleep(_PAUSE_S)
            try:
                answer = await self._ask(broker, request)
            except OSError:
                continue
            for topic in answer.topics:
                for end in topic.partitions:
                    partition = TopicPartition(topic.name, end.partition_index)
                    if end.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                        ends[partition][broker] = NO_LOG
                    elif not end.error_code:
                        ends[partition][broker] = LogEnd(end.leader_epoch, end.offset)
            return


def _request(names: Sequence[TopicPartition]) -> ListOffsetsRequest:
    topics: dict[str, ListOffsetsTopic] = {}
    for topic, index in names:
        asked = topics.setdefault(topic, ListOffsetsTopic(name=topic))
        asked.partitions.append(ListOffsetsPartition(partition_index=index, timestamp=_LATEST))
    return ListOffsetsRequest(replica_id=DEBUGGING_REPLICA, topics=list(topics.values()))
