"""Has the markers of transactions written by the leaders of their partitions.

Markers wait in a queue for each leader, and are sent in batches, with one request under way for
each broker. A marker that is not written goes into the queue of the leader of that moment:

    NONE                                                          written
    UNSUPPORTED_FOR_MESSAGE_FORMAT, UNSUPPORTED_VERSION           nothing can be written there
    INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED        fenced by another coordinator:
                                                                  this one gives up
    any other error, no answer                                    sent again, after a pause

A deleted partition needs no marker. A partition that is missing from the metadata cache, or that
its leader does not have, may exist all the same: `odradek.broker.cluster.deleted_partitions`
decides, and until then the marker waits like one of a partition without a leader. A coordinator
that has lost its partition stops: the next one sends the markers again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final

from odradek.broker.cluster.metadata_cache import MetadataCache
from odradek.broker.cluster.peer_book import PeerBook
from odradek.broker.cluster.peers import PeerError
from odradek.broker.coordinators.txn_shell import Coordinator
from odradek.broker.serving.tasks import Tasks
from odradek.model.clock import Clock
from odradek.model.errors import ErrorCode
from odradek.model.partition import NO_LEADER, TopicPartition
from odradek.txn.effects import WriteMarkers
from odradek.txn.events import MarkersWritten
from odradek.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

log = logging.getLogger(__name__)

MARKERS_AT_ONCE: Final = 1_000  # transactions in one request
_AGAIN_S: Final = 0.1
_MAYBE_DELETED: Final = -2  # the queue of partitions that the cache, or the leader, does not have
_NEEDLESS: Final = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
_FENCED: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED}
)


@dataclass(slots=True, eq=False)
class _Marker:
    """The markers of one transaction, and its coordinator."""

    coordinator: Coordinator
    transaction: WriteMarkers
    is_fenced: bool = False

    @property
    def is_over(self) -> bool:
        return self.is_fenced or self.coordinator.is_over


class TransactionMarkers:
    """The queues of one broker's transaction coordinators."""

    def __init__(  # noqa: PLR0913 - its collaborators
        self,
        *,
        broker_id: int,
        cache: MetadataCache,
        peers: PeerBook,
        own: Callable[[WriteTxnMarkersRequest], Awaitable[WriteTxnMarkersResponse]],
        written: Callable[[Coordinator, MarkersWritten], None],
        deleted_among: Callable[
            [Collection[TopicPartition]], Awaitable[Collection[TopicPartition]]
        ],
        tasks: Tasks,
        clock: Clock,
    ) -> None:
        """`own` writes markers of partitions led here; `written` gets each outcome.

        `deleted_among` returns the partitions that are deleted.
        """
        self._broker_id = broker_id
        self._cache = cache
        self._peers = peers
        self._own = own
        self._written = written
        self._deleted_among = deleted_among
        self._tasks = tasks
        self._clock = clock
        # The markers that wait to be sent, by leader id (or NO_LEADER, or _MAYBE_DELETED).
        self._waiting: dict[int, dict[_Marker, set[TopicPartition]]] = {}
        # The keys of `_waiting` whose markers are being sent.
        self._sending: set[int] = set()

    @property
    def waiting(self) -> int:
        """The number of transactions with markers that are not being sent."""
        return sum(len(queue) for queue in self._waiting.values())

    def write(self, coordinator: Coordinator, request: WriteMarkers) -> None:
        """Write them, until all are written or the coordinator has resigned."""
        self._queue(_Marker(coordinator, request), request.partitions)

    # ------------------------------------------------------------------------- by leader

    def _queue(self, marker: _Marker, partitions: Iterable[TopicPartition]) -> None:
        for partition in sorted(partitions):
            self._queue_at(self._leader_of(partition), marker, partition)

    def _queue_at(self, leader: int, marker: _Marker, partition: TopicPartition) -> None:
        self._waiting.setdefault(leader, {}).setdefault(marker, set()).add(partition)
        if leader not in self._sending:
            self._sending.add(leader)
            self._tasks.start(self._send(leader), f"transaction markers to {leader}")

    def _leader_of(self, partition: TopicPartition) -> int:
        """The leader, NO_LEADER if there is none now, or `_MAYBE_DELETED`."""
        known = self._cache.partition(*partition)
        return _MAYBE_DELETED if known is None else self._cache.leader_of(known)

    async def _send(self, leader: int) -> None:
        """Send what waits for this leader, batch after batch."""
        try:
            while batch := self._next_batch(leader):
                if leader == NO_LEADER:
                    again = batch
                elif leader == _MAYBE_DELETED:
                    again = await self._without_deleted(batch)
                else:
                    again = await self._sent(leader, batch)
                if again:
                    await asyncio.sleep(_AGAIN_S)
                for marker, partitions in again.items():
                    if not marker.is_over:
                        self._queue(marker, partitions)
        finally:
            self._sending.discard(leader)

    async def _without_deleted(
        self, batch: dict[_Marker, set[TopicPartition]]
    ) -> dict[_Marker, set[TopicPartition]]:
        """What still needs a marker; deleted partitions are reported to the coordinator."""
        # Also if there is another topic of that name: the transaction is not in it.
        asked = {partition for partitions in batch.values() for partition in partitions}
        deleted = frozenset(await self._deleted_among(asked))
        again = {}
        for marker, partitions in batch.items():
            if needless := partitions & deleted:
                log.info(
                    "transaction %r: no marker for deleted partitions: %s",
                    marker.transaction.transactional_id,
                    ", ".join(map(str, sorted(needless))),
                )
                self._done(marker, needless)
            if left := partitions - deleted:
                again[marker] = left
        return again

    def _next_batch(self, leader: int) -> dict[_Marker, set[TopicPartition]]:
        queue = self._waiting.get(leader, {})
        batch = {}
        for marker in list(queue)[:MARKERS_AT_ONCE]:
            partitions = queue.pop(marker)
            if not marker.is_over:
                batch[marker] = partitions
        if not queue:
            self._waiting.pop(leader, None)
        return batch if batch or not queue else self._next_batch(leader)

    # ----------------------------------------------------------------------- one request

    async def _sent(
        self, leader: int, batch: dict[_Marker, set[TopicPartition]]
    ) -> dict[_Marker, set[TopicPartition]]:
        """Send these markers. Returns those that are to be sent again."""
        request = WriteTxnMarkersRequest(
            markers=[_writable(marker, partitions) for marker, partitions in batch.items()]
        )
        try:
            if leader == self._broker_id:
                response = await self._own(request)
            else:
                response = await self._peers.to(leader).ask(request, WriteTxnMarkersResponse)
        except PeerError as error:
            log.info("markers are not written by broker %d: %s", leader, error)
            return batch
        outcome = {
            (marker.producer_id, TopicPartition(topic.name, partition.partition_index)): ErrorCode(
                partition.error_code
            )
            for marker in response.markers
            for topic in marker.topics
            for partition in topic.partitions
        }
        again = {}
        for marker, partitions in batch.items():
            left = self._settle(marker, partitions, outcome)
            if left:
                again[marker] = left
        return again

    def _settle(
        self,
        marker: _Marker,
        partitions: set[TopicPartition],
        outcome: dict[tuple[int, TopicPartition], ErrorCode],
    ) -> set[TopicPartition]:
        done, again = set(), set()
        for partition in partitions:
            error = outcome.get((marker.transaction.producer_id, partition))
            if error in _NEEDLESS:
                done.add(partition)
            elif error is not None and error in _FENCED:
                marker.is_fenced = True
                log.warning(
                    "%s: %s refuses the marker of transaction %r: %s",
                    marker.coordinator,
                    partition,
                    marker.transaction.transactional_id,
                    error.name,
                )
            elif error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                # The metadata cache may be old, if a controller failed before it sent the deletion.
                self._queue_at(_MAYBE_DELETED, marker, partition)
            else:
                again.add(partition)
        if done:
            self._done(marker, done)
        return again

    def _done(self, marker: _Marker, partitions: set[TopicPartition]) -> None:
        transaction = marker.transaction
        self._written(
            marker.coordinator,
            MarkersWritten(
                transaction.transactional_id,
                transaction.producer_id,
                transaction.producer_epoch,
                frozenset(partitions),
            ),
        )


def _writable(marker: _Marker, partitions: set[TopicPartition]) -> WritableTxnMarker:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    return WritableTxnMarker(
        producer_id=marker.transaction.producer_id,
        producer_epoch=marker.transaction.producer_epoch,
        transaction_result=marker.transaction.commit,
        topics=[
            WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
            for name, indexes in topics.items()
        ],
        coordinator_epoch=marker.coordinator.coordinator_epoch,
        transaction_version=marker.transaction.client_version,
    )
