"""ISR changes on their way to the controller (AlterPartition, KIP-497).

Leaders ask here for another ISR; what was asked since the last answer goes in one request, and
there is one request at a time. The controller stores, and answers what stands for each partition.

    stored             the leader goes by it, if it has not heard of anything newer meanwhile
    lost, no answer    asked again: the controller knows a change that is there already
    another epoch      the controller's next order tells what stands; until then it stays asked for
    not eligible       the follower's broker is not alive in the life that was seen: back to what
                       is stored; its next fetches will ask again
    no such topic      it was deleted, and nobody could tell us so: it is led no longer
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from odradek.broker.cluster.peers import PeerError
from odradek.broker.controller.link import ControllerLink
from odradek.broker.replication.partition import Partition
from odradek.broker.serving.tasks import Tasks
from odradek.model.errors import ApiError, ErrorCode
from odradek.model.partition import RECOVERED
from odradek.wire.messages.alter_partition import (
    AlteredPartition,
    AlterPartitionPartition,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopic,
    BrokerState,
)

log = logging.getLogger(__name__)
_PAUSE_S: Final = 0.05

# The change cannot be had like this: back to what is stored.
_REFUSED: Final = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})
# Something newer is on its way to us; it will say what stands.
_OVERTAKEN: Final = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)


class _Asked(NamedTuple):
    partition: Partition
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    # The lives in which the members had what the leader asks for them on the strength of. Asked
    # again it is with these: who has started anew since may have lost it (KIP-903).
    broker_epochs: dict[int, int]


class IsrShell:
    """All ISR changes of one broker."""

    def __init__(  # noqa: PLR0913 - whom it tells what
        self,
        link: ControllerLink,
        *,
        broker_id: int,
        broker_epoch: Callable[[], int],
        tasks: Tasks,
        stored: Callable[[Partition, tuple[int, ...], int], None],
        changed: Callable[[bool], None],
        gone: Callable[[Partition], None],
    ) -> None:
        """`stored` tells a leader what stands; `changed` is told whether an ISR grew, to count.

        `gone` is told of a partition whose topic the controller does not know.
        """
        self._link = link
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._tasks = tasks
        self._stored = stored
        self._changed = changed
        self._gone = gone
        self._asked: dict[tuple[bytes, int], _Asked] = {}
        self._running = False
        self._waits_for = ""

    def ask(self, partition: Partition, isr: tuple[int, ...]) -> None:
        """Have the controller store this ISR."""
        key = (partition.topic_id, partition.topic_partition.partition)
        leader = partition.leader
        assert leader is not None, partition.topic_partition
        self._asked[key] = _Asked(
            partition,
            partition.leader_epoch,
            partition.partition_epoch,
            isr,
            {member: f.broker_epoch for member, f in leader.followers.items() if member in isr},
        )
        if not self._running:
            self._running = True
            self._tasks.start(self._run(), "ISR changes")

    async def _run(self) -> None:
        try:
            await asyncio.sleep(0)  # what comes in the same turn goes together
            while self._asked:
                asked, self._asked = self._asked, {}
                again = await self._exchange(asked)
                for key, change in again.items():
                    if self._is_current(change):
                        self._asked.setdefault(key, change)
                if again:
                    await asyncio.sleep(_PAUSE_S)
        finally:
            self._running = False

    @staticmethod
    def _is_current(change: _Asked) -> bool:
        partition = change.partition
        return partition.leader is not None and partition.leader_epoch == change.leader_epoch

    async def _exchange(
        self, asked: dict[tuple[bytes, int], _Asked]
    ) -> dict[tuple[bytes, int], _Asked]:
        """One request. Returns what has to be asked again."""
        try:
            response = await self._link.ask(self._request(asked))
        except (PeerError, ApiError) as error:
            self._wait_for(str(error))
            return asked
        assert isinstance(response, AlterPartitionResponse)
        if response.error_code:
            self._wait_for(ErrorCode(response.error_code).name)
            return asked
        self._waits_for = ""
        again = dict(asked)
        for topic in response.topics:
            for answer in topic.partitions:
                key = (topic.topic_id, answer.partition_index)
                if key in asked and self._settle(asked[key], answer):
                    del again[key]
        return again

    def _wait_for(self, reason: str) -> None:
        """Say it once, not at each attempt."""
        if reason != self._waits_for:
            self._waits_for = reason
            log.info("ISR changes wait: %s", reason)

    def _request(self, asked: dict[tuple[bytes, int], _Asked]) -> AlterPartitionRequest:
        topics: dict[bytes, AlterPartitionTopic] = {}
        for (topic_id, index), change in asked.items():
            topic = topics.setdefault(topic_id, AlterPartitionTopic(topic_id=topic_id))
            topic.partitions.append(
                AlterPartitionPartition(
                    partition_index=index,
                    leader_epoch=change.leader_epoch,
                    new_isr_with_epochs=[
                        BrokerState(broker_id=member, broker_epoch=self._epoch_of(change, member))
                        for member in change.isr
                    ],
                    leader_recovery_state=RECOVERED,
                    partition_epoch=change.partition_epoch,
                )
            )
        return AlterPartitionRequest(
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch(),
            topics=list(topics.values()),
        )

    def _epoch_of(self, change: _Asked, member: int) -> int:
        return change.broker_epochs.get(member, self._broker_epoch())  # its own: it leads

    def _settle(self, change: _Asked, answer: AlteredPartition) -> bool:
        """Whether this change is over, one way or another."""
        partition, error = change.partition, ErrorCode(answer.error_code)
        if not self._is_current(change):
            return True
        if error is ErrorCode.NONE:
            leader = partition.leader
            assert leader is not None
            isr = tuple(answer.isr)
            self._changed(len(isr) > len(leader.isr.committed))
            self._stored(partition, isr, answer.partition_epoch)
            return True
        log.info("%s: ISR %s: %s", partition.topic_partition, list(change.isr), error.name)
        if error in _REFUSED:
            partition.isr_refused()
            return True
        if error is ErrorCode.UNKNOWN_TOPIC_ID:
            self._gone(partition)
        return error in _OVERTAKEN
