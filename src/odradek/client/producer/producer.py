"""The asyncio producer: accumulates records in batches and delivers them.

    async with await Producer.open(settings) as producer:
        delivery = await producer.send("orders", b"value", key=b"key")
        metadata = await delivery

Records accumulate in batches by partition until a batch is full or `linger.ms` have passed; one
task sends the due batches, grouped by leader. Failed batches are sent again until
`delivery.timeout.ms` have passed. An idempotent producer assigns sequence numbers, so that retries
are not written twice: see `odradek.client.producer.batches` for the sequence numbers and
`odradek.client.producer.transactions` for transactions.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Self

from odradek.client.closing import Closing
from odradek.client.cluster import Cluster
from odradek.client.errors import (
    ClientTimeoutError,
    ClosedError,
    IllegalStateError,
    RecordTooLargeError,
    refusal,
)
from odradek.client.metadata import TopicMetadata
from odradek.client.producer.batches import (
    NO_PRODUCER,
    Delivery,
    PartitionQueue,
    ProducerBatch,
    ProducerIdAndEpoch,
    size_of,
    whole_size_of,
)
from odradek.client.producer.partitioner import StickyPartition, partition_of_key
from odradek.client.producer.settings import ProducerSettings
from odradek.model.errors import RETRIABLE, ApiError, ErrorCode, OdradekError
from odradek.model.partition import NO_LEADER, TopicPartition
from odradek.record.batch import HEADER_BYTES
from odradek.record.records import Record, build_batch
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

Headers = Sequence[tuple[str, bytes | None]]

_EPOCH_MAX: Final = 0x7FFF
# A batch header, and the lengths within a record that `size_of` does not count.
_BATCH_SLACK_BYTES: Final = 61 + 64
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
_TOPIC_NEVER: Final = (
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)


def wall_ms() -> int:
    """The clock for the timestamps of records, in milliseconds."""
    return time.time_ns() // 1_000_000


class Producer(Closing):
    """A producer. Opened by `open`, closed by `close` or by leaving its `async with`."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ProducerSettings,
        *,
        draw: Callable[[], float] = random.random,
        now_ms: Callable[[], int] = wall_ms,
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._draw = draw
        self._now_ms = now_ms
        self._loop = asyncio.get_running_loop()
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._busy: dict[TopicPartition, PartitionQueue] = {}
        self._topics: dict[str, tuple[TopicMetadata, list[int]]] = {}
        self._sticky: dict[str, StickyPartition] = {}
        self._in_flight: dict[int, int] = {}
        self._sending: set[asyncio.Task[None]] = set()
        self._held_bytes = 0
        self._least_limit = min(settings.request_bytes_max, settings.buffer_bytes)
        self._room = asyncio.Event()
        self._wake = asyncio.Event()
        self._flushing = 0
        self._batches_sent = self._batch_bytes_sent = 0
        self._records_sent = self._records_lost = self._records_repeated = 0
        self._closed = False
        self._identity = NO_PRODUCER
        self._bump = False
        self._fatal: Exception | None = None
        self._stale: set[str] = set()
        self._refreshing: asyncio.Task[None] | None = None
        self._refreshed_s = self._loop.time()
        self._transactions: TransactionManager | None = None
        if settings.transactional_id is not None:
            from odradek.client.producer import transactions  # noqa: PLC0415  few need it

            self._transactions = transactions.TransactionManager(cluster, settings)
        self._sender = self._loop.create_task(self._send_all())

    @classmethod
    async def open(cls, settings: ProducerSettings, *, wait_ms: int = 0) -> Self:
        """Connect to the cluster, retrying for `wait_ms`.

        Raises:
            BootstrapError: no broker answers.
            AuthenticationError, SettingsError: see `Cluster.connect`.
        """
        return cls(await Cluster.connect(settings.client, wait_ms=wait_ms), settings)

    # ------------------------------------------------------------------------- sending

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Delivery:
        """Append a record to a batch; waits for metadata and buffer memory. Await the result.

        Raises:
            ClientTimeoutError: no metadata or no buffer memory within `max.block.ms`.
            RecordTooLargeError: above `max.request.size` or `buffer.memory`.
            ApiError: the topic's name is invalid, or the topic is not authorized.
            IllegalStateError: no transaction is open, or it has failed.
            ClosedError: the producer was closed.
        """
        record = Record(
            key, value, self._now_ms() if timestamp is None else timestamp, tuple(headers)
        )
        size_bytes = size_of(record)
        self._check(record, size_bytes)
        deadline_s = self._loop.time() + self._settings.block_ms_max / 1000
        await self._know(topic, partition, deadline_s)
        if self._held_bytes + size_bytes > self._settings.buffer_bytes:
            await self._wait_for_room(size_bytes, deadline_s)
        chosen = self._partition_for(topic, record, size_bytes, partition)
        if self._transactions is not None:
            self._transactions.must_be_open()
            if not self._transactions.holds(chosen):
                await self._transactions.join([chosen])
        return self._append(chosen, record, size_bytes)

    def try_send(
        self, topic: str, value: bytes | None, *, key: bytes | None = None
    ) -> Delivery | None:
        """`send` without waiting: None if it would have to wait.

        Raises:
            as `send`, except ClientTimeoutError.
        """
        record = Record(key, value, self._now_ms())
        size_bytes = size_of(record)
        self._check(record, size_bytes)
        if (
            self._held_bytes + size_bytes > self._settings.buffer_bytes
            or topic not in self._cluster.metadata.topics
        ):
            return None
        chosen = self._partition_for(topic, record, size_bytes, None)
        if self._transactions is not None:
            self._transactions.must_be_open()
            if not self._transactions.holds(chosen):
                return None
        return self._append(chosen, record, size_bytes)

    def _check(self, record: Record, size_bytes: int) -> None:
        if self._closed:
            raise ClosedError("Cannot perform operation after producer has been closed")
        if self._fatal is not None:
            raise self._fatal
        if size_bytes + _BATCH_SLACK_BYTES <= self._least_limit:
            return
        whole_bytes = whole_size_of(record)
        for limit, option in (
            (self._settings.request_bytes_max, "max.request.size"),
            (self._settings.buffer_bytes, "buffer.memory"),
        ):
            if whole_bytes > limit:
                raise RecordTooLargeError(
                    f"The message is {whole_bytes} bytes when serialized which is larger than "
                    f"{limit}, which is the value of the {option} configuration."
                )

    async def partitions_for(self, topic: str) -> list[TopicPartition]:
        """The partitions of a topic.

        Raises:
            ClientTimeoutError, ApiError: as `send`.
        """
        await self._know(topic, None, self._loop.time() + self._settings.block_ms_max / 1000)
        return self._cluster.metadata.partitions(topic)

    async def _know(self, topic: str, partition: int | None, deadline_s: float) -> None:
        """Wait until the topic, and the partition if one is given, is in the metadata."""
        failures = 0
        while True:
            state = self._cluster.metadata.topics.get(topic)
            if state is not None and (partition is None or partition in state.partitions):
                return
            try:
                async with asyncio.timeout_at(deadline_s):
                    await self._cluster.refresh([topic], creating=True)
            except (TimeoutError, ConnectionError, OdradekError):
                pass
            self._cluster.log_errors([topic])
            code = self._cluster.metadata.errors.get(topic)
            if code in _TOPIC_NEVER:
                raise ApiError(ErrorCode(code), refusal(code, topic))
            if topic in self._cluster.metadata.topics and partition is None:
                return
            failures += 1
            pause_s = self._cluster.retry_pause_s(failures)
            if self._loop.time() + pause_s >= deadline_s:
                await asyncio.sleep(max(0.0, deadline_s - self._loop.time()))
                waited_ms = self._settings.block_ms_max
                if state is not None:
                    raise ClientTimeoutError(
                        f"Partition {partition} of topic {topic} with partition count "
                        f"{len(state.partitions)} is not present in metadata after {waited_ms} ms."
                    )
                raise ClientTimeoutError(
                    f"Topic {topic} not present in metadata after {waited_ms} ms."
                )
            await asyncio.sleep(pause_s)

    async def _wait_for_room(self, size_bytes: int, deadline_s: float) -> None:
        while self._held_bytes + size_bytes > self._settings.buffer_bytes:
            self._room.clear()
            try:
                async with asyncio.timeout_at(deadline_s):
                    await self._room.wait()
            except TimeoutError:
                raise ClientTimeoutError(
                    f"Failed to allocate {size_bytes} bytes within the configured max blocking "
                    f"time {self._settings.block_ms_max} ms. Total memory: "
                    f"{self._settings.buffer_bytes} bytes. Available memory: "
                    f"{self._settings.buffer_bytes - self._held_bytes} bytes."
                ) from None
            if self._closed:
                raise ClosedError("Producer closed while allocating memory")

    def _partition_for(
        self, topic: str, record: Record, size_bytes: int, partition: int | None
    ) -> TopicPartition:
        if partition is not None:
            return TopicPartition(topic, partition)
        state = self._cluster.metadata.topics[topic]
        if record.key is not None and not self._settings.ignores_keys:
            return TopicPartition(topic, partition_of_key(record.key, len(state.partitions)))
        known = self._topics.get(topic)
        if known is None or known[0] is not state:
            led = [index for index, part in state.partitions.items() if part.leader >= 0]
            known = self._topics[topic] = state, led or list(state.partitions)
        sticky = self._sticky.get(topic)
        if sticky is None:
            sticky = self._sticky[topic] = StickyPartition(self._settings.batch_bytes)
        return TopicPartition(topic, sticky.choose(known[1], size_bytes, self._draw()))

    def _append(self, partition: TopicPartition, record: Record, size_bytes: int) -> Delivery:
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = PartitionQueue(partition)
        self._busy[partition] = queue
        batch, index = queue.append(
            record,
            size_bytes,
            batch_bytes=self._settings.batch_bytes,
            now_s=self._loop.time(),
        )
        self._held_bytes += size_bytes
        if not index:
            batch.waiting.append(self._release)
            self._wake.set()
        return Delivery(batch, index, self._wait)

    def _release(self, batch: ProducerBatch) -> None:
        self._held_bytes -= batch.size_bytes - HEADER_BYTES
        self._room.set()

    def _wait(self, batch: ProducerBatch) -> Generator[Any, None, None]:
        done = self._loop.create_future()
        batch.waiting.append(lambda _: _resolve(done))
        yield from done

    # ------------------------------------------------------------------------- ending

    async def flush(self) -> None:
        """Wait until all records sent so far are acknowledged or have failed."""
        self._flushing += 1
        self._wake.set()
        try:
            for queue in list(self._busy.values()):
                for batch in [*queue.under_way, *queue.waiting]:
                    if not batch.is_done:
                        await _Done(batch, self._wait)
        finally:
            self._flushing -= 1

    async def close(self, timeout_ms: int | None = None) -> None:
        """Send what is accumulated, within the time-out, and close the connections."""
        if self._closed:
            return
        self._closed = True
        try:
            if timeout_ms != 0:
                async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                    await self.flush()
        except TimeoutError:
            pass
        finally:
            await self._stop()

    async def _stop(self) -> None:
        tasks = [self._sender, *self._sending]
        if self._refreshing is not None:
            tasks.append(self._refreshing)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._give_up_all(ClosedError("Producer is closed forcefully."))
        await self._cluster.close()

    def _give_up_all(self, error: Exception) -> None:
        for queue in self._busy.values():
            for batch in [*queue.under_way, *queue.waiting]:
                batch.finish(error=error)
            queue.waiting.clear()

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
        error = IllegalStateError("Failing batch since transaction was aborted")
        for queue in self._busy.values():
            for batch in [batch for batch in queue.waiting if not batch.attempts]:
                queue.waiting.remove(batch)
                batch.finish(error=error)
        await self.flush()
        await transactions.end(commit=False)

    def _transactional(self) -> "TransactionManager":
        if self._transactions is None:
            raise IllegalStateError(
                "Cannot use transactional methods without enabling transactions by setting the "
                "transactional.id configuration property"
            )
        return self._transactions

    # -------------------------------------------------------------------------- the sender

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

    def _send_due(self) -> float | None:
        """Send the due batches; returns when to check again (s), or None."""
        settings = self._settings
        now_s = self._loop.time()
        linger_s = 0.0 if self._flushing or self._closed else settings.linger_ms / 1000
        crowded = self._held_bytes * 2 > settings.buffer_bytes
        next_s: float | None = None
        by_leader: dict[int, list[PartitionQueue]] = {}
        for partition, queue in list(self._busy.items()):
            if queue.is_idle:
                del self._busy[partition]
                continue
            due_s = queue.due_s(
                batch_bytes=settings.batch_bytes, linger_s=0.0 if crowded else linger_s
            )
            if due_s is None or not queue.may_send(in_flight_max=settings.in_flight_max):
                continue
            if due_s > now_s:
                next_s = due_s if next_s is None else min(next_s, due_s)
                continue
            leader = self._cluster.metadata.leader(partition)
            if leader == NO_LEADER:
                self._stale.add(partition.topic)
                continue
            if self._in_flight.get(leader, 0) < settings.in_flight_max:
                by_leader.setdefault(leader, []).append(queue)
        for leader, queues in by_leader.items():
            self._send_to(leader, queues)
        expiry_s = self._first_expiry_s()
        times = [moment for moment in (next_s, expiry_s) if moment is not None]
        return min(times) if times else None

    def _first_expiry_s(self) -> float | None:
        return min(
            (self._expiry_s(queue.waiting[0]) for queue in self._busy.values() if queue.waiting),
            default=None,
        )

    def _send_to(self, leader: int, queues: Sequence[PartitionQueue]) -> None:
        """Send as many requests as may be in flight, each with at most one batch a partition."""
        settings = self._settings
        identity = self._identity_of_sender()
        while self._in_flight.get(leader, 0) < settings.in_flight_max:
            batches: list[ProducerBatch] = []
            size_bytes = 0
            for queue in queues:
                if not queue.may_send(in_flight_max=settings.in_flight_max):
                    continue
                first = queue.waiting[0]
                if first.not_before_s > self._loop.time():
                    continue
                if batches and size_bytes + first.size_bytes > settings.request_bytes_max:
                    break
                if not self._is_due(queue):
                    continue
                size_bytes += first.size_bytes
                batches.append(queue.take(identity))
            if not batches:
                return
            self._in_flight[leader] = self._in_flight.get(leader, 0) + 1
            task = self._loop.create_task(self._deliver(leader, batches))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    def _is_due(self, queue: PartitionQueue) -> bool:
        lingers = not (self._flushing or self._closed)
        due_s = queue.due_s(
            batch_bytes=self._settings.batch_bytes,
            linger_s=self._settings.linger_ms / 1000 if lingers else 0.0,
        )
        crowded = self._held_bytes * 2 > self._settings.buffer_bytes
        return due_s is not None and (crowded or due_s <= self._loop.time())

    def _identity_of_sender(self) -> ProducerIdAndEpoch:
        if self._transactions is not None:
            return self._transactions.identity
        return self._identity

    @property
    def _produce_version_max(self) -> int | None:
        version_1 = self._transactions is not None and not self._transactions.is_version_2
        return _VERSION_1_MAX if version_1 else None

    def _encode(self, batch: ProducerBatch) -> bytes:
        if batch.encoded is None:
            batch.encoded = build_batch(
                batch.records,
                codec=self._settings.codec,
                levels=self._settings.levels,
                producer_id=batch.identity.producer_id,
                producer_epoch=batch.identity.producer_epoch,
                base_sequence=batch.base_sequence,
                transactional=self._transactions is not None,
            )
        return batch.encoded

    async def _deliver(self, leader: int, batches: Sequence[ProducerBatch]) -> None:
        settings = self._settings
        by_topic: dict[str, list[tuple[int, Buffer | None]]] = {}
        for batch in batches:
            part = (batch.partition.partition, self._encode(batch))
            self._batches_sent += 1
            self._batch_bytes_sent += len(part[1])
            self._records_sent += len(batch.records)
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
        in_doubt = code is ErrorCode.UNKNOWN_PRODUCER_ID
        if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            if batch.base_sequence >= 0 and not queue.is_next(batch):
                return True  # an earlier batch has to be sent again first
            in_doubt = True
        if in_doubt:
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
        self._records_repeated += len(batch.records)
        pause_s = self._cluster.retry_pause_s(batch.attempts)
        queue.again(batch, self._loop.time() + pause_s)
        self._busy[batch.partition] = queue

    def _give_up(self, queue: PartitionQueue, batch: ProducerBatch, error: Exception) -> None:
        queue.failed(batch)
        self._note_loss(queue, batch, error)
        batch.finish(error=error)

    def _note_loss(self, queue: PartitionQueue, batch: ProducerBatch, error: Exception) -> None:
        """Records with sequence numbers have failed: later numbers cannot be used (KIP-360)."""
        self._records_lost += len(batch.records)
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
        # Timer and expiry check use the same sum: a difference would be rounded differently, and
        # the sender would be woken at the same time again and again.
        return batch.created_s + self._settings.delivery_timeout_ms / 1000

    def _expire(self) -> None:
        for queue in list(self._busy.values()):
            while queue.waiting and self._is_expired(queue.waiting[0]):
                batch = queue.waiting.popleft()
                error = ClientTimeoutError(
                    f"Expiring {len(batch.records)} record(s) for {batch.partition}:"
                    f"{round((self._loop.time() - batch.created_s) * 1000)} ms has passed since "
                    "batch creation"
                )
                if batch.attempts:
                    self._note_loss(queue, batch, error)
                elif self._transactions is not None:
                    self._transactions.fail(error)
                batch.finish(error=error)

    # -------------------------------------------------------------------------- metadata

    def _refresh_if_stale(self) -> None:
        age_s = self._loop.time() - self._refreshed_s
        if age_s >= self._settings.client.metadata_age_ms_max / 1000:
            self._stale.update(self._topics)
        if self._stale and (self._refreshing is None or self._refreshing.done()):
            stale, self._stale = self._stale, set()
            self._refreshing = self._loop.create_task(self._refresh(stale))

    async def _refresh(self, topics: set[str]) -> None:
        try:
            await self._cluster.refresh(sorted(topics))
            self._refreshed_s = self._loop.time()
        except (ConnectionError, OdradekError):
            pass
        await asyncio.sleep(self._cluster.retry_pause_s(1))
        self._wake.set()


class _Done:
    """Awaits the completion of a batch, successful or not."""

    def __init__(
        self, batch: ProducerBatch, wait: Callable[[ProducerBatch], Generator[Any, None, None]]
    ) -> None:
        self._batch = batch
        self._wait = wait

    def __await__(self) -> Generator[Any, None, None]:
        return self._wait(self._batch)


def _resolve(done: "asyncio.Future[None]") -> None:
    if not done.done():
        done.set_result(None)
