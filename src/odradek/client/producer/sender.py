"""The sending core of both producers (Java's Sender and RecordAccumulator).

    Producer         makes batches of single records      `odradek.client.producer.producer`
    ArrowProducer    makes batches of columns             `odradek.client.arrow.produce`

Batches wait by partition. One task sends those that are due, grouped by leader. Failed batches are
sent again until `delivery.timeout.ms` have passed. An idempotent producer assigns sequence numbers,
so that retries are not written twice: see `odradek.client.producer.batches` for the sequence
numbers and `odradek.client.producer.transactions` for transactions.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from odradek.client.cluster import Cluster
from odradek.client.errors import ClientTimeoutError, IllegalStateError
from odradek.client.producer.batches import (
    NO_PRODUCER,
    PartitionQueue,
    ProducerBatch,
    ProducerIdAndEpoch,
)
from odradek.client.producer.settings import ProducerSettings
from odradek.model.errors import RETRIABLE, ApiError, ErrorCode, OdradekError
from odradek.model.partition import NO_LEADER, TopicPartition
from odradek.wire.api_keys import ApiKey
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.wire.messages.produce import (
    PartitionProduceResponse,
    Produce,
    ProduceResponse,
    Topics,
    encode_produce_request,
)
from odradek.wire.schema import Buffer

if TYPE_CHECKING:
    from odradek.client.group.offsets import GroupMetadata, OffsetAndMetadata
    from odradek.client.producer.transactions import TransactionManager

_log: Final = logging.getLogger("odradek.client")

_EPOCH_MAX: Final = 0x7FFF
_VERSION_1_MAX: Final = 11  # of Produce with transaction.version 1
_REFRESH: Final = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.NETWORK_EXCEPTION,
)
# Errors that a leader returns before it writes; after any other error the batch may be written.
_NOT_WRITTEN: Final = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.MESSAGE_TOO_LARGE,
)


class BatchSender:
    """Delivers batches, and ends transactions. Sends only between `_start` and `_stop`."""

    def __init__(self, cluster: Cluster, settings: ProducerSettings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._busy: dict[TopicPartition, PartitionQueue] = {}
        self._in_flight: dict[int, int] = {}
        self._sending: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._flushing = 0
        self._batches_sent = self._batch_bytes_sent = 0
        self._records_sent = self._records_lost = self._records_repeated = 0
        self._identity = NO_PRODUCER
        self._bump = False
        self._fatal: Exception | None = None
        self._stale: set[str] = set()
        self._refreshing: asyncio.Task[None] | None = None
        self._refreshed_s = self._loop.time()  # of all topics of `_aging`
        self._sender: asyncio.Task[None] | None = None
        self._transactions: TransactionManager | None = None
        if (name := settings.transactional_id) is not None:
            from odradek.client.producer import transactions  # noqa: PLC0415  few need it

            self._transactions = transactions.TransactionManager(cluster, settings, name)

    def _start(self) -> None:
        self._sender = self._loop.create_task(self._send_all())

    async def _stop(self, error: Exception) -> None:
        """End all tasks; batches that are not acknowledged yet fail with this error."""
        tasks = [task for task in (self._sender, *self._sending, self._refreshing) if task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._give_up_all(error)

    def _give_up_all(self, error: Exception) -> None:
        for queue in self._busy.values():
            for batch in [*queue.under_way, *queue.waiting]:
                self._fatal = error  # the next sequence number is not known any more
                batch.finish(error=error)
            queue.waiting.clear()

    def _queue(self, partition: TopicPartition) -> PartitionQueue:
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = PartitionQueue(partition)
        return queue

    def _begun(self, queue: PartitionQueue) -> None:
        """Wake the sender: there is another batch in the queue."""
        self._busy[queue.partition] = queue
        self._wake.set()

    async def flush(self) -> None:
        """Wait until all records sent so far are acknowledged or have failed."""
        self._flushing += 1
        self._wake.set()
        try:
            for queue in list(self._busy.values()):
                for batch in [*queue.under_way, *queue.waiting]:
                    await batch
        finally:
            self._flushing -= 1

    def _drop_unsent(self, error: Exception) -> None:
        """Let those batches fail that were never sent."""
        for queue in self._busy.values():
            for batch in [batch for batch in queue.waiting if not batch.attempts]:
                queue.waiting.remove(batch)
                batch.finish(error=error)

    def metrics(self) -> dict[str, float]:
        """Counters under the names of Java's producer metrics."""
        batches = self._batches_sent
        return {
            "batch-count-total": float(batches),
            "batch-size-avg": self._batch_bytes_sent / batches if batches else float("nan"),
            "byte-total": float(self._batch_bytes_sent),
            "record-error-total": float(self._records_lost),
            "record-retry-total": float(self._records_repeated),
            "record-send-total": float(self._records_sent),
        }

    # ------------------------------------------------------------------------ transactions

    async def init_transactions(self) -> None:
        """See `TransactionManager.init`."""
        await self._transactional().init()

    def begin_transaction(self) -> None:
        """See `TransactionManager.begin`."""
        self._transactional().begin()

    async def send_offsets(
        self, offsets: "Mapping[TopicPartition, OffsetAndMetadata]", group: "GroupMetadata"
    ) -> None:
        """Commit a group's offsets in the transaction; see `TransactionManager.send_offsets`."""
        await self._transactional().send_offsets(offsets, group)

    async def commit_transaction(self) -> None:
        """Flush, and commit the transaction.

        Raises:
            IllegalStateError: a record has failed: the transaction can only be aborted.
            ApiError, ClientTimeoutError: see `TransactionManager.end`.
        """
        transactions = self._transactional()
        await self.flush()
        await transactions.end(commit=True)

    async def abort_transaction(self) -> None:
        """Drop unsent batches, wait for those in flight, and abort the transaction.

        Raises:
            ApiError, ClientTimeoutError: see `TransactionManager.end`.
        """
        transactions = self._transactional()
        self._drop_unsent(IllegalStateError("Failing batch since transaction was aborted"))
        await self.flush()
        await transactions.end(commit=False)

    def _transactional(self) -> "TransactionManager":
        if self._transactions is None:
            raise IllegalStateError(
                "Cannot use transactional methods without enabling transactions by setting the "
                "transactional.id configuration property"
            )
        return self._transactions

    # ----------------------------------------------------------------------------- sending

    async def _send_all(self) -> None:
        while True:
            self._wake.clear()
            self._expire()
            may_send = bool(self._busy) and await self._may_number()
            next_s = self._send_due() if may_send else None
            self._refresh_if_stale()
            try:
                async with asyncio.timeout_at(next_s):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _may_number(self) -> bool:
        """Get a producer id, or a new epoch, if one is needed; False if sending has to wait."""
        if not self._settings.is_idempotent or self._transactions is not None:
            return True
        if self._bump and self._identity.producer_epoch < _EPOCH_MAX:
            self._bump = False
            self._identity = self._identity._replace(
                producer_epoch=self._identity.producer_epoch + 1
            )
        if self._identity is not NO_PRODUCER and not self._bump:
            return True
        try:
            connection = await self._cluster.any_broker()
            answer = await connection.request(
                InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0x7FFFFFFF),
                InitProducerIdResponse,
            )
        except (ConnectionError, OdradekError):
            answer = InitProducerIdResponse(error_code=ErrorCode.NETWORK_EXCEPTION)
        if answer.error_code:
            error = ErrorCode(answer.error_code)
            if error not in RETRIABLE:
                self._fatal = ApiError(error, "InitProducerId")
                self._give_up_all(self._fatal)
            self._loop.call_later(self._cluster.retry_pause_s(1), self._wake.set)
            return False
        self._identity = ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)
        self._bump = False
        return True

    def _linger_s(self) -> float:
        """How long a batch that is not full waits for more records."""
        return 0.0 if self._flushing else self._settings.linger_ms / 1000

    def _due_s(self, queue: PartitionQueue, linger_s: float) -> float | None:
        """When to send the first waiting batch; None if there is none, or others are in flight."""
        if not queue.may_send(in_flight_max=self._settings.in_flight_max):
            return None
        return queue.due_s(batch_bytes=self._settings.batch_bytes, linger_s=linger_s)

    def _send_due(self) -> float | None:
        """Send the due batches; returns when to check again (s), or None."""
        now_s = self._loop.time()
        linger_s = self._linger_s()
        times: list[float] = []
        by_leader: dict[int, list[PartitionQueue]] = {}
        for partition, queue in list(self._busy.items()):
            if queue.is_idle:
                del self._busy[partition]
                continue
            due_s = self._due_s(queue, linger_s)
            if due_s is None:
                continue
            if due_s > now_s:
                times.append(due_s)
                continue
            leader = self._cluster.metadata.leader(partition)
            if leader == NO_LEADER:
                self._stale.add(partition.topic)
                continue
            if self._in_flight.get(leader, 0) < self._settings.in_flight_max:
                by_leader.setdefault(leader, []).append(queue)
        for leader, queues in by_leader.items():
            self._send_to(leader, queues, now_s, linger_s)
        times += [self._expiry_s(each.waiting[0]) for each in self._busy.values() if each.waiting]
        return min(times, default=None)

    def _send_to(
        self, leader: int, queues: list[PartitionQueue], now_s: float, linger_s: float
    ) -> None:
        """Send as many requests as may be in flight, each with at most one batch a partition."""
        identity = self._identity_of_sender()
        while self._in_flight.get(leader, 0) < self._settings.in_flight_max:
            batches: list[ProducerBatch] = []
            size_bytes = 0
            for number, queue in enumerate(queues):
                due_s = self._due_s(queue, linger_s)
                if due_s is None or due_s > now_s:
                    continue
                following_bytes = queue.waiting[0].size_bytes
                if batches and size_bytes + following_bytes > self._settings.request_bytes_max:
                    # The next request begins with this partition: else the last ones would wait
                    # for as long as the first ones have batches.
                    for served in queues[:number]:
                        self._busy[served.partition] = self._busy.pop(served.partition)
                    queues = [*queues[number:], *queues[:number]]
                    break
                size_bytes += following_bytes
                batches.append(queue.take(identity))
            if not batches:
                return
            self._in_flight[leader] = self._in_flight.get(leader, 0) + 1
            task = self._loop.create_task(self._deliver(leader, batches))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    def _identity_of_sender(self) -> ProducerIdAndEpoch:
        if self._transactions is not None:
            return self._transactions.identity
        return self._identity

    @property
    def _produce_version_max(self) -> int | None:
        version_1 = self._transactions is not None and not self._transactions.is_version_2
        return _VERSION_1_MAX if version_1 else None

    async def _deliver(self, leader: int, batches: Sequence[ProducerBatch]) -> None:
        settings = self._settings
        by_topic: dict[str, list[tuple[int, Buffer | None]]] = {}
        for batch in batches:
            if batch.encoded is None:
                batch.encoded = batch.encode(settings)
            self._batches_sent += 1
            self._batch_bytes_sent += len(batch.encoded)
            self._records_sent += batch.record_count
            part = (batch.partition.partition, batch.encoded)
            by_topic.setdefault(batch.partition.topic, []).append(part)
        topics: Topics = list(by_topic.items())
        produce = Produce(
            settings.acks, settings.client.request_timeout_ms, settings.transactional_id, topics
        )
        was_sent = False
        request_id = 0

        def encode(version: int, correlation_id: int, client_id: str | None) -> Sequence[Buffer]:
            nonlocal request_id
            request_id = correlation_id
            return encode_produce_request(version, correlation_id, client_id, produce)

        try:
            connection = await self._cluster.broker(leader)
            was_sent = True
            answer = await connection.exchange(
                ApiKey.PRODUCE,
                encode,
                ProduceResponse if settings.acks else None,
                version_max=self._produce_version_max,
            )
        except (ConnectionError, OdradekError) as error:
            self._in_flight[leader] -= 1
            for batch in batches:
                batch.is_in_doubt = batch.is_in_doubt or was_sent
                self._lost(batch, error)
            self._wake.set()
            return
        self._in_flight[leader] -= 1
        if answer is None:
            for batch in batches:
                self._queues[batch.partition].acknowledged(batch)
                batch.finish()
        else:
            self._answered(batches, answer, request_id)
        self._wake.set()

    def _answered(
        self, batches: Sequence[ProducerBatch], answer: ProduceResponse, request_id: int
    ) -> None:
        outcomes = {
            TopicPartition(topic.name, partition.index): partition
            for topic in answer.responses
            for partition in topic.partition_responses
        }
        for batch in batches:
            outcome = outcomes.get(batch.partition)
            if outcome is None:
                batch.is_in_doubt = True
                self._lost(batch, ConnectionError(f"{batch.partition}: missing in the response"))
            else:
                self._outcome(batch, outcome, request_id)

    # ------------------------------------------------------------------ outcomes

    def _outcome(
        self, batch: ProducerBatch, outcome: PartitionProduceResponse, request_id: int
    ) -> None:
        queue = self._queues[batch.partition]
        code = ErrorCode(outcome.error_code)
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            queue.acknowledged(batch)
            batch.finish(
                base_offset=outcome.base_offset, log_append_time_ms=outcome.log_append_time_ms
            )
            return
        if code is ErrorCode.MESSAGE_TOO_LARGE and len(batch.records) > 1:
            queue.split(batch)
            return
        if code not in _NOT_WRITTEN:
            batch.is_in_doubt = True
        if code in _REFRESH:
            self._stale.add(batch.partition.topic)
        error = ApiError(code, outcome.error_message)
        if self._may_repeat(queue, batch, code):
            client = self._settings.client
            _log.warning(  # the text of Kafka's client
                "%s Got error produce response with correlation id %d on topic-partition %s, "
                "retrying (%d attempts left). Error: %s", client.log_name, request_id,
                batch.partition, client.retries - batch.attempts, code.name,
            )  # fmt: skip
            self._again(queue, batch)
        else:
            self._give_up(queue, batch, error)

    def _may_repeat(self, queue: PartitionQueue, batch: ProducerBatch, code: ErrorCode) -> bool:
        if batch.attempts > self._settings.client.retries or self._is_expired(batch):
            return False
        if code in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID):
            if batch.base_sequence >= 0 and not queue.is_next(batch):
                return True  # an earlier batch has to be sent again first
            if self._transactions is not None or not self._settings.is_idempotent:
                return False
            # The broker may be a former leader that has not received its successor's epoch yet.
            self._stale.add(batch.partition.topic)
            if not batch.is_in_doubt:
                self._begin_anew(queue)
            return True
        return code in RETRIABLE

    def _lost(self, batch: ProducerBatch, error: Exception) -> None:
        """The connection was lost: whether the batch was written is unknown."""
        queue = self._queues[batch.partition]
        if isinstance(error, ApiError) and error.code not in RETRIABLE:
            if error.code is not ErrorCode.BROKER_NOT_AVAILABLE:
                self._give_up(queue, batch, error)
                return
        elif isinstance(error, OdradekError) and not isinstance(error, ApiError):
            self._give_up(queue, batch, error)  # authentication or TLS failed
            return
        self._stale.add(batch.partition.topic)
        if batch.attempts > self._settings.client.retries:
            self._give_up(queue, batch, ApiError(ErrorCode.NETWORK_EXCEPTION, str(error)))
        else:
            self._again(queue, batch)

    def _again(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        self._records_repeated += batch.record_count
        pause_s = self._cluster.retry_pause_s(batch.attempts)
        queue.again(batch, self._loop.time() + pause_s)
        self._busy[batch.partition] = queue

    def _give_up(self, queue: PartitionQueue, batch: ProducerBatch, error: Exception) -> None:
        queue.failed(batch)
        self._note_loss(queue, batch, error)
        batch.finish(error=error)

    def _note_loss(self, queue: PartitionQueue, batch: ProducerBatch, error: Exception) -> None:
        """Records with sequence numbers have failed: later numbers cannot be used (KIP-360)."""
        self._records_lost += batch.record_count
        if self._transactions is not None:
            if batch.base_sequence >= 0:
                self._transactions.epoch_is_in_doubt = True
                queue.begin_anew()
            self._transactions.fail(error, by_leader=True)
        elif batch.base_sequence >= 0:
            self._begin_anew(queue)

    def _begin_anew(self, queue: PartitionQueue) -> None:
        queue.begin_anew()
        self._bump = True

    def _is_expired(self, batch: ProducerBatch) -> bool:
        return self._loop.time() >= self._expiry_s(batch)

    def _expiry_s(self, batch: ProducerBatch) -> float:
        # The timer and the expiry check use the same sum. If one of them subtracted instead, it
        # would round differently: the sender would wake again and again before the batch expires.
        return batch.created_s + self._settings.delivery_timeout_ms / 1000

    def _expire(self) -> None:
        for queue in list(self._busy.values()):
            while queue.waiting and self._is_expired(queue.waiting[0]):
                batch = queue.waiting.popleft()
                error = ClientTimeoutError(
                    f"Expiring {batch.record_count} record(s) for {batch.partition}:"
                    f"{round((self._loop.time() - batch.created_s) * 1000)} ms has passed since "
                    "batch creation"
                )
                if batch.attempts:
                    self._note_loss(queue, batch, error)
                elif self._transactions is not None:
                    self._transactions.fail(error)
                batch.finish(error=error)

    # -------------------------------------------------------------------------- metadata

    def _aging(self) -> Iterable[str]:
        """The topics to refresh after `metadata.max.age.ms`."""
        return ()

    def _refresh_if_stale(self) -> None:
        if self._refreshing is not None and not self._refreshing.done():
            return
        age_s = self._loop.time() - self._refreshed_s
        is_due = age_s >= self._settings.client.metadata_age_ms_max / 1000
        stale, self._stale = self._stale, set()
        if is_due:
            stale.update(self._aging())
        if stale:
            self._refreshing = self._loop.create_task(self._refresh(stale, is_due=is_due))

    async def _refresh(self, topics: set[str], *, is_due: bool) -> None:
        try:
            await self._cluster.refresh(sorted(topics))
            if is_due:
                self._refreshed_s = self._loop.time()
        except (ConnectionError, OdradekError):
            pass
        await asyncio.sleep(self._cluster.retry_pause_s(1))
        self._wake.set()
