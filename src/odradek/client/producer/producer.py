"""The asyncio producer: accumulates records in batches and delivers them.

    async with await Producer.open(settings) as producer:
        delivery = await producer.send("orders", b"value", key=b"key")
        metadata = await delivery

Records accumulate in batches by partition until a batch is full or `linger.ms` have passed; the
`odradek.client.producer.sender` numbers and delivers them.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Final, Self

from odradek.client.closing import Closing
from odradek.client.cluster import Cluster
from odradek.client.errors import (
    ClientTimeoutError,
    ClosedError,
    RecordTooLargeError,
    refusal,
)
from odradek.client.metadata import TopicMetadata
from odradek.client.producer.batches import Delivery, ProducerBatch, size_of, whole_size_of
from odradek.client.producer.partitioner import StickyPartition, partition_of_key
from odradek.client.producer.sender import BatchSender
from odradek.client.producer.settings import ProducerSettings
from odradek.model.clock import WallMs
from odradek.model.errors import ApiError, ErrorCode, OdradekError
from odradek.model.partition import TopicPartition
from odradek.net.clock import real_wall_ms
from odradek.net.retry import Retries
from odradek.record.batch import HEADER_BYTES
from odradek.record.records import Record

Headers = Sequence[tuple[str, bytes | None]]

# A batch header, and the lengths within a record that `size_of` does not count.
_BATCH_SLACK_BYTES: Final = 61 + 64
_TOPIC_NEVER: Final = (
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)


class Producer(BatchSender, Closing):
    """A producer. Opened by `open`, closed by `close` or by leaving its `async with`."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ProducerSettings,
        *,
        draw: Callable[[], float] = random.random,
        wall_ms: Callable[[], WallMs] = real_wall_ms,
    ) -> None:
        super().__init__(cluster, settings)
        self._draw = draw
        self._wall_ms = wall_ms
        self._topics: dict[str, tuple[TopicMetadata, list[int]]] = {}
        self._sticky: dict[str, StickyPartition] = {}
        self._held_bytes = 0
        self._least_limit = min(settings.request_bytes_max, settings.buffer_bytes)
        self._room = asyncio.Event()
        self._closed = False
        self._start()

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
            key, value, self._wall_ms() if timestamp is None else timestamp, tuple(headers)
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
        record = Record(key, value, self._wall_ms())
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
        retries = Retries(self._cluster.retry_pause_s, deadline_s=deadline_s)
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
            if not await retries.pause():
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
        queue = self._queues.get(partition) or self._queue(partition)
        batch, index = queue.append(
            record,
            size_bytes,
            batch_bytes=self._settings.batch_bytes,
            now_s=self._loop.time(),
        )
        self._held_bytes += size_bytes
        if not index:
            batch.waiting.append(self._release)
            self._begun(queue)
        return Delivery(batch, index)

    def _release(self, batch: ProducerBatch) -> None:
        self._held_bytes -= batch.size_bytes - HEADER_BYTES
        self._room.set()

    # ------------------------------------------------------------------------- ending

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
            await self._stop(ClosedError("Producer is closed forcefully."))
            await self._cluster.close()

    def _aging(self) -> set[str]:
        return {partition.topic for partition in self._queues}

    def _linger_s(self) -> float:
        crowded = self._held_bytes * 2 > self._settings.buffer_bytes
        return 0.0 if crowded else super()._linger_s()
