"""ISR changes on their way to the controller (AlterPartition, KIP-497).

Leaders propose ISRs here; those proposed since the last answer go in one request, and one request
is in flight at a time. The controller stores the ISR and answers the state of each partition.

    stored               the leader applies it, unless it has a newer state by now
    connection lost      sent again: the controller recognizes a change that is stored already
    other epoch          LeaderAndIsr with the present state is on its way; sent again until then
    INELIGIBLE_REPLICA   the follower's registration has changed (KIP-903): back to the stored ISR;
                         the follower's next fetches propose it again
    UNKNOWN_TOPIC_ID     the topic was deleted while this broker was down: stop leading it
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

# The change is refused: the leader returns to the stored ISR.
_REFUSED: Final = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})
# A newer state is on its way to this broker with LeaderAndIsr.
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
    # The broker epoch of each follower in the proposed ISR, as of its last Fetch. A retried
    # AlterPartition sends the same epochs, so that the controller refuses a follower that has
    # restarted since, and may have lost records (KIP-903).
    broker_epochs: dict[int, int]


def epoch_of(change: _Asked, member: int, *, own_epoch: int) -> int:
    """The broker epoch that is sent for a member; `own_epoch` is the leader's."""
    return change.broker_epochs.get(member, own_epoch)


class IsrShell:
    """All ISR changes that the leaders of one broker propose."""

    def __init__(  # noqa: PLR0913 - its collaborators
        self,
        link: ControllerLink,
        *,
        broker_id: int,
        broker_epoch: Callable[[], int],
        tasks: Tasks,
        stored: Callable[[Partition, tuple[int, ...], int], None],
        changed: Callable[[bool], None],
        topic_deleted: Callable[[Partition], None],
    ) -> None:
        """`stored` applies a stored ISR; `changed` counts: it gets whether the ISR grew.

        `topic_deleted` is called for a partition whose topic id the controller does not have.
        """
        self._link = link
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._tasks = tasks
        self._stored = stored
        self._changed = changed
        self._topic_deleted = topic_deleted
        self._asked: dict[tuple[bytes, int], _Asked] = {}
        self._running = False
        self._waits_for = ""
        self.failed = 0  # changes that the controller refused

    def ask(self, partition: Partition, isr: tuple[int, ...]) -> None:
        """Propose this ISR to the controller."""
        key = (partition.topic_id, partition.topic_partition.partition)
        leader = partition.leader
        if leader is None:
            return  # its ISR is the next leader's to change
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
            await asyncio.sleep(0)  # collect what is proposed in the same turn
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
        """Send one request. Returns what has to be sent again."""
        try:
            response = await self._link.ask(self._request(asked), AlterPartitionResponse)
        except (PeerError, ApiError) as error:
            self._wait_for(str(error))
            return asked
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
        """Log the reason once, not at each attempt."""
        if reason != self._waits_for:
            self._waits_for = reason
            log.info("ISR changes wait and are sent again: %s", reason)

    def _request(self, asked: dict[tuple[bytes, int], _Asked]) -> AlterPartitionRequest:
        topics: dict[bytes, AlterPartitionTopic] = {}
        for (topic_id, index), change in asked.items():
            topic = topics.setdefault(topic_id, AlterPartitionTopic(topic_id=topic_id))
            topic.partitions.append(
                AlterPartitionPartition(
                    partition_index=index,
                    leader_epoch=change.leader_epoch,
                    new_isr_with_epochs=[
                        BrokerState(
                            broker_id=member,
                            broker_epoch=epoch_of(change, member, own_epoch=self._broker_epoch()),
                        )
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

    def _settle(self, change: _Asked, answer: AlteredPartition) -> bool:
        """Whether this change is complete: stored, refused or out of date."""
        partition, error = change.partition, ErrorCode(answer.error_code)
        leader = partition.leader
        if leader is None or not self._is_current(change):
            return True
        if error is ErrorCode.NONE:
            isr = tuple(answer.isr)
            self._changed(len(isr) > len(leader.isr.committed))
            self._stored(partition, isr, answer.partition_epoch)
            return True
        self.failed += 1
        log.info("%s: ISR %s: %s", partition.topic_partition, list(change.isr), error.name)
        if error in _REFUSED:
            partition.isr_refused()
            return True
        if error is ErrorCode.UNKNOWN_TOPIC_ID:
            self._topic_deleted(partition)
        return error in _OVERTAKEN
