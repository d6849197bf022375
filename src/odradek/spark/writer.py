"""Writing: `df.write.format("odradek")`, `writeStream.format("odradek")`.

Columns as the connector takes them: `value` (string or binary), and if there are any `key`,
`topic`, `headers`, `partition`. Rows without a topic go to the option `topic`.

Without `exactlyOnce` a task that is repeated writes its rows again, as with the connector. With it
every task writes in a transaction:

    batch       tasks leave their transactions open, and the driver commits them when all are
                done. A job that fails leaves nothing that read_committed would see. A task that
                begins after it was given up finds the transactional id PREFIX-JOB-aborted.
    streaming   the same for each batch, with transactional id PREFIX-QUERY-TASK. The batch's
                number is an offset of group PREFIX-QUERY-TASK, in the same transaction. A task
                that is repeated after its commit finds the number there and writes nothing; one
                that was not committed is fenced, and what it wrote is aborted.

A task must not commit by itself: when what feeds it dies, its rows just seem to end, and only the
driver knows better.

So the rows of a batch must go to the same tasks when it is repeated: Spark does that, as long as
nothing in the query is random.
"""

import asyncio
import logging
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from odradek.client.arrow.partition import flat
from odradek.client.arrow.produce import ArrowProducer, ProducerSettings, end_transaction
from odradek.client.producer.settings import PRODUCER
from odradek.model.errors import OdradekError
from odradek.record.compression import Codec
from odradek.spark.connections import CONNECTIONS
from odradek.spark.options import OptionError, WriteOptions, client_values, number

# Rows are sent while the next ones are awaited from Spark; so much at once.
_SEND_BYTES: Final = 8 << 20
_BATCH_BYTES_MIN: Final = 1 << 10
# So many transactions are committed at a time.
_COMMITS_MAX: Final = 16
# A task may take as long as brokers allow a transaction to be open.
_TRANSACTION_TIMEOUT_MS: Final = 900_000
# In place of a task's number: nobody writes under it; that it is known says it all.
_GIVEN_UP: Final = "aborted"
_ACKS: Final = {"all": -1, "-1": -1, "1": 1, "0": 0}
_TAKEN: Final = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}


_log = logging.getLogger("odradek.spark")


class WriteError(OdradekError):
    """Rows that cannot be written."""


@dataclass
class TaskDone(WriterCommitMessage):  # type: ignore[misc]  # pyspark is not typed for us
    """What a task tells the driver: how many rows, the transaction it left open, its query."""

    rows: int
    transaction: tuple[str, int, int] | None = None  # its id, producer id, producer epoch
    query: str | None = None  # of a stream


class TopicWriter(DataSourceArrowWriter):  # type: ignore[misc]  # pyspark is not typed for us
    """A batch write."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_schema(options, schema)
        self._options = options
        self._settings = producer_settings(options)
        self._job = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        if not self._options.exactly_once:
            return TaskDone(write_plainly(self._options, self._settings, iterator))
        batches = Batches(iterator)
        if batches.first is None:
            return TaskDone(0)
        name = self._name(TaskContext.get().partitionId())
        producer = open_transactional(self._options, self._settings, name)
        # After that: a job that is given up from here on takes the transaction away.
        if self._is_given_up():
            raise WriteError("the job was given up before this task had begun: nothing is written")
        rows = send_in_transaction(self._options, producer, batches)
        return left_open(rows, producer, name)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks are done: their transactions count."""
        commit_all(self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """The job failed: nothing counts, also of tasks that died and could not say so.

        Whoever takes a transactional id aborts what its last owner left open. Else readers of
        what is committed would wait for those transactions until their time is up. Tasks that
        begin only now are told first: theirs would be opened behind our back.
        """
        if self._options.exactly_once:
            for task in (_GIVEN_UP, *range(len(messages))):
                open_transactional(self._options, self._settings, self._name(task))

    def _is_given_up(self) -> bool:
        cluster = CONNECTIONS.cluster(self._options.kafka, self._options.subject)
        return CONNECTIONS.run(cluster.knows_transactional_id(self._name(_GIVEN_UP)))

    def _name(self, task: int | str) -> str:
        return f"{self._options.transactional_id_prefix}-{self._job}-{task}"


# ---------------------------------------------------------------------------------- options


def check_schema(options: WriteOptions, schema: StructType) -> None:
    """Refuse columns that records cannot hold, in the connector's words.

    Raises:
        OptionError: names the column, its type and what it must be.
    """
    types = {field.name: field.dataType.simpleString() for field in schema}
    if "value" not in types:
        raise OptionError("Required attribute 'value' not found.")
    if options.topic is None and "topic" not in types:
        raise OptionError(
            "topic option required when no 'topic' attribute is present. Use the topic option for "
            "setting a topic."
        )
    for name, kind in types.items():
        # Columns under other names are not written, as with the connector.
        allowed = _TAKEN.get(name, (kind,))
        if kind not in allowed:
            raise OptionError(f"{name} attribute unsupported type {kind}; must be a "
                              f"{' or '.join(allowed)}")  # fmt: skip


def producer_settings(options: WriteOptions) -> ProducerSettings:
    """The client's properties, and ours where they say nothing.

    Raises:
        OptionError: a value that its property does not take.
    """
    kafka = options.kafka
    values = client_values(PRODUCER, kafka)
    acks = _ACKS[values["acks"]]
    if options.exactly_once and acks != -1:
        raise OptionError(f"kafka.acks={values['acks']}: must be all with exactlyOnce")
    batch_bytes = number(kafka, "batch.size", 256 << 10)
    if batch_bytes < _BATCH_BYTES_MIN:
        _log.warning("kafka.batch.size=%d: batches of up to %d bytes are written; rows that are "
                     "columns come many at a time", batch_bytes, _BATCH_BYTES_MIN)  # fmt: skip
        batch_bytes = _BATCH_BYTES_MIN
    return ProducerSettings(
        acks=acks,
        idempotent=values["enable.idempotence"] and acks == -1,
        codec=Codec[values["compression.type"].upper()],
        batch_bytes=batch_bytes,
        request_bytes_max=values["max.request.size"],
        delivery_timeout_ms=values["delivery.timeout.ms"],
        transaction_timeout_ms=number(kafka, "transaction.timeout.ms", _TRANSACTION_TIMEOUT_MS),
    )


# -------------------------------------------------------------------------------- the tasks


class Batches(Iterator[pa.RecordBatch]):
    """The batches that have rows; `first` may be looked at before it is taken.

    None is kept that was taken: Spark makes them of up to 64 MiB.
    """

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = filter(lambda batch: batch.num_rows, batches)
        self.first: pa.RecordBatch | None = next(self._batches, None)

    def __next__(self) -> pa.RecordBatch:
        if self.first is None:
            return next(self._batches)
        first, self.first = self.first, None
        return first


def write_plainly(
    options: WriteOptions, settings: ProducerSettings, iterator: Iterator[pa.RecordBatch]
) -> int:
    """One task's rows, without a transaction; how many."""
    batches = Batches(iterator)
    if batches.first is None:
        return 0
    cluster = CONNECTIONS.cluster(options.kafka, options.subject)
    producer = CONNECTIONS.run(ArrowProducer.open(cluster, settings))
    return _send(options, producer, batches)


def left_open(rows: int, producer: ArrowProducer, name: str) -> TaskDone:
    """What a task says that leaves its transaction to the driver."""
    return TaskDone(rows, (name, producer.producer_id, producer.producer_epoch))


def commit_all(options: WriteOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Commit the transactions that tasks left open, some at a time.

    Raises:
        ApiError, ConnectionError: one cannot be committed; others may be.
    """
    done = [message for message in messages if isinstance(message, TaskDone)]
    transactions = [each.transaction for each in done if each.transaction is not None]
    if not transactions:
        return
    cluster = CONNECTIONS.cluster(options.kafka, options.subject)

    async def commit() -> None:
        room = asyncio.Semaphore(_COMMITS_MAX)

        async def one(name: str, producer_id: int, producer_epoch: int) -> None:
            async with room:
                producer = producer_id, producer_epoch
                await end_transaction(cluster, name, producer, committed=True)

        await asyncio.gather(*(one(*transaction) for transaction in transactions))

    CONNECTIONS.run(commit())


def open_transactional(
    options: WriteOptions, settings: ProducerSettings, name: str
) -> ArrowProducer:
    """A producer of this transactional id; whoever had it before is fenced."""
    cluster = CONNECTIONS.cluster(options.kafka, options.subject)
    return CONNECTIONS.run(ArrowProducer.open(cluster, settings.with_transaction(name)))


def send_in_transaction(
    options: WriteOptions, producer: ArrowProducer, batches: Iterator[pa.RecordBatch]
) -> int:
    """Rows in a new transaction, which stays open if all went well; how many."""
    CONNECTIONS.run(producer.begin())
    try:
        return _send(options, producer, batches)
    except BaseException:
        try:
            CONNECTIONS.run(producer.abort())
        except (OdradekError, ConnectionError) as error:
            _log.warning("%s: not aborted: %s", options.subject, error)
        raise


def _send(options: WriteOptions, producer: ArrowProducer, batches: Iterator[pa.RecordBatch]) -> int:
    """Send piece after piece, one under way while the next is gathered."""
    rows = 0
    under_way: Future[None] | None = None
    try:
        for piece in _pieces(batches):
            rows += piece.num_rows
            if under_way is not None:
                under_way.result()
            under_way = CONNECTIONS.thread.submit(_send_piece(options, producer, piece))
    finally:
        # Also if the rows end in an error: nothing may be under way when it is aborted.
        if under_way is not None:
            wait([under_way])
    if under_way is not None:
        under_way.result()
    return rows


async def _send_piece(options: WriteOptions, producer: ArrowProducer, piece: pa.Table) -> None:
    for topic, rows in _by_topic(options, piece):
        await producer.send(topic, rows)


def _pieces(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    gathered: list[pa.RecordBatch] = []
    size = 0
    for whole in batches:
        for batch in _parts(whole):
            gathered.append(batch)
            size += batch.nbytes
            if size >= _SEND_BYTES:
                yield pa.Table.from_batches(gathered)
                gathered, size = [], 0
    if gathered:
        yield pa.Table.from_batches(gathered)


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Spark hands over thousands of rows, however large: no more than so much is copied at once."""
    rows = batch.num_rows
    at_once = max(1, rows * _SEND_BYTES // max(1, batch.nbytes))
    for start in range(0, rows, at_once):
        yield batch.slice(start, at_once)


def _by_topic(options: WriteOptions, piece: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    if options.topic is not None or "topic" not in piece.column_names:
        # The option wins over the column, as in the connector.
        assert options.topic is not None
        rows = piece.drop_columns(["topic"]) if "topic" in piece.column_names else piece
        yield options.topic, rows
        return
    topics = flat(piece.column("topic"))
    if topics.null_count:
        raise WriteError(
            "null topic present in the data. Use the topic option for setting a default topic."
        )
    rows = piece.drop_columns(["topic"])
    for topic in pc.unique(topics).to_pylist():
        yield topic, rows.filter(pc.equal(topics, topic))


def topic_of_first(batch: pa.RecordBatch, options: WriteOptions) -> str:
    """The topic of the first row.

    Raises:
        WriteError: it has none.
    """
    if options.topic is not None:
        return options.topic
    topic = batch.column("topic")[0].as_py()
    if topic is None:
        raise WriteError(
            "null topic present in the data. Use the topic option for setting a default topic."
        )
    return str(topic)
