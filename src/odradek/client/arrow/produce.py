"""A producer for Arrow tables: rows become batches, which are acknowledged in order.

    producer = await ArrowProducer.open(cluster, ProducerSettings(transactional_id="load-7"))
    await producer.begin()
    await producer.send("orders", table)
    await producer.commit()

Idempotent by default: the batches of a partition have sequence numbers, several are in flight, and
after a failure all unacknowledged batches are sent again in order, so that a broker writes each of
them exactly once. With a transactional id, InitProducerId fences earlier producers with this id and
aborts their open transaction.

`send` returns when everything is acknowledged. Batches are encoded as there is room for them: in
each partition at most `unacknowledged_max` batches are in memory besides the table.
"""

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from odradek.client.arrow.cluster import (
    Patience,
    coordinated,
    may_pass,
    partitions_by_topic,
    retried,
)
from odradek.client.arrow.encode import BatchSettings, encode_partition, normalized
from odradek.client.arrow.partition import partition_rows
from odradek.client.cluster import GROUP_COORDINATOR, TRANSACTION_COORDINATOR, Cluster
from odradek.client.connection import Connection
from odradek.model.errors import ApiError, ErrorCode, OdradekError
from odradek.model.partition import NO_LEADER, TopicPartition
from odradek.record.batch import NO_PRODUCER_ID, NO_SEQUENCE, SEQUENCE_MAX, read_header
from odradek.record.compression import DEFAULT_LEVELS, Codec, Levels
from odradek.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from odradek.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

_ADD_PARTITIONS_VERSION: Final = 3  # later versions are for brokers
_END_VERSION: Final = 4  # later versions also bump the epoch (KIP-890)
_DONE_BEFORE: Final = (ErrorCode.DUPLICATE_SEQUENCE_NUMBER,)
# The error of a batch that was sent after one that has failed.
_BEHIND_A_FAILURE: Final = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,)
_IN_FLIGHT_MAX: Final = 5  # a broker keeps the last five batches of a producer


class ProducerStateError(OdradekError):
    """A call without a transactional id, or outside of a transaction."""


@dataclass(slots=True, kw_only=True)
class ProducerSettings:
    """Sizes, time-outs and guarantees of writing."""

    acks: int = -1
    idempotent: bool = True
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000
    batch_bytes: int = 256 << 10
    request_bytes_max: int = 1 << 20
    codec: Codec = Codec.NONE
    levels: Levels = DEFAULT_LEVELS
    delivery_timeout_ms: int = 120_000
    unacknowledged_max: int = _IN_FLIGHT_MAX

    def with_transaction(self, transactional_id: str) -> "ProducerSettings":
        """The same settings with a transactional id."""
        return replace(self, transactional_id=transactional_id, idempotent=True, acks=-1)


class Written(NamedTuple):
    """The result of writing the rows of one partition."""

    first_offset: int  # -1: not known
    records: int


class _Batch(NamedTuple):
    data: bytearray
    records: int


class _Line:
    """The batches of one partition: encoded on demand, sent in order, kept until acknowledged."""

    def __init__(self, partition: TopicPartition, batches: Iterator[bytearray]) -> None:
        self.partition = partition
        self.first_offset = -1
        self.records = 0
        self._batches: Iterator[bytearray] | None = batches
        self._unacknowledged: deque[_Batch] = deque()
        self._sent = 0  # how many of the kept batches are sent, from the front
        self.in_flight = 0
        self._failed = False

    @property
    def is_done(self) -> bool:
        return self._batches is None and not self._unacknowledged

    def to_send(self, unacknowledged_max: int) -> _Batch | None:
        """The next batch to send, if one may be sent now."""
        if self._failed:
            if self.in_flight:
                return None  # wait for the responses to the later batches
            self._failed, self._sent = False, 0
        if self._sent == len(self._unacknowledged):
            if len(self._unacknowledged) >= unacknowledged_max or self._batches is None:
                return None
            made = next(self._batches, None)
            if made is None:
                self._batches = None
                return None
            self._unacknowledged.append(_Batch(made, read_header(made).record_count))
        batch = self._unacknowledged[self._sent]
        self._sent += 1
        self.in_flight += 1
        return batch

    def acknowledged(self, batch: _Batch, base_offset: int) -> None:
        """The broker has acknowledged a batch."""
        self.in_flight -= 1
        if not self._unacknowledged or self._unacknowledged[0] is not batch:
            # An earlier batch has failed, and this one had no sequence: it is sent again, too.
            self._failed = True
            return
        self._unacknowledged.popleft()
        self._sent -= 1
        self.records += batch.records
        if self.first_offset < 0:
            self.first_offset = base_offset

    def failed(self) -> None:
        """A batch has failed: send it again, with all later ones."""
        self.in_flight -= 1
        self._failed = True


class ArrowProducer:
    """Writes tables to topics. Opened by `open`; not for concurrent use."""

    def __init__(
        self, cluster: Cluster, settings: ProducerSettings, *, now_ms: Callable[[], int]
    ) -> None:
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = -1
        self._cluster = cluster
        self._settings = settings
        self._now_ms = now_ms
        self._sequences: dict[TopicPartition, int] = {}
        self._in_transaction = False
        self._added: set[TopicPartition] = set()
        self._has_offsets = False
        self._has_gap = False
        self._turn = random.randrange(1 << 20)  # the first partition of rows without a key

    @classmethod
    async def open(
        cls,
        cluster: Cluster,
        settings: ProducerSettings | None = None,
        *,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> "ArrowProducer":
        """A producer with its producer id; fences earlier producers with the same transactional id.

        Raises:
            ApiError: the cluster refuses a producer id.
        """
        producer = cls(cluster, settings or ProducerSettings(), now_ms=now_ms)
        if producer._settings.idempotent or producer._settings.transactional_id is not None:
            await producer._initialise()
        return producer

    # ----------------------------------------------------------------------------- rows

    async def send(
        self, topic: str, table: pa.Table | pa.RecordBatch
    ) -> dict[TopicPartition, Written]:
        """Write the rows and wait until all are acknowledged.

        Raises:
            ApiError: a broker refuses permanently, or the delivery time-out has passed.
            UnknownTopicError: the topic does not exist.
            PartitionError, ColumnError: invalid rows; nothing was written.
        """
        if self._settings.transactional_id is not None and not self._in_transaction:
            raise ProducerStateError("send outside of a transaction: call begin() first")
        if self._has_gap:
            raise ProducerStateError("a send has failed, its sequence has a gap: open another one")
        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        rows = normalized(table, now_ms=self._now_ms())
        count = len((await partitions_by_topic(self._cluster, [topic], creating=True))[topic])
        lines = [
            _Line(partition, self._batches(partition, part))
            for partition, part in self._by_partition(topic, rows, count)
        ]
        if self._in_transaction:
            await self._add_partitions([line.partition for line in lines])
        self._has_gap = self.producer_id != NO_PRODUCER_ID
        await _Delivery(self._cluster, self._settings, lines).run()
        self._has_gap = False
        return {line.partition: Written(line.first_offset, line.records) for line in lines}

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

    def _batches(self, partition: TopicPartition, rows: pa.Table) -> Iterator[bytearray]:
        settings = BatchSettings(
            batch_bytes=self._settings.batch_bytes,
            request_bytes_max=self._settings.request_bytes_max,
            codec=self._settings.codec,
            levels=self._settings.levels,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            transactional=self._settings.transactional_id is not None,
        )
        sequence = NO_SEQUENCE
        if self.producer_id != NO_PRODUCER_ID:
            sequence = self._sequences.get(partition, 0)
            self._sequences[partition] = (sequence + rows.num_rows) & SEQUENCE_MAX
        return encode_partition(rows, settings, base_sequence=sequence)

    # --------------------------------------------------------------------- transactions

    async def begin(self) -> None:
        if self._settings.transactional_id is None or self._in_transaction:
            raise ProducerStateError("begin() needs a transactional id, and no open transaction")
        self._in_transaction = True
        self._added.clear()
        self._has_offsets = False

    async def commit(self) -> None:
        """Commit the transaction."""
        await self._end(committed=True)

    async def abort(self) -> None:
        """Abort the transaction."""
        await self._end(committed=False)

    async def send_offsets(
        self, group: str, offsets: Mapping[TopicPartition, tuple[int, str | None]]
    ) -> None:
        """Commit offsets of a group, each with its metadata, in the transaction.

        Raises:
            ApiError: refused; the transaction has to be aborted.
        """
        name = self._transaction()
        request = AddOffsetsToTxnRequest(
            transactional_id=name,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            group_id=group,
        )

        async def add(connection: Connection) -> None:
            answer = await connection.request(request, AddOffsetsToTxnResponse)
            _check(answer.error_code, f"offsets of {group} into transaction {name}")

        await coordinated(self._cluster, TRANSACTION_COORDINATOR, name, add)
        self._has_offsets = True
        topics: dict[str, TxnOffsetCommitRequestTopic] = {}
        for partition, (offset, metadata) in offsets.items():
            topic = topics.setdefault(
                partition.topic, TxnOffsetCommitRequestTopic(name=partition.topic)
            )
            topic.partitions.append(
                TxnOffsetCommitRequestPartition(
                    partition_index=partition.partition,
                    committed_offset=offset,
                    committed_metadata=metadata,
                )
            )
        commit = TxnOffsetCommitRequest(
            transactional_id=name,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            topics=list(topics.values()),
        )

        async def send(connection: Connection) -> None:
            answer = await connection.request(commit, TxnOffsetCommitResponse)
            for result in answer.topics:
                for each in result.partitions:
                    _check(
                        each.error_code,
                        f"offset of {result.name}-{each.partition_index} under {group}",
                    )

        await coordinated(self._cluster, GROUP_COORDINATOR, group, send)

    def _transaction(self) -> str:
        if self._settings.transactional_id is None or not self._in_transaction:
            raise ProducerStateError("there is no open transaction: call begin() first")
        return self._settings.transactional_id

    async def _initialise(self) -> None:
        name = self._settings.transactional_id
        request = InitProducerIdRequest(
            transactional_id=name,
            transaction_timeout_ms=self._settings.transaction_timeout_ms
            if name is not None
            else 0x7FFFFFFF,
        )

        async def ask(connection: Connection) -> None:
            answer = await connection.request(request, InitProducerIdResponse)
            _check(answer.error_code, f"a producer id for {name or 'an idempotent producer'}")
            self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch

        if name is not None:
            await coordinated(self._cluster, TRANSACTION_COORDINATOR, name, ask)
            return

        async def ask_any() -> None:
            answer = await self._cluster.refresh(())
            await ask(await self._cluster.broker(min(each.node_id for each in answer.brokers)))

        await retried(self._cluster, "a producer id", ask_any)

    async def _add_partitions(self, partitions: list[TopicPartition]) -> None:
        new = [partition for partition in partitions if partition not in self._added]
        if not new:
            return
        name = self._transaction()
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for partition in new:
            topic = topics.setdefault(
                partition.topic, AddPartitionsToTxnTopic(name=partition.topic)
            )
            topic.partitions.append(partition.partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.producer_epoch,
            v3_and_below_topics=list(topics.values()),
        )

        async def add(connection: Connection) -> None:
            answer = await connection.request(
                request, AddPartitionsToTxnResponse, version_max=_ADD_PARTITIONS_VERSION
            )
            for result in answer.results_by_topic_v3_and_below:
                for each in result.results_by_partition:
                    _check(
                        each.partition_error_code,
                        f"{result.name}-{each.partition_index} into transaction {name}",
                    )

        await coordinated(self._cluster, TRANSACTION_COORDINATOR, name, add)
        self._added.update(new)

    async def _end(self, *, committed: bool) -> None:
        name = self._transaction()
        if self._added or self._has_offsets:
            producer = self.producer_id, self.producer_epoch
            await end_transaction(self._cluster, name, producer, committed=committed)
        self._in_transaction = False


class _Delivery:
    """Sends the batches of all partitions until all are acknowledged."""

    def __init__(self, cluster: Cluster, settings: ProducerSettings, lines: list[_Line]) -> None:
        self._cluster = cluster
        self._settings = settings
        self._lines = deque(lines)
        self._patience = Patience(settings.delivery_timeout_ms)
        self._under_way: dict[asyncio.Task[None], int] = {}
        self._pause = False

    async def run(self) -> None:
        try:
            while not all(line.is_done for line in self._lines):
                sent = self._send()
                if self._under_way:
                    done, _ = await asyncio.wait(
                        self._under_way, return_when=asyncio.FIRST_COMPLETED
                    )
                    for task in done:
                        del self._under_way[task]
                        task.result()
                elif not sent and not all(line.is_done for line in self._lines):
                    await self._look(
                        ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{self._stuck()} has no leader")
                    )
        finally:
            for task in self._under_way:
                task.cancel()
            await asyncio.gather(*self._under_way, return_exceptions=True)

    def _stuck(self) -> TopicPartition:
        return next(line.partition for line in self._lines if not line.is_done)

    def _send(self) -> bool:
        """Fill the requests that may be in flight to each leader."""
        self._lines.rotate(-1)
        by_leader: dict[int, list[_Line]] = {}
        for line in self._lines:
            leader = self._cluster.metadata.leader(line.partition)
            if not line.is_done and leader != NO_LEADER:
                by_leader.setdefault(leader, []).append(line)
        sent = False
        for leader, lines in by_leader.items():
            under_way = sum(1 for each in self._under_way.values() if each == leader)
            while under_way < _IN_FLIGHT_MAX and (pieces := self._pieces(lines)):
                task = asyncio.get_running_loop().create_task(self._produce(leader, pieces))
                self._under_way[task] = leader
                under_way += 1
                sent = True
        return sent

    def _pieces(self, lines: list[_Line]) -> list[tuple[_Line, _Batch]]:
        """At most one batch of each partition, as many as fit into one request."""
        window = self._settings.unacknowledged_max
        if not (self._settings.idempotent or self._settings.transactional_id is not None):
            window = 1  # without sequences, more in flight could be reordered
        room = self._settings.request_bytes_max
        pieces = []
        for line in lines:
            if room <= 0:
                break
            batch = line.to_send(window)
            if batch is not None:
                pieces.append((line, batch))
                room -= len(batch.data)
        return pieces

    async def _produce(self, leader: int, pieces: list[tuple[_Line, _Batch]]) -> None:
        topics: dict[str, TopicProduceData] = {}
        by_name = {}
        for line, batch in pieces:
            name = line.partition
            topic = topics.setdefault(name.topic, TopicProduceData(name=name.topic))
            topic.partition_data.append(
                PartitionProduceData(index=name.partition, records=batch.data)
            )
            by_name[name] = line, batch
        request = ProduceRequest(
            transactional_id=self._settings.transactional_id,
            acks=self._settings.acks,
            timeout_ms=self._cluster.settings.request_timeout_ms,
            topic_data=list(topics.values()),
        )
        try:
            connection = await self._cluster.broker(leader)
            answer = await connection.request(request, ProduceResponse)
        except (ApiError, ConnectionError) as error:
            for line, _ in pieces:
                line.failed()
            await self._look(error)
            return
        failure: ApiError | None = None
        for topic_answer in answer.responses:
            for result in topic_answer.partition_responses:
                line, batch = by_name[TopicPartition(topic_answer.name, result.index)]
                failure = self._outcome(line, batch, result) or failure
        if failure is not None:
            await self._look(failure)

    def _outcome(
        self, line: _Line, batch: _Batch, result: PartitionProduceResponse
    ) -> ApiError | None:
        code = ErrorCode(result.error_code)
        if code is ErrorCode.NONE or code in _DONE_BEFORE:
            line.acknowledged(batch, result.base_offset)
            self._patience.reward()
            return None
        behind = code in _BEHIND_A_FAILURE and line.in_flight > 0
        line.failed()
        message = f"{line.partition}: {result.error_message or code.name}"
        return None if behind else ApiError(code, message)

    async def _look(self, error: Exception) -> None:
        """Refresh the leaders after an error, after a pause.

        Raises:
            ApiError, ConnectionError: permanent, or lasting for the delivery time-out.
        """
        passes = may_pass(error) or (
            isinstance(error, ApiError) and error.code in _BEHIND_A_FAILURE
        )
        if not passes or not await self._patience.once_more():
            raise error
        await retried(
            self._cluster,
            "the leaders",
            lambda: self._cluster.refresh({line.partition.topic for line in self._lines}),
        )


def _check(code: int, what: str) -> None:
    if code:
        raise ApiError(ErrorCode(code), what)


async def end_transaction(
    cluster: Cluster, name: str, producer: tuple[int, int], *, committed: bool
) -> None:
    """Commit or abort a transaction that its producer left open; `producer` is its id and epoch.

    Raises:
        ApiError: refused: the producer is fenced, or the transaction has timed out.
    """
    request = EndTxnRequest(
        transactional_id=name,
        producer_id=producer[0],
        producer_epoch=producer[1],
        committed=committed,
    )

    async def end(connection: Connection) -> None:
        answer = await connection.request(request, EndTxnResponse, version_max=_END_VERSION)
        _check(answer.error_code, f"{'commit' if committed else 'abort'} of transaction {name}")

    await coordinated(cluster, TRANSACTION_COORDINATOR, name, end)
