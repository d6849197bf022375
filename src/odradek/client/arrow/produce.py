"""A producer for Arrow tables: rows become batches, which are acknowledged in order.

    producer = await ArrowProducer.open(cluster, ArrowProducerSettings(transactional_id="load-7"))
    producer.begin_transaction()
    await producer.send("orders", table)
    await producer.commit_transaction()

Numbering, sending, retries and transactions are those of `odradek.client.producer.sender`.

`send` returns when everything is acknowledged. Batches are encoded as there is room for them: of
each partition at most `in_flight_max` batches are in memory besides the table.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, Self

import pyarrow as pa
import pyarrow.compute as pc

from odradek.client.arrow.cluster import partitions_by_topic
from odradek.client.arrow.encode import EncodedRecords, encode_partition, normalized
from odradek.client.arrow.partition import partition_rows
from odradek.client.cluster import Cluster
from odradek.client.errors import ClosedError, IllegalStateError
from odradek.client.producer.batches import ProducerBatch
from odradek.client.producer.sender import BatchSender
from odradek.client.producer.settings import ProducerSettings
from odradek.client.producer.transactions import OpenTransaction, TransactionManager
from odradek.model.clock import WallMs
from odradek.model.errors import ApiError
from odradek.model.partition import TopicPartition
from odradek.net.clock import real_wall_ms
from odradek.record.records import assemble

_SEND_ENDED: Final = "the send of this batch has ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrowProducerSettings(ProducerSettings):
    """Settings with larger batches: rows of columns come many at a time."""

    batch_bytes: int = 256 << 10


class Written(NamedTuple):
    """The result of writing the rows of one partition."""

    first_offset: int  # -1: not known
    records: int


@dataclass(slots=True, eq=False, repr=False)
class ReadyBatch(ProducerBatch):
    """A batch whose records are encoded already; they cannot be split."""

    ready: EncodedRecords = field(kw_only=True)

    def __post_init__(self) -> None:
        self.size_bytes += len(self.ready.records)

    @property
    def record_count(self) -> int:
        return self.ready.header.record_count

    def encode(self, settings: ProducerSettings) -> bytearray:  # noqa: ARG002  encoded with them
        header = self.ready.header._replace(
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            base_sequence=self.base_sequence,
        )
        return assemble(header, self.ready.records)


class ArrowProducer(BatchSender):
    """Writes tables to topics. Opened by `open`; not for concurrent use.

    It has tasks only during `send`, so it need not be closed.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: ProducerSettings,
        *,
        wall_ms: Callable[[], WallMs] = real_wall_ms,
    ) -> None:
        super().__init__(cluster, replace(settings, client=cluster.settings))
        self._wall_ms = wall_ms
        self._turn = random.randrange(1 << 20)  # the first partition of rows without a key

    @classmethod
    async def open(cls, cluster: Cluster, settings: ProducerSettings | None = None) -> Self:
        """A producer; fences earlier producers with the same transactional id.

        Raises:
            ApiError, ClientTimeoutError: see `TransactionManager.init`.
        """
        producer = cls(cluster, settings or ArrowProducerSettings())
        if producer._transactions is not None:
            await producer.init_transactions()
        return producer

    async def send(
        self, topic: str, table: pa.Table | pa.RecordBatch
    ) -> dict[TopicPartition, Written]:
        """Write the rows and wait until all are acknowledged.

        Raises:
            UnknownTopicError: the topic does not exist.
            PartitionError, ColumnError: invalid rows; nothing was written.
            ApiError: a broker refuses permanently, or a record is too large.
            ClientTimeoutError: not within the delivery time-out.
            IllegalStateError: no transaction is open, or it has failed.
        """
        if self._fatal is not None:
            raise self._fatal
        if self._transactions is not None:
            self._transactions.must_be_open()
        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        rows = normalized(table, wall_ms=self._wall_ms())
        count = len((await partitions_by_topic(self._cluster, [topic], creating=True))[topic])
        parts = {
            partition: encode_partition(part, self._settings)
            for partition, part in self._by_partition(topic, rows, count)
        }
        if self._transactions is not None:
            await self._transactions.join(parts)
        return dict(zip(parts, await self._send_parts(parts), strict=True))

    def _by_partition(
        self, topic: str, rows: pa.Table, count: int
    ) -> Iterator[tuple[TopicPartition, pa.Table]]:
        chosen = partition_rows(
            rows,
            count,
            first_partition=self._turn % count,
            batch_bytes=self._settings.batch_bytes,
        )
        self._turn += 1
        columns = [name for name in rows.column_names if name != "partition"]
        values = pc.unique(chosen).to_pylist()
        if len(values) == 1:
            yield TopicPartition(topic, values[0]), rows.select(columns)
            return
        order = pc.array_sort_indices(chosen)
        rows = rows.select(columns).take(order)
        ends = pc.value_counts(chosen.take(order))
        start = 0
        for value, size in zip(
            ends.field("values").to_pylist(), ends.field("counts").to_pylist(), strict=True
        ):
            yield TopicPartition(topic, value), rows.slice(start, size)
            start += size

    async def _send_parts(
        self, parts: dict[TopicPartition, Iterator[EncodedRecords]]
    ) -> list[Written]:
        self._start()
        tasks = [self._loop.create_task(self._send_part(*part)) for part in parts.items()]
        try:
            return await asyncio.gather(*tasks)
        except Exception:
            # Nothing of a send that has failed may be in flight when its transaction is aborted.
            await _cancel(tasks)
            self._drop_unsent(IllegalStateError(_SEND_ENDED))
            await self.flush()
            raise
        finally:
            await _cancel(tasks)
            await self._stop(ClosedError(_SEND_ENDED))

    async def _send_part(
        self, partition: TopicPartition, batches: Iterator[EncodedRecords]
    ) -> Written:
        # Without sequence numbers, retries could change the order of batches in flight.
        unacknowledged_max = self._settings.in_flight_max if self._settings.is_idempotent else 1
        queue = self._queue(partition)
        unacknowledged: deque[ReadyBatch] = deque()
        offsets: list[int] = []
        records = 0
        for ready in batches:
            batch = ReadyBatch(partition, self._loop.time(), ready=ready)
            records += batch.record_count
            unacknowledged.append(batch)
            queue.waiting.append(batch)
            self._begun(queue)
            await asyncio.sleep(0)  # the sender sends it while the next one is encoded
            if len(unacknowledged) == unacknowledged_max:
                offsets.append(await _acknowledged(unacknowledged.popleft()))
        offsets += [await _acknowledged(batch) for batch in unacknowledged]
        return Written(offsets[0], records)

    @property
    def open_transaction(self) -> OpenTransaction:
        """The transaction that was begun, for `end_left_open` in another process."""
        return self._transactional().open_transaction


async def _acknowledged(batch: ReadyBatch) -> int:
    """Wait for the acknowledgement; returns the base offset."""
    await batch
    error = batch.error
    if isinstance(error, ApiError):
        raise ApiError(error.code, f"{batch.partition}: {error.message or error.code.name}")
    if error is not None:
        raise error
    return batch.base_offset


async def _cancel(tasks: Sequence[asyncio.Task[Written]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def end_left_open(
    cluster: Cluster, settings: ProducerSettings, transaction: OpenTransaction, *, commit: bool
) -> None:
    """Commit or abort a transaction that its producer, which may have ended, left open.

    Raises:
        ApiError: refused: the producer is fenced, or the transaction has timed out.
        ClientTimeoutError: not within `max.block.ms`.
    """
    manager = TransactionManager(cluster, settings, transaction.transactional_id)
    manager.resume(transaction)
    await manager.end(commit=commit)
