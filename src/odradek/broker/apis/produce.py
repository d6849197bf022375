"""Produce (0), versions 0-11: append record batches.

Behaviour:
    * acks=0: appended, never answered; an error closes the connection, or the producer would
      never learn of it.
    * acks=1: answered when the leader has it. acks=-1 (all): when the high watermark has passed
      it, that is when every replica in sync has it.
    * acks=-1 with fewer in sync than `min.insync.replicas`: NOT_ENOUGH_REPLICAS, not appended;
      where they become too few after the append the high watermark stands still, and the time
      runs out: REQUEST_TIMED_OUT.
    * Each partition succeeds or fails on its own. What is wrong with a batch is in
      `odradek.record.validate`, what is wrong with its sequence in `odradek.log.producer_state`.
    * A batch sent again by an idempotent producer is answered with the offset it got then.
    * v0-2 (message formats 0 and 1) are advertised, for librdkafka of old turns compression off
      where they are not; they are answered UNSUPPORTED_VERSION, as by Kafka 4.

Versions:
    see `odradek.wire.messages.produce`
"""

import logging
from collections.abc import Callable
from typing import Final

from odradek.broker.partition import Partition
from odradek.broker.purgatory import Purgatory, Waiting
from odradek.broker.quotas import Quotas
from odradek.broker.replica_manager import ReplicaManager
from odradek.broker.session import Session
from odradek.log.disk import StorageError
from odradek.log.log_config import NEVER
from odradek.model.acl import AclOperation, ResourceType
from odradek.model.clock import Clock
from odradek.model.errors import ApiError, ErrorCode
from odradek.model.names import INTERNAL_TOPICS
from odradek.net.connection import Connection, Place
from odradek.obs.metrics import BrokerMetrics
from odradek.record.batch import TRANSACTIONAL_BIT
from odradek.record.validate import RejectedBatchError, validate_produced
from odradek.wire.api_keys import ApiKey
from odradek.wire.header import RequestHeader
from odradek.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    Produce,
    ProducePartitionResult,
    decode_produce,
    encode_produce_response,
)
from odradek.wire.schema import Buffer

log = logging.getLogger(__name__)

ALL: Final = -1
# A member of an enumeration is looked up by its class each time: here that would be felt.
_NONE: Final = ErrorCode.NONE
_WRITE: Final = AclOperation.WRITE
_TOPIC: Final = ResourceType.TOPIC
_EMPTY: Final = memoryview(b"")
FORMAT_2_SINCE: Final = 3


class ProduceApi:
    """Serves Produce."""

    def __init__(
        self,
        replicas: ReplicaManager,
        purgatory: Purgatory,
        *,
        clock: Clock,
        quotas: Quotas,
        metrics: BrokerMetrics,
        throttle: Callable[[Connection, int], None],
    ) -> None:
        self._replicas = replicas
        self.purgatory = purgatory
        self._clock = clock
        self._quotas = quotas
        self._metrics = metrics
        self._throttle = throttle

    def handle(
        self, connection: Connection, header: RequestHeader, position: int, frame: memoryview
    ) -> None:
        """Append now; answer now, or when it is committed."""
        request = decode_produce(frame, position, header.api_version)
        call = ProduceCall(self, connection, header, connection.active_ms)
        refusal = self._refusal(connection.session, header, request)
        if refusal is not _NONE:
            self._refuse_all(call, request, refusal)
        else:
            self._append_all(call, request)
        if request.acks == 0:
            if call.failed:
                log.info(
                    "closed %s:%d: a produce with acks=0 failed, and has no other way to say so",
                    connection.peer_host,
                    connection.peer_port,
                )
                connection.close()
            else:
                self._account(call)
        elif call.pending:
            call.place = connection.later(call.abandoned)
            self.purgatory.wait(call, max(request.timeout_ms, 0))
        else:
            connection.respond(self.answer(call))

    def answer(self, call: "ProduceCall") -> tuple[bytes]:
        """Encode the response and count it."""
        header = call.header
        throttle_ms = self._account(call)
        return (
            encode_produce_response(
                header.correlation_id, header.api_version, call.topics, throttle_ms
            ),
        )

    def _account(self, call: "ProduceCall") -> int:
        """Count a request that is done; how long its sender has to wait before the next."""
        throttle_ms = self._quotas.produced(call.connection.session, call.size_bytes)
        if throttle_ms:
            self._throttle(call.connection, throttle_ms)
        self._metrics.requests.answered(
            ApiKey.PRODUCE, call.header.api_version, self._clock.monotonic_ms() - call.started_ms
        )
        return throttle_ms

    # ------------------------------------------------------------------------ inside

    @staticmethod
    def _refusal(session: Session, header: RequestHeader, request: Produce) -> ErrorCode:
        """Why nothing of it is appended; NONE if that is to be seen for each partition."""
        if header.api_version < FORMAT_2_SINCE:
            return ErrorCode.UNSUPPORTED_VERSION
        if request.acks not in (0, 1, ALL):
            return ErrorCode.INVALID_REQUIRED_ACKS
        transactional_id = request.transactional_id
        if transactional_id is not None and not session.authorize(
            AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id
        ):
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return _NONE

    def _refuse_all(self, call: "ProduceCall", request: Produce, error: ErrorCode) -> None:
        for name, partitions in request.topics:
            answers = [_failure(index, error) for index, _ in partitions]
            call.topics.append((name, answers))
            call.failed = True

    def _append_all(self, call: "ProduceCall", request: Produce) -> None:
        session = call.connection.session
        wall_ms = self._clock.wall_ms()
        for name, partitions in request.topics:
            answers: list[ProducePartitionResult] = []
            call.topics.append((name, answers))
            error = self._topic_refusal(session, name)
            for index, batch in partitions:
                if error is _NONE:
                    answers.append(self._append(call, name, index, batch, request, wall_ms))
                else:
                    answers.append(_failure(index, error))
                    call.failed = True

    @staticmethod
    def _topic_refusal(session: Session, topic: str) -> ErrorCode:
        if not session.authorize(_WRITE, _TOPIC, topic):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if topic in INTERNAL_TOPICS and session.client_id != "__admin_client":
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        return _NONE

    def _append(
        self,
        call: "ProduceCall",
        topic: str,
        index: int,
        batch: Buffer | None,
        request: Produce,
        wall_ms: int,
    ) -> ProducePartitionResult:
        partition = self._replicas.find_led(topic, index)
        if isinstance(partition, ErrorCode):
            call.failed = True
            return _failure(index, partition)
        leader, log_of = partition.leader, partition.log
        assert leader is not None
        assert log_of is not None
        acks = request.acks
        if acks == ALL and leader.is_under_min_isr:
            call.failed = True
            return _failure(index, ErrorCode.NOT_ENOUGH_REPLICAS)
        try:
            view, header = validate_produced(
                _EMPTY if batch is None else memoryview(batch),
                partition.rules,
                now_ms=wall_ms,
                api_version=call.header.api_version,
            )
            if header.attributes & TRANSACTIONAL_BIT and request.transactional_id is None:
                # For whom it writes has not been said, so whether it may was not asked.
                call.failed = True
                return _failure(index, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            flush = None if log_of.config.flush_messages == NEVER else _Flush(call)
            appended = partition.append(
                view,
                header,
                now_ms=call.started_ms,
                wall_ms=wall_ms,
                flushed=None if flush is None else flush.done,
            )
        except ApiError as error:
            call.failed = True
            self._metrics.topic(topic).failed_produces += 1
            return _refused(index, error)
        except StorageError as error:
            call.failed = True
            self._replicas.storage_failed(error)
            return _failure(index, ErrorCode.KAFKA_STORAGE_ERROR)
        size_bytes = len(view)
        call.size_bytes += size_bytes
        self._metrics.topic(topic).produced(header.record_count, size_bytes)
        if flush is not None and appended.flushes:
            flush.slot = call.wait_for_flush()
        if acks == ALL:
            required = appended.last_offset + 1
            if leader.high_watermark < required:
                call.wait_for(partition, required)
        return ProducePartitionResult(
            index, 0, appended.first_offset, appended.log_append_time_ms, log_of.log_start_offset
        )


class _Flush:
    """A flush that an append set off: Kafka flushes before it answers, so the answer waits."""

    __slots__ = ("_call", "slot")

    def __init__(self, call: "ProduceCall") -> None:
        self._call = call
        self.slot = -1

    def done(self, error: StorageError | None) -> None:
        if error is None:
            self._call.committed(self.slot)
        else:
            self._call.failed_at(self.slot, ErrorCode.KAFKA_STORAGE_ERROR)


class ProduceCall(Waiting):
    """One produce request: what became of each partition, and how many are not committed."""

    __slots__ = (
        "_api", "_waiting_for", "connection", "failed", "header", "pending", "place",
        "size_bytes", "started_ms", "topics",
    )  # fmt: skip

    def __init__(
        self, api: ProduceApi, connection: Connection, header: RequestHeader, started_ms: int
    ) -> None:
        super().__init__()
        self._api = api
        self.connection = connection
        self.header = header
        self.started_ms = started_ms
        self.topics: list[tuple[str, list[ProducePartitionResult]]] = []
        self.size_bytes = 0
        self.failed = False
        self.pending = 0
        self.place: Place | None = None
        # Of each partition that is waited for: where its answer stands.
        self._waiting_for: list[tuple[int, int] | None] = []

    def wait_for(self, partition: Partition, required_offset: int) -> None:
        """The partition whose answer is being made now is not committed yet."""
        partition.wait_for_commit(required_offset, self, self.wait_for_flush())

    def wait_for_flush(self) -> int:
        """The partition whose answer is being made now is not durable yet. Returns its slot."""
        self._waiting_for.append((len(self.topics) - 1, len(self.topics[-1][1])))
        self.pending += 1
        return len(self._waiting_for) - 1

    def committed(self, slot: int) -> None:
        """The high watermark has passed what was written there."""
        if not self.done and self._waiting_for[slot] is not None:
            self._settle(slot, ErrorCode.NONE)

    def failed_at(self, slot: int, error: ErrorCode) -> None:
        """Whether it will be committed is not for this broker to say any more."""
        if not self.done and self._waiting_for[slot] is not None:
            self._settle(slot, error)

    def expire(self) -> None:
        """The time is up: appended, but not known to be committed."""
        for slot, entry in enumerate(self._waiting_for):
            if entry is not None and not self.done:
                self._settle(slot, ErrorCode.REQUEST_TIMED_OUT)

    def abandoned(self) -> None:
        """Nobody wants to know any more."""
        if not self.done:
            self._api.purgatory.finish(self)

    def _settle(self, slot: int, error: ErrorCode) -> None:
        entry, self._waiting_for[slot] = self._waiting_for[slot], None
        assert entry is not None
        topic, index = entry
        if error is not ErrorCode.NONE:
            answer = self.topics[topic][1][index]
            self.topics[topic][1][index] = _failure(answer.partition, error)
        self.pending -= 1
        if not self.pending and self.place is not None:
            self._api.purgatory.finish(self)
            self.place.fill(self._api.answer(self))


def _failure(index: int, error: ErrorCode, message: str | None = None) -> ProducePartitionResult:
    return ProducePartitionResult(index, error_code=error, error_message=message)


def _refused(index: int, error: ApiError) -> ProducePartitionResult:
    answer = _failure(index, error.code, error.message)
    if not isinstance(error, RejectedBatchError):
        return answer
    return answer._replace(
        record_errors=tuple(
            BatchIndexAndErrorMessage(batch_index=at, batch_index_error_message=message)
            for at, message in error.record_errors
        )
    )
