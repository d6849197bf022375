"""Writing: `df.write.format("odradek")`, `writeStream.format("odradek")`.

Columns as in the connector: `value` (string or binary), and optionally `key`, `topic`, `headers`,
`partition`. Rows without a topic go to the option `topic`.

Without `exactlyOnce` a repeated task writes its rows again, as with the connector. With it every
task writes in a transaction:

    batch       tasks leave their transactions open, and the driver commits them when all are
                done. A job that fails leaves nothing that read_committed reads. A task that begins
                after the job was aborted finds the transactional id PREFIX-JOB-aborted.
    streaming   the same for each batch, with transactional id PREFIX-QUERY-TASK. Before it commits,
                the driver writes down the batch's transactions (`decisions`). A batch that is
                repeated before that fences and aborts what its former tasks wrote; one that is
                repeated afterwards writes nothing.

A task must not commit by itself: when its input fails, its rows seem to end normally, and only
the driver has the failure.

A repeated batch must have the same rows, in any order and in any tasks: Spark does that, unless the
query is not deterministic.
"""

import asyncio
import logging
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from odradek.client.admin.groups import knows_transactional_id
from odradek.client.arrow.partition import flat
from odradek.client.arrow.produce import ArrowProducer, ArrowProducerSettings, end_left_open
from odradek.client.producer.settings import PRODUCER, ProducerSettings
from odradek.client.producer.transactions import OpenTransaction
from odradek.model.errors import ApiError, ErrorCode, OdradekError
from odradek.record.compression import Codec
from odradek.spark.connections import CONNECTIONS
from odradek.spark.options import OptionError, WriteOptions, client_values, number

# The size of a send; it is in flight while the next rows arrive from Spark.
_SEND_BYTES: Final = 8 << 20
_BATCH_BYTES_MIN: Final = 1 << 10
# The number of transactions committed at the same time.
_COMMITS_MAX: Final = 16
# The default transaction.max.timeout.ms of brokers: the longest time of a task.
_TRANSACTION_TIMEOUT_MS: Final = 900_000
# In place of a task's number: no task writes with this id; its existence marks an aborted job.
_GIVEN_UP: Final = "aborted"
# The errors of EndTxn for a transaction that is not open any more.
_HAS_ENDED: Final = (
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
)
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
    """Rows cannot be written; the text has the reason."""


@dataclass
class TaskDone(WriterCommitMessage):  # type: ignore[misc]  # pyspark is not typed for us
    """A task's message to the driver: the number of rows it wrote, and its open transaction."""

    rows: int
    transaction: OpenTransaction | None = None


class TopicWriter(DataSourceArrowWriter):  # type: ignore[misc]  # pyspark is not typed for us
    """Writes the rows of a batch query."""

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
        # Checked after init: a job aborted from here on fences this transactional id.
        if self._is_given_up():
            raise WriteError("the job was aborted before this task began: nothing is written")
        rows = send_in_transaction(self._options, producer, batches)
        return TaskDone(rows, producer.open_transaction)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks are done: commit their transactions.

        Raises:
            OdradekError, ConnectionError: one cannot be committed; others may have been.
        """
        done = [message for message in messages if isinstance(message, TaskDone)]
        transactions = [each.transaction for each in done if each.transaction is not None]
        for error in end_all(self._options, self._settings, transactions, commit=True).values():
            raise error

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """The job failed: abort all open transactions, also those of tasks that were killed.

        Initialising a transactional id aborts its open transaction; otherwise read_committed
        readers would wait until it times out. The mark for tasks that begin only now is written
        first, because they would open transactions afterwards.
        """
        if self._options.exactly_once:
            for task in (_GIVEN_UP, *range(len(messages))):
                open_transactional(self._options, self._settings, self._name(task))

    def _is_given_up(self) -> bool:
        cluster = CONNECTIONS.cluster(self._options.kafka, self._options.subject)
        return CONNECTIONS.run(knows_transactional_id(cluster, self._name(_GIVEN_UP)))

    def _name(self, task: int | str) -> str:
        return f"{self._options.transactional_id_prefix}-{self._job}-{task}"


# ---------------------------------------------------------------------------------- options


def check_schema(options: WriteOptions, schema: StructType) -> None:
    """Refuse columns that records cannot hold, in the connector's words.

    Raises:
        OptionError: with the column, its type and the allowed ones.
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
        # Other columns are not written, as with the connector.
        allowed = _TAKEN.get(name, (kind,))
        if kind not in allowed:
            raise OptionError(f"{name} attribute unsupported type {kind}; must be a "
                              f"{' or '.join(allowed)}")  # fmt: skip


def producer_settings(options: WriteOptions) -> ProducerSettings:
    """The client's properties, with our defaults.

    Raises:
        OptionError: a property has an invalid value.
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
    return ArrowProducerSettings(
        acks=acks,
        is_idempotent=values["enable.idempotence"] and acks == -1,
        codec=Codec[values["compression.type"].upper()],
        batch_bytes=batch_bytes,
        request_bytes_max=values["max.request.size"],
        block_ms_max=values["max.block.ms"],
        delivery_timeout_ms=values["delivery.timeout.ms"],
        transaction_timeout_ms=number(kafka, "transaction.timeout.ms", _TRANSACTION_TIMEOUT_MS),
    )


# -------------------------------------------------------------------------------- the tasks


class Batches(Iterator[pa.RecordBatch]):
    """The batches that have rows; `first` can be read before it is consumed.

    A consumed batch is not kept, because Spark's batches have up to 64 MiB.
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
    """Write one task's rows without a transaction. Returns their number."""
    batches = Batches(iterator)
    if batches.first is None:
        return 0
    cluster = CONNECTIONS.cluster(options.kafka, options.subject)
    producer = CONNECTIONS.run(ArrowProducer.open(cluster, settings))
    return _send(options, producer, batches)


def end_all(
    options: WriteOptions,
    settings: ProducerSettings,
    transactions: Sequence[OpenTransaction],
    *,
    commit: bool,
) -> dict[OpenTransaction, ApiError]:
    """Commit or abort open transactions, `_COMMITS_MAX` at a time.

    Returns those that have ended already, with the coordinator's error, by which it cannot be told
    how they have ended.

    Raises:
        OdradekError, ConnectionError: one cannot be ended for another reason; others may have been.
    """
    if not transactions:
        return {}
    cluster = CONNECTIONS.cluster(options.kafka, options.subject)
    have_ended = {}

    async def end() -> None:
        room = asyncio.Semaphore(_COMMITS_MAX)

        async def one(transaction: OpenTransaction) -> None:
            async with room:
                try:
                    await end_left_open(cluster, settings, transaction, commit=commit)
                except ApiError as error:
                    if error.code not in _HAS_ENDED:
                        raise
                    have_ended[transaction] = error

        await asyncio.gather(*map(one, transactions))

    CONNECTIONS.run(end())
    return have_ended


def open_transactional(
    options: WriteOptions, settings: ProducerSettings, name: str
) -> ArrowProducer:
    """A producer with this transactional id; earlier producers are fenced."""
    cluster = CONNECTIONS.cluster(options.kafka, options.subject)
    settings = replace(settings, transactional_id=name, is_idempotent=True)
    return CONNECTIONS.run(ArrowProducer.open(cluster, settings))


def send_in_transaction(
    options: WriteOptions, producer: ArrowProducer, batches: Iterator[pa.RecordBatch]
) -> int:
    """Write rows in a new transaction, which stays open on success. Returns their number."""
    producer.begin_transaction()
    try:
        return _send(options, producer, batches)
    except BaseException:
        try:
            CONNECTIONS.run(producer.abort_transaction())
        except (OdradekError, ConnectionError) as error:
            _log.warning("%s: not aborted: %s", options.subject, error)
        raise


def _send(options: WriteOptions, producer: ArrowProducer, batches: Iterator[pa.RecordBatch]) -> int:
    """Send piece after piece, one in flight while the next is collected."""
    rows = 0
    under_way: Future[None] | None = None
    try:
        for piece in _pieces(batches):
            rows += piece.num_rows
            if under_way is not None:
                under_way.result()
            under_way = CONNECTIONS.thread.submit(_send_piece(options, producer, piece))
    finally:
        # Also after an error of the rows: nothing may be in flight when the transaction is aborted.
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
    """Split a batch, because Spark limits its rows and not its bytes, and each part is copied."""
    rows = batch.num_rows
    at_once = max(1, rows * _SEND_BYTES // max(1, batch.nbytes))
    for start in range(0, rows, at_once):
        yield batch.slice(start, at_once)


def _by_topic(options: WriteOptions, piece: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    if options.topic is not None or "topic" not in piece.column_names:
        # The option has precedence over the column, as in the connector.
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
        WriteError: the row has no topic.
    """
    if options.topic is not None:
        return options.topic
    topic = batch.column("topic")[0].as_py()
    if topic is None:
        raise WriteError(
            "null topic present in the data. Use the topic option for setting a default topic."
        )
    return str(topic)
