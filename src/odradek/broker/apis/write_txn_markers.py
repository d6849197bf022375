"""WriteTxnMarkers (27), versions 0-1, from a transaction coordinator: append commit or abort.

Also from administrators who abort a hanging transaction (`kafka-transactions abort`).

Behaviour:
    * Each partition on its own: a marker is appended, and answered when it is committed.
    * A partition that is not held here is UNKNOWN_TOPIC_OR_PARTITION, one that is not led here
      NOT_LEADER_OR_FOLLOWER: the coordinator looks up the leader and sends it again.
    * A producer epoch below the one known is INVALID_PRODUCER_EPOCH, a coordinator epoch below
      it TRANSACTION_COORDINATOR_FENCED (see `odradek.log.producer_state`).
    * A marker of version 2 with the producer epoch of a transaction that is open here is
      INVALID_PRODUCER_EPOCH, too: it is a late copy of the marker that ended the transaction before
      (KIP-1228). The marker of the open one has a higher epoch.
    * With `flush.messages` or `odradek.flush.before.ack` the answer waits for the flush: the
      coordinator drops a transaction whose markers are written.
    * A marker in `__consumer_offsets` ends a transaction with committed offsets: when it is
      committed, the group coordinator is notified.

Versions:
    v1 flexible
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from odradek.broker.replication.partition import Led, led
from odradek.broker.replication.replica_manager import ReplicaManager
from odradek.broker.serving.purgatory import Purgatory, Waiting
from odradek.broker.serving.session import Session
from odradek.log.disk import StorageError
from odradek.log.flushing import FlushDone
from odradek.log.log_config import NEVER
from odradek.log.producer_state import ProducerState
from odradek.log.slices import Appended
from odradek.model.acl import CLUSTER_NAME, AclOperation, ResourceType
from odradek.model.clock import Clock
from odradek.model.errors import ApiError, ErrorCode
from odradek.model.names import GROUP_TOPIC
from odradek.record.batch import read_header
from odradek.record.control import ControlType, Marker, build_marker
from odradek.txn.transaction import VERSION_2
from odradek.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

SLICE: Final = 200  # markers written before others may run


class OffsetsEnded(Protocol):
    """The group coordinator, which is notified of markers in `__consumer_offsets`."""

    def __call__(self, index: int, producer_id: int, *, committed: bool) -> None:
        """A marker in this partition is committed."""


class TxnMarkersApi:
    """Appends markers and waits until they are committed."""

    def __init__(
        self,
        replicas: ReplicaManager,
        purgatory: Purgatory,
        *,
        clock: Clock,
        timeout_ms: int,
        offsets_ended: OffsetsEnded,
    ) -> None:
        """`timeout_ms` is how long a marker may take to be on all in-sync replicas.

        `offsets_ended` is called in the loop's turn in which a marker of `__consumer_offsets`
        becomes committed.
        """
        self._replicas = replicas
        self._purgatory = purgatory
        self._clock = clock
        self._timeout_ms = timeout_ms
        self.offsets_ended = offsets_ended

    async def handle(
        self, session: Session, request: WriteTxnMarkersRequest
    ) -> WriteTxnMarkersResponse:
        """Write markers for a client with Cluster Alter or CLUSTER_ACTION."""
        if session.would_allow(
            AclOperation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME
        ) or session.authorize(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
            return await self.write(request)
        return _refusal(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    async def write(self, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        """Write markers; answered when each one is committed or has failed."""
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = _Markers(self._purgatory, answered)
        markers = []
        number = 0
        for marker in request.markers:
            topics = []
            for topic in marker.topics:
                results = []
                for index in topic.partition_indexes:
                    number += 1
                    if number % SLICE == 0:
                        await asyncio.sleep(0)
                    result = WritableTxnMarkerPartitionResult(partition_index=index)
                    self._write(topic.name, marker, result, waiting)
                    results.append(result)
                topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=results))
            markers.append(WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics))
        if waiting.pending:
            waiting.is_complete = True
            self._purgatory.wait(waiting, self._timeout_ms)
            await answered
        return WriteTxnMarkersResponse(markers=markers)

    def _write(
        self,
        topic: str,
        marker: WritableTxnMarker,
        result: WritableTxnMarkerPartitionResult,
        waiting: "_Markers",
    ) -> None:
        found = led(self._replicas.find_led(topic, result.partition_index))
        if isinstance(found, ErrorCode):
            result.error_code = found
            return
        partition, leader, log_of = found
        if is_late_copy(log_of.producers, marker):
            result.error_code = ErrorCode.INVALID_PRODUCER_EPOCH
            return
        if leader.is_under_min_isr:
            result.error_code = ErrorCode.NOT_ENOUGH_REPLICAS
            return
        slot = waiting.begin(partial(self._committed, topic, marker, result))
        try:
            appended = self._append(found, marker, partial(waiting.flushed, slot))
        except ApiError as error:
            waiting.failed_at(slot, error.code)
            return
        except StorageError as error:
            self._replicas.storage_failed(error)
            waiting.failed_at(slot, ErrorCode.KAFKA_STORAGE_ERROR)
            return
        if appended.flushes:
            waiting.one_more(slot)
        required = log_of.leo
        if leader.high_watermark < required:
            waiting.one_more(slot)
            partition.wait_for_commit(required, waiting, slot)
        waiting.committed(slot)  # the first of the conditions: it is appended

    def _append(self, found: Led, marker: WritableTxnMarker, flushed: FlushDone) -> Appended:
        how = ControlType.COMMIT if marker.transaction_result else ControlType.ABORT
        batch = build_marker(
            Marker(how, marker.coordinator_epoch),
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            timestamp=self._clock.wall_ms(),
        )
        flushes = found.log.config.flush_messages != NEVER
        return found.partition.append(
            memoryview(batch),
            read_header(batch),
            monotonic_ms=self._clock.monotonic_ms(),
            flushed=flushed if flushes else None,
        )

    def _committed(
        self,
        topic: str,
        marker: WritableTxnMarker,
        result: WritableTxnMarkerPartitionResult,
        error: ErrorCode,
    ) -> None:
        result.error_code = error
        if topic == GROUP_TOPIC and error is ErrorCode.NONE:
            self.offsets_ended(
                result.partition_index, marker.producer_id, committed=marker.transaction_result
            )


def is_late_copy(producers: ProducerState, marker: WritableTxnMarker) -> bool:
    """Whether a version 2 marker would end a later transaction than the one that it is for.

    1. The marker of a transaction in epoch 4 has epoch 5; its answer is lost, and it is sent again.
    2. The second copy is written, the coordinator gets the answer, the producer begins in epoch 5.
    3. The first copy arrives: it would commit what the producer may want to abort.
    """
    return marker.transaction_version >= VERSION_2 and producers.has_open_transaction(
        marker.producer_id, marker.producer_epoch
    )


class _Markers(Waiting):
    """The markers of one request that are not committed yet."""

    __slots__ = ("_answered", "_left", "_purgatory", "_waiting_for", "is_complete", "pending")

    def __init__(self, purgatory: Purgatory, answered: "asyncio.Future[None]") -> None:
        super().__init__()
        self._purgatory = purgatory
        self._answered = answered
        self._waiting_for: list[Callable[[ErrorCode], None] | None] = []
        self._left: list[int] = []  # the number of conditions that each marker still waits for
        self.pending = 0
        self.is_complete = False  # no marker will be added

    def begin(self, done: Callable[[ErrorCode], None]) -> int:
        """Add a marker with one condition. Returns its slot."""
        self._waiting_for.append(done)
        self._left.append(1)
        self.pending += 1
        return len(self._left) - 1

    def one_more(self, slot: int) -> None:
        """Add a condition to a marker."""
        self._left[slot] += 1

    def committed(self, slot: int) -> None:
        """The high watermark has passed a marker."""
        self._left[slot] -= 1
        if not self._left[slot]:
            self._settle(slot, ErrorCode.NONE)

    def flushed(self, slot: int, error: StorageError | None) -> None:
        """A marker is durable, or its flush failed."""
        if error is None:
            self.committed(slot)
        else:
            self._settle(slot, ErrorCode.KAFKA_STORAGE_ERROR)

    def failed_at(self, slot: int, error: ErrorCode) -> None:
        """It cannot be known any more here whether a marker is committed."""
        self._settle(slot, error)

    def expire(self) -> None:
        """The time is up: answer REQUEST_TIMED_OUT for what is not committed."""
        for slot in range(len(self._waiting_for)):
            self._settle(slot, ErrorCode.REQUEST_TIMED_OUT)

    def look_again(self) -> None:
        """Do nothing: settling the last marker answers the request."""

    def _settle(self, slot: int, error: ErrorCode) -> None:
        done, self._waiting_for[slot] = self._waiting_for[slot], None
        if done is None:
            return
        done(error)
        self.pending -= 1
        if not self.pending and self.is_complete:
            self._purgatory.finish(self)
            if not self._answered.done():
                self._answered.set_result(None)


def _refusal(request: WriteTxnMarkersRequest, error: ErrorCode) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(
                                partition_index=index, error_code=error
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )
