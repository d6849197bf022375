"""Produce (0), versions 0-12: append record batches.

Behaviour:
    * acks=0: appended, never answered; an error closes the connection, because the producer has no
      other way to notice it.
    * acks=1: answered when the leader has appended it. acks=-1 (all): when the high watermark has
      passed it, which means that every in-sync replica has it.
    * acks=-1 with fewer in-sync replicas than `min.insync.replicas`: NOT_ENOUGH_REPLICAS, not
      appended. If there are too few after the append, the high watermark does not advance, and the
      request times out: REQUEST_TIMED_OUT.
    * Each partition succeeds or fails on its own. Errors of a batch are in
      `odradek.record.validate`, errors of its sequence in `odradek.log.producer_state`.
    * A refusal names the new leader and its address, if this broker has them (v10+, KIP-951).
    * A duplicate of an idempotent producer is answered with the offset of the first copy. A batch
      after one that was refused temporarily gets the same error (`broker.produce_refusals`).
    * Records of a transaction need Write on the transactional id of the request, for the request as
      a whole; without an id they are refused, too (CVE-2018-17196).
    * The first batch of a transaction in a partition is appended when the transaction coordinator
      has confirmed that the partition belongs to it (KIP-890). Until then its bytes are kept;
      later batches are not verified. `transaction.partition.verification.enable`.
    * Records are checked on the loop while that is short (`SPEND_NS` for what came in one read);
      longer checks go to a worker, and the client's next request is not handled before the batch is
      appended or refused.
    * A request of many partitions is decoded, appended and answered in slices; its connection is
      held until it is answered.
    * v0-2 (message formats v0 and v1): see `odradek.broker.apis.old_produce`.

Versions:
    see `odradek.wire.messages.produce`
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Generator
from itertools import islice
from typing import Any, Final

from odradek.broker.apis.old_produce import UncheckedBatch, count_converted, validate_old
from odradek.broker.coordinators.txn_verification import Errors, Question
from odradek.broker.error_counts import Subject
from odradek.broker.replication.current_leaders import CurrentLeaders
from odradek.broker.replication.partition import Partition
from odradek.broker.replication.replica_manager import ReplicaManager
from odradek.broker.serving.produce_rights import refuse_produce
from odradek.broker.serving.purgatory import DataRequest, Purgatory
from odradek.broker.serving.quotas import Quotas
from odradek.broker.serving.session import Session
from odradek.broker.serving.worker import Worker
from odradek.log.disk import StorageError
from odradek.log.log_config import NEVER
from odradek.log.producer_state import Verification
from odradek.model.acl import AclOperation, ResourceType
from odradek.model.clock import Clock, WallMs
from odradek.model.errors import ApiError, ErrorCode
from odradek.model.names import INTERNAL_TOPICS
from odradek.net.connection import Connection, ResponseSlot
from odradek.net.turns import Turns
from odradek.obs.log_limit import of
from odradek.obs.metrics import BrokerMetrics
from odradek.record.batch import TRANSACTIONAL_BIT, BatchHeader
from odradek.record.conversion import CONVERT_NS
from odradek.record.validate import (
    RejectedBatchError,
    ValidatedBatch,
    validate_produced,
)
from odradek.wire.api_keys import ApiKey
from odradek.wire.header import RequestHeader
from odradek.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    Produce,
    ProducePartitionResult,
    decode_in_slices,
    decode_unusual,
    decode_usual,
    encode_produce_response,
    encode_produce_response_in_slices,
)
from odradek.wire.schema import Buffer

log = logging.getLogger(__name__)

ALL: Final = -1
# Globals: the attribute look-up in an enumeration would cost time in every request.
_NONE: Final = ErrorCode.NONE
_WRITE: Final = AclOperation.WRITE
_TOPIC: Final = ResourceType.TOPIC
_EMPTY: Final = memoryview(b"")
# A permission that a client lacks is recorded by the authorizer.
_NOT_NOTED: Final = {"NONE", "TOPIC_AUTHORIZATION_FAILED", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"}
FORMAT_2_SINCE: Final = 3
# The first versions whose clients know TRANSACTION_ABORTABLE, and let the leader add partitions.
ABORTABLE_SINCE: Final = 11
ADDS_PARTITIONS_SINCE: Final = 12

# The longest time for which the loop checks records, for all batches of one read of the socket.
SPEND_NS: Final = 2_000_000
# A larger request of more partitions than SLICE is handled in slices: others are not delayed.
LARGE_BYTES: Final = 16 << 10
SLICE: Final = 100
TOPICS_COUNTED_MAX: Final = 20  # of one request, of which errors are counted for each client
# With acks=1 a response waits at least this long for a worker that checks the records.
_LOOK_INSIDE_MS: Final = 30_000

Ask = Callable[[Question], Errors | None]


class ProduceApi:
    """Handles Produce: validates, verifies, appends, and waits for commit."""

    def __init__(  # noqa: PLR0913 - its collaborators
        self,
        replicas: ReplicaManager,
        purgatory: Purgatory,
        *,
        clock: Clock,
        quotas: Quotas,
        metrics: BrokerMetrics,
        throttle: Callable[[Connection, int], None],
        worker: Worker,
        turns: Turns,
        leaders: CurrentLeaders,
        verification: Ask | None = None,
    ) -> None:
        """`verification` asks the coordinator of a transaction (`TransactionVerification.ask`)."""
        self.replicas = replicas
        self.purgatory = purgatory
        self.clock = clock
        self.quotas = quotas
        self.metrics = metrics
        self.throttle = throttle
        self._worker = worker
        self._turns = turns
        self._leaders = leaders
        # What is left of SPEND_NS for the client and the read that are handled now.
        self._left_ns = SPEND_NS
        self._read_ms = 0
        self._read_of = 0
        self.verification = verification
        # Whether producers that add their partitions themselves (version 1) are verified, too.
        self.verifies_version_1 = True
        self.is_closed = False  # the whole cluster is being stopped: no leader takes records

    def handle(
        self, connection: Connection, header: RequestHeader, position: int, frame: memoryview
    ) -> Coroutine[Any, Any, None] | None:
        """Append, and answer now or when committed. Returns the rest of a large request."""
        request = decode_usual(frame, position, header.api_version)
        if request is None:
            if len(frame) > LARGE_BYTES:
                return self._in_slices(LargeProduceCall(self, connection, header), position, frame)
            request = decode_unusual(frame, position, header.api_version)
        call = ProduceCall(self, connection, header)
        call.transactional_id = request.transactional_id or ""
        pipelining = connection.session.pipelining
        call.more_follow = pipelining.more_follow(len(frame), connection.in_flight)
        refusal = self._refusal(connection.session, request)
        if refusal is not _NONE:
            self._refuse_all(call, request, refusal)
        else:
            self._append_all(call, request)
        if call.failed:
            self.note_refusals(call)
        if request.acks == 0:
            self._conclude_unanswered(call)
        elif call.pending:
            call.response_slot = connection.later(call.abandoned)
            self._wait(call, request)
        else:
            connection.respond(self.answer(call))
        return None

    async def _in_slices(self, call: "LargeProduceCall", position: int, frame: memoryview) -> None:
        """Handle a request of many partitions, in turns with other work."""
        header, turns = call.header, self._turns
        request = await turns.run(decode_in_slices(frame, position, header.api_version))
        call.transactional_id = request.transactional_id or ""
        refusal = self._refusal(call.connection.session, request)
        if refusal is not _NONE:
            self._refuse_all(call, request, refusal)
        else:
            await turns.run(self._append_in_slices(call, request))
            if call.unchecked:
                await self._look_inside_in_slices(call, request)
            elif call.unverified:
                self._verify(call, request)
        if call.failed:
            self.note_refusals(call)
        if request.acks == 0:
            call.is_unanswered()
            self._conclude_unanswered(call)
            return
        if call.is_not_settled():
            self._wait(call, request)
            await call.settled
        throttle_ms = self._account(call)
        named = self._leaders.name_in_produce(call, call.topics) if call.failed else ()
        id_, version = header.correlation_id, header.api_version
        encoding = encode_produce_response_in_slices(id_, version, call.topics, throttle_ms, named)
        call.answer_with(await turns.run(encoding))

    def _wait(self, call: "ProduceCall", request: Produce) -> None:
        least_ms = _LOOK_INSIDE_MS if call.unchecked and request.acks != ALL else 0
        self.purgatory.wait(call, max(request.timeout_ms, least_ms))

    def _conclude_unanswered(self, call: "ProduceCall") -> None:
        if call.failed:
            connection = call.connection
            log.info(
                "closed %s:%d: a produce request with acks=0 failed, and has no response",
                connection.peer_host,
                connection.peer_port,
                extra=of(connection.peer_host),
            )
            self._count_errors(call)
            connection.close()
        else:
            self._account(call)

    def answer(self, call: "ProduceCall") -> tuple[bytes]:
        header, topics = call.header, call.topics
        throttle_ms = self._account(call)
        named = self._leaders.name_in_produce(call, topics) if call.failed else ()
        id_, version = header.correlation_id, header.api_version
        return (encode_produce_response(id_, version, topics, throttle_ms, named),)

    def _account(self, call: "ProduceCall") -> int:
        """Count a request that is complete. Returns its client's throttle time in ms."""
        throttle_ms = self.quotas.produced(call.connection.session, call.size_bytes)
        if throttle_ms:
            self.throttle(call.connection, throttle_ms)
        counted = self.metrics.requests
        call.count(counted, ApiKey.PRODUCE, self.clock.monotonic_ms(), throttle_ms)
        if call.failed:
            codes = (answer.error_code for _, answers in call.topics for answer in answers)
            counted.errors.update((ApiKey.PRODUCE, code) for code in codes if code)
            self._count_errors(call)
        return throttle_ms

    # ------------------------------------------------------------------------ inside

    def note_refusals(self, call: "ProduceCall") -> None:
        session = call.connection.session
        for topic, answers in call.topics:
            names = {ErrorCode(answer.error_code).name for answer in answers}
            for name in sorted(names - _NOT_NOTED):
                session.note_refusal(f"Produce to {topic}: {name}")

    def _count_errors(self, call: "ProduceCall") -> None:
        session = call.connection.session
        for topic, answers in islice(call.topics, TOPICS_COUNTED_MAX):
            subject = Subject(topic=topic, transactional_id=call.transactional_id)
            for code in {answer.error_code for answer in answers} - {0}:
                session.count_error(ApiKey.PRODUCE, code, subject)

    def _refusal(self, session: Session, request: Produce) -> ErrorCode:
        """The error for the whole request; NONE if each partition has its own outcome."""
        if self.is_closed:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if request.acks not in (0, 1, ALL):
            return ErrorCode.INVALID_REQUIRED_ACKS
        return refuse_produce(session, request)

    def _refuse_all(self, call: "ProduceCall", request: Produce, error: ErrorCode) -> None:
        for name, partitions in request.topics:
            answers = [_failure(index, error) for index, _ in partitions]
            call.topics.append((name, answers))
            call.failed = True

    def _append_all(self, call: "ProduceCall", request: Produce) -> None:
        session = call.connection.session
        wall_ms = self.clock.wall_ms()
        peer = id(call.connection)
        if self._read_ms != call.started_ms or self._read_of != peer:
            self._read_ms, self._read_of = call.started_ms, peer
            self._left_ns = SPEND_NS
        for name, partitions in request.topics:
            answers: list[ProducePartitionResult] = []
            call.topics.append((name, answers))
            error = self._topic_refusal(session, name)
            for index, batch in partitions:
                if error is _NONE:
                    answers.append(self._check(call, name, index, batch, request, wall_ms))
                else:
                    answers.append(_failure(index, error))
                    call.failed = True
        if call.unchecked:
            self._look_inside(call, request, wall_ms)
        elif call.unverified:
            self._verify(call, request)

    def _append_in_slices(
        self, call: "ProduceCall", request: Produce
    ) -> Generator[None, None, None]:
        """Append many partitions; records that take long are not checked, nothing is verified."""
        session, left_ns = call.connection.session, SPEND_NS
        for name, partitions in request.topics:
            answers: list[ProducePartitionResult] = []
            call.topics.append((name, answers))
            for begin in range(0, len(partitions), SLICE):
                yield
                wall_ms = self.clock.wall_ms()
                self._read_ms, self._read_of = call.started_ms, id(call.connection)
                self._left_ns = left_ns
                error = self._topic_refusal(session, name)
                if self.is_closed:
                    error = ErrorCode.NOT_LEADER_OR_FOLLOWER
                for index, batch in partitions[begin : begin + SLICE]:
                    if error is _NONE:
                        answers.append(self._check(call, name, index, batch, request, wall_ms))
                    else:
                        answers.append(_failure(index, error))
                        call.failed = True
                left_ns = self._left_ns

    @staticmethod
    def _topic_refusal(session: Session, topic: str) -> ErrorCode:
        if not session.authorize(_WRITE, _TOPIC, topic):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if topic in INTERNAL_TOPICS and session.client_id != "__admin_client":
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        return _NONE

    def _check(
        self,
        call: "ProduceCall",
        topic: str,
        index: int,
        batch: Buffer | None,
        request: Produce,
        wall_ms: WallMs,
    ) -> ProducePartitionResult:
        partition = self.replicas.find_led(topic, index)
        if isinstance(partition, ErrorCode):
            return _not_now(call, topic, index, partition, batch)
        leader = partition.leader
        if request.acks == ALL and leader is not None and leader.is_under_min_isr:
            return _not_now(call, topic, index, ErrorCode.NOT_ENOUGH_REPLICAS, batch)
        is_old = call.header.api_version < FORMAT_2_SINCE
        validate = validate_old if is_old else validate_produced
        try:
            checked = view, header, cost_ns = validate(
                _EMPTY if batch is None else memoryview(batch),
                partition.rules,
                wall_ms=wall_ms,
                api_version=call.header.api_version,
                spend_ns=self._left_ns,
            )
            if cost_ns:
                if cost_ns < 0:
                    self._left_ns = 0  # later batches must not overtake this one
                    call.unchecked.append(
                        UncheckedBatch(call.one_more(), partition, view, header, partition.rules)
                    )
                    return ProducePartitionResult(index)
                self._left_ns -= len(batch or _EMPTY) * CONVERT_NS if is_old else cost_ns
                if is_old:
                    count_converted(self.metrics, topic, checked)
            if header.attributes & TRANSACTIONAL_BIT and self._waits_for_verification(
                call, partition, view, header, request
            ):
                return ProducePartitionResult(index)
        except ApiError as error:
            return self.refuse(call, topic, index, error)
        return self._append(call, partition, view, header, request.acks)

    def _append(
        self,
        call: "ProduceCall",
        partition: Partition,
        view: memoryview,
        header: BatchHeader,
        acks: int,
        place: "tuple[int, int] | None" = None,
    ) -> ProducePartitionResult:
        """`place` is that of an answer that was left open; None: it is being made."""
        leader, log_of = partition.leader, partition.log
        topic, index = partition.topic_partition
        if leader is None or log_of is None:
            return _not_now(call, topic, index, ErrorCode.NOT_LEADER_OR_FOLLOWER, view)
        refusals = call.connection.session.refusals
        try:
            if refusals.remembered:
                refusals.check((topic, index), header, log_of.producers, call.started_ms)
            flush = None if log_of.config.flush_messages == NEVER else _Flush(call)
            appended = partition.append(
                view,
                header,
                monotonic_ms=call.started_ms,
                flushed=None if flush is None else flush.done,
                more_follow=call.more_follow,
            )
        except ApiError as error:
            return self.refuse(call, topic, index, error)
        except StorageError as error:
            call.failed = True
            self.replicas.storage_failed(error)
            return _failure(index, ErrorCode.KAFKA_STORAGE_ERROR)
        refusals.appended((topic, index), header.producer_id)
        size_bytes = len(view)
        call.size_bytes += size_bytes
        self.metrics.topics[topic].produced(header.record_count, size_bytes)
        if flush is not None and appended.flushes:
            flush.slot = call.one_more(place)
        if acks == ALL:
            required = appended.last_offset + 1
            if leader.high_watermark < required:
                partition.wait_for_commit(required, call, call.one_more(place))
        return ProducePartitionResult(
            index, 0, appended.first_offset, appended.log_append_time_ms, log_of.log_start_offset
        )

    def refuse(
        self, call: "ProduceCall", topic: str, index: int, error: ApiError
    ) -> ProducePartitionResult:
        if error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            earlier = call.connection.session.refusals.behind((topic, index), call.started_ms)
            if earlier is not None:
                call.failed = True
                return _failure(index, earlier)
        call.failed = True
        self.metrics.topics[topic].failed_produces += 1
        answer = _refused(index, error)
        if error.code is ErrorCode.UNKNOWN_PRODUCER_ID:
            # The log is empty. Without its start Java's producer repeats the batch as it is.
            answer = answer._replace(log_start_offset=0)
        return answer

    # ---------------------------------------------------------------- records, in a worker

    def _look_inside(self, call: "ProduceCall", request: Produce, wall_ms: WallMs) -> None:
        """Have a worker check the records, and append them after that."""
        unchecked, connection = call.unchecked, call.connection

        def work() -> list[ValidatedBatch | Exception]:
            return [batch.look_inside(wall_ms) for batch in unchecked]

        def done(verdicts: list[ValidatedBatch | Exception]) -> None:
            try:
                self._looked_inside(call, request, verdicts)
            finally:
                connection.let_go()

        connection.hold()  # so that the frame is not overwritten
        self._worker.run(work, done)

    async def _look_inside_in_slices(self, call: "ProduceCall", request: Produce) -> None:
        """Have a worker check the records of a request whose connection is held already."""
        unchecked, wall_ms = call.unchecked, self.clock.wall_ms()
        loop = asyncio.get_running_loop()
        verdicts: asyncio.Future[list[ValidatedBatch | Exception]] = loop.create_future()

        def work() -> list[ValidatedBatch | Exception]:
            return [batch.look_inside(wall_ms) for batch in unchecked]

        def done(found: list[ValidatedBatch | Exception]) -> None:
            if not verdicts.done():  # otherwise the broker stops
                verdicts.set_result(found)

        self._worker.run(work, done)
        await self._turns.run(self._appending_checked(call, request, await verdicts))

    def _looked_inside(
        self, call: "ProduceCall", request: Produce, verdicts: list[ValidatedBatch | Exception]
    ) -> None:
        for _ in self._appending_checked(call, request, verdicts):
            pass

    def _appending_checked(
        self, call: "ProduceCall", request: Produce, verdicts: list[ValidatedBatch | Exception]
    ) -> Generator[None, None, None]:
        unchecked, call.unchecked = call.unchecked, []
        for number, (batch, verdict) in enumerate(zip(unchecked, verdicts, strict=True), 1):
            if number % SLICE == 0:
                yield
            if call.done:  # the client has its answer (REQUEST_TIMED_OUT), or has disconnected
                return
            place = call.place_of(batch.slot)
            answer = self._append_checked(call, batch, verdict, request, place)
            if answer is not None:
                call.fill(batch.slot, place, answer)
        if call.unverified:
            self._verify(call, request)
        elif request.acks == 0 and call.failed:
            call.connection.close()

    def _append_checked(
        self,
        call: "ProduceCall",
        batch: "UncheckedBatch",
        verdict: ValidatedBatch | Exception,
        request: Produce,
        place: tuple[int, int],
    ) -> ProducePartitionResult | None:
        """Append a checked batch. None: its transaction has to be verified first."""
        partition = batch.partition
        topic, index = partition.topic_partition
        if isinstance(verdict, ApiError):
            return self.refuse(call, topic, index, verdict)
        if isinstance(verdict, Exception):
            log.error("records for %s-%d could not be checked", topic, index, exc_info=verdict)
            call.failed = True
            return _failure(index, ErrorCode.UNKNOWN_SERVER_ERROR)
        if (error := self._moved_on(partition, request.acks)) is not _NONE:
            return _not_now(call, topic, index, error, batch.view)
        view, header, _ = verdict
        if call.header.api_version < FORMAT_2_SINCE:
            count_converted(self.metrics, topic, verdict)
        try:
            if header.attributes & TRANSACTIONAL_BIT and self._waits_for_verification(
                call, partition, view, header, request, batch.slot
            ):
                return None
        except ApiError as refusal:
            return self.refuse(call, topic, index, refusal)
        return self._append(call, partition, view, header, request.acks, place)

    def _moved_on(self, partition: Partition, acks: int) -> ErrorCode:
        """The error if the partition has changed since the check began; NONE if not."""
        if self.replicas.find_led(*partition.topic_partition) is not partition:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        leader = partition.leader
        if acks == ALL and leader is not None and leader.is_under_min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        return _NONE

    # ----------------------------------------------------------------------- transactions

    def _waits_for_verification(
        self,
        call: "ProduceCall",
        partition: Partition,
        view: memoryview,
        header: BatchHeader,
        request: Produce,
        slot: int | None = None,
    ) -> bool:
        """Whether the transaction coordinator has to confirm this batch before it is appended.

        `slot` is that of an answer that was left open; None: it is being made.

        Raises:
            ApiError: this producer may not write transactions, or has another one.
        """
        if request.transactional_id is None:  # `refuse_produce` has refused the request
            raise ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        log_of = partition.log
        if log_of is None:
            raise ApiError(partition.error or ErrorCode.KAFKA_STORAGE_ERROR)
        producers = log_of.producers
        is_asked = self.verifies_version_1 or call.header.api_version >= ADDS_PARTITIONS_SINCE
        if not is_asked or producers.has_open_transaction(
            header.producer_id, header.producer_epoch
        ):
            return False
        if call.unverified and not call.unverified[0].is_of(header):
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING, "a request of more than one producer"
            )
        verification = producers.begin_verification(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            wall_ms=self.clock.wall_ms(),
        )
        slot = call.one_more() if slot is None else slot
        call.unverified.append(_Unverified(slot, partition, view, header, verification))
        return True

    def _verify(self, call: "ProduceCall", request: Produce) -> None:
        assert self.verification is not None
        assert request.transactional_id is not None
        header = call.unverified[0].header
        connection = call.connection

        def answered(errors: Errors) -> None:
            self._verified(call, request.acks, errors)
            connection.let_go()

        def again() -> None:
            for waiting in call.unverified:
                waiting.begin_again(self.clock.wall_ms())

        errors = self.verification(
            Question(
                request.transactional_id,
                header.producer_id,
                header.producer_epoch,
                [waiting.partition.topic_partition for waiting in call.unverified],
                call.header.api_version >= ADDS_PARTITIONS_SINCE,
                answered,
                again,
                lambda: all(waiting.holds() for waiting in call.unverified),
            )
        )
        if errors is not None:
            self._verified(call, request.acks, errors)
            return
        # The producer's next batches may follow: they must not be appended before this one.
        connection.hold()
        for waiting in call.unverified:
            waiting.view = memoryview(bytes(waiting.view))  # the frame is reused after this call

    def _verified(self, call: "ProduceCall", acks: int, errors: Errors) -> None:
        """Append what was confirmed, unless the request has timed out meanwhile."""
        unverified, call.unverified = call.unverified, []
        for waiting in unverified:
            if call.done:
                return
            place = call.place_of(waiting.slot)
            name = waiting.partition.topic_partition
            answer = self._append_verified(call, waiting, acks, errors[name], place)
            call.fill(waiting.slot, place, answer)
        if acks == 0 and call.failed:
            call.connection.close()

    def _append_verified(
        self,
        call: "ProduceCall",
        waiting: "_Unverified",
        acks: int,
        error: ErrorCode,
        place: tuple[int, int],
    ) -> ProducePartitionResult:
        topic, index = waiting.partition.topic_partition
        version = call.header.api_version
        partition = waiting.partition
        try:
            _raise_unverified(error, version)
        except ApiError as refusal:
            return self.refuse(call, topic, index, refusal)
        if (lost := self._moved_on(partition, acks)) is not _NONE:
            return _not_now(call, topic, index, lost, waiting.view)
        try:
            partition.held_log().producers.check_verified(
                waiting.header,
                waiting.verification,
                begins_at_0=version >= ADDS_PARTITIONS_SINCE,
            )
        except ApiError as refusal:
            return self.refuse(call, topic, index, refusal)
        return self._append(call, partition, waiting.view, waiting.header, acks, place)


class _Unverified:
    """A batch that waits for the answer of its transaction coordinator."""

    __slots__ = ("header", "partition", "slot", "verification", "view")

    def __init__(
        self,
        slot: int,
        partition: Partition,
        view: memoryview,
        header: BatchHeader,
        verification: Verification,
    ) -> None:
        self.slot = slot
        self.partition = partition
        self.view = view
        self.header = header
        self.verification = verification

    def begin_again(self, wall_ms: WallMs) -> None:
        """Begin again: a repeated question is about the transaction that is open then."""
        log_of = self.partition.log
        if log_of is not None:
            header = self.header
            self.verification = log_of.producers.begin_verification(
                header.producer_id, header.producer_epoch, header.base_sequence, wall_ms=wall_ms
            )

    def holds(self) -> bool:
        """Whether nothing that was appended since the question would have it refused."""
        log_of, header = self.partition.log, self.header
        return (
            log_of is None
            or log_of.producers.is_verified(header.producer_id, self.verification)
            or log_of.producers.has_open_transaction(header.producer_id, header.producer_epoch)
        )

    def is_of(self, header: BatchHeader) -> bool:
        """Whether a batch is of the same producer in the same epoch."""
        mine = self.header
        return (mine.producer_id, mine.producer_epoch) == (
            header.producer_id,
            header.producer_epoch,
        )


# Errors of a coordinator that old clients cannot handle; they retry NOT_ENOUGH_REPLICAS.
_TRY_AGAIN: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


def _raise_unverified(error: ErrorCode, api_version: int) -> None:
    """Translate a coordinator's error for the producer, as Kafka does.

    Raises:
        ApiError: the partition is not confirmed.
    """
    if error is ErrorCode.NONE:
        return
    if error in _TRY_AGAIN or (
        error is ErrorCode.CONCURRENT_TRANSACTIONS and api_version < ADDS_PARTITIONS_SINCE
    ):
        raise ApiError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            "Unable to verify the partition has been added to the transaction. "
            f"Underlying error: {error.name}",
        )
    if error is ErrorCode.PRODUCER_FENCED:
        raise ApiError(ErrorCode.INVALID_PRODUCER_EPOCH)
    if error is ErrorCode.TRANSACTION_ABORTABLE and api_version < ABORTABLE_SINCE:
        raise ApiError(ErrorCode.INVALID_TXN_STATE, "Partition was not added to the transaction")
    raise ApiError(error)


class _Flush:
    """A flush that an append started: Kafka flushes before it answers, so the answer waits."""

    __slots__ = ("_call", "slot")

    def __init__(self, call: "ProduceCall") -> None:
        self._call = call
        self.slot = -1

    def done(self, error: StorageError | None) -> None:
        call = self._call
        if error is not None:
            call.failed_at(self.slot, ErrorCode.KAFKA_STORAGE_ERROR)
        elif call.committed(self.slot) is not None:
            call.connection.release()


class ProduceCall(DataRequest):
    """One produce request: its partitions' results, and how many are not committed."""

    __slots__ = (
        "_api", "_waiting_for", "failed", "more_follow", "pending", "response_slot", "size_bytes",
        "topics", "transactional_id", "unchecked", "unverified",
    )  # fmt: skip
    operation = "Produce"

    def __init__(self, api: ProduceApi, connection: Connection, header: RequestHeader) -> None:
        super().__init__(connection, header)
        self._api = api
        self.transactional_id = ""
        self.topics: list[tuple[str, list[ProducePartitionResult]]] = []
        self.size_bytes = 0
        self.failed = False
        self.more_follow = False  # its producer is about to send more; see `Pipelining`
        self.pending = 0
        self.response_slot: ResponseSlot | None = None
        self.unchecked: list[UncheckedBatch] = []
        self.unverified: list[_Unverified] = []
        # The place of each answer that is waited for.
        self._waiting_for: list[tuple[int, int] | None] = []

    def one_more(self, place: tuple[int, int] | None = None) -> int:
        """Wait for one more thing before the answer at this place is final. Returns its slot.

        A `place` of None is that of the answer that is being made now.
        """
        if place is None:
            place = (len(self.topics) - 1, len(self.topics[-1][1]))
        self._waiting_for.append(place)
        self.pending += 1
        return len(self._waiting_for) - 1

    def place_of(self, slot: int) -> tuple[int, int]:
        """The place of the answer that a slot waits for."""
        place = self._waiting_for[slot]
        assert place is not None
        return place

    def fill(self, slot: int, place: tuple[int, int], answer: ProducePartitionResult) -> None:
        """Set an answer that was left open."""
        topic, index = place
        self.topics[topic][1][index] = answer
        if self._settle(slot, _NONE):
            self.connection.release()

    def committed(self, slot: int) -> Connection | None:
        """The high watermark has passed the batch of this slot."""
        if self.done or self._waiting_for[slot] is None or not self._settle(slot, _NONE):
            return None
        return self.connection

    def failed_at(self, slot: int, error: ErrorCode) -> None:
        """It cannot be known any more here whether the batch of this slot is committed."""
        if not self.done and self._waiting_for[slot] is not None and self._settle(slot, error):
            self.connection.release()

    def expire(self) -> None:
        """The request has timed out: appended, but not known to be committed."""
        for slot, entry in enumerate(self._waiting_for):
            if entry is not None:
                self.failed_at(slot, ErrorCode.REQUEST_TIMED_OUT)

    def abandoned(self) -> None:
        """The client has disconnected."""
        if not self.done:
            self._api.purgatory.finish(self)

    def _settle(self, slot: int, error: ErrorCode) -> bool:
        """One thing less to wait for. Returns whether the response is complete now."""
        entry, self._waiting_for[slot] = self._waiting_for[slot], None
        assert entry is not None
        topic, index = entry
        if error is not _NONE:
            self.failed = True
            answer = self.topics[topic][1][index]
            self.topics[topic][1][index] = _failure(answer.partition, error)
        self.pending -= 1
        if self.pending or self.response_slot is None:
            return False
        self._api.purgatory.finish(self)
        self._put_answer(self.response_slot)
        return True

    def _put_answer(self, response_slot: ResponseSlot) -> None:
        response_slot.put(self._api.answer(self))


class LargeProduceCall(ProduceCall):
    """A request of many partitions: the task that has appended it answers it.

    `pending` counts the task itself, so that it is not settled before all of it is appended.
    """

    __slots__ = ("_reserved_slot", "settled")

    def __init__(self, api: ProduceApi, connection: Connection, header: RequestHeader) -> None:
        super().__init__(api, connection, header)
        self.settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.pending = 1
        self.response_slot = self._reserved_slot = connection.later(self.abandoned)

    def is_not_settled(self) -> bool:
        """All of it is appended: returns whether something else has to be waited for."""
        self.pending -= 1
        return self.pending > 0 and not self.done

    def is_unanswered(self) -> None:
        """The client expects no response (acks=0)."""
        self.response_slot = None
        self.answer_with(b"")

    def answer_with(self, response: bytes) -> None:
        """Put the response in its place, unless the client has disconnected."""
        if self._reserved_slot.chunks is None:
            self._reserved_slot.fill([response] if response else [])

    def abandoned(self) -> None:
        """The client has disconnected: the task must not wait any more."""
        super().abandoned()
        if not self.settled.done():
            self.settled.set_result(None)

    def _put_answer(self, response_slot: ResponseSlot) -> None:
        del response_slot  # the answer is made in slices
        if not self.settled.done():
            self.settled.set_result(None)


def _not_now(
    call: "ProduceCall", topic: str, index: int, error: ErrorCode, batch: Buffer | None
) -> ProducePartitionResult:
    """A temporary error that is not the batch's: the producer's next batches get it, too."""
    call.failed = True
    call.connection.session.refusals.note((topic, index), error, call.started_ms, batch)
    return _failure(index, error)


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
