"""Streaming writes: `df.writeStream.format("odradek")`; see also `writer`.

When a batch fails, the driver initialises the transactional ids of its tasks, which aborts their
open transactions, so that read_committed readers need not wait for `transaction.timeout.ms`.
PySpark does not pass the query's id to the driver's side; it is known from tasks that finished, or
from the checkpoint.
"""

import json
import logging
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from odradek.client.admin.groups import committed_offsets
from odradek.client.group.offsets import GroupMetadata, OffsetAndMetadata
from odradek.model.errors import OdradekError
from odradek.model.partition import TopicPartition
from odradek.spark.connections import CONNECTIONS
from odradek.spark.fingerprint import Fingerprinted, fingerprint
from odradek.spark.options import WriteOptions
from odradek.spark.writer import (
    Batches,
    TaskDone,
    WriteError,
    check_schema,
    commit_all,
    open_transactional,
    producer_settings,
    send_in_transaction,
    topic_of_first,
    write_plainly,
)

_log = logging.getLogger("odradek.spark")


class StreamTopicWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]  # likewise
    """Writes the batches of a streaming query."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_schema(options, schema)
        self._options = options
        self._settings = producer_settings(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """One task's rows of one batch."""
        if not self._options.exactly_once:
            return TaskDone(write_plainly(self._options, self._settings, iterator))
        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        if query is None or batch is None:
            raise WriteError("exactlyOnce: this PySpark does not pass the query and batch to tasks")
        name = self._name(query, context.partitionId())
        done = self.write_once(iterator, name, int(batch))
        done.query = query
        return done

    def write_once(self, iterator: Iterator[pa.RecordBatch], name: str, batch: int) -> TaskDone:
        """Write a task's rows in a transaction that stays open, unless they were committed before.

        `name` is the task's transactional id and group. Raises WriteError, see `check_same_rows`.
        """
        batches = Batches(iterator)
        if batches.first is None:
            return TaskDone(0)
        # The batch's number is committed as the offset of an existing partition: partition 0 of
        # the first row's topic. Another order of rows may give another topic, so every
        # committed offset of the group is read.
        mark = TopicPartition(topic_of_first(batches.first, self._options), 0)
        producer = open_transactional(self._options, self._settings, name)
        cluster = CONNECTIONS.cluster(self._options.kafka, self._options.subject)
        marks = CONNECTIONS.run(committed_offsets(cluster, name, stable=True))
        done, written = max(((m.offset, m.metadata) for m in marks.values()), default=(-1, ""))
        if done == batch and written:
            check_same_rows(batch, written, fingerprint(batches))
        if done >= batch:
            return TaskDone(0)
        rows = Fingerprinted(batches)
        count = send_in_transaction(self._options, producer, rows)
        offsets = {mark: OffsetAndMetadata(batch, metadata=str(rows))}
        CONNECTIONS.run(producer.send_offsets(offsets, GroupMetadata(name)))
        return TaskDone(count, producer.open_transaction)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, ARG002
        """Every task is done: commit their transactions, each with the batch's number in it."""
        commit_all(self._options, self._settings, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """The batch failed: abort the tasks' open transactions, if possible.

        Spark has failed the batch already. So an error here is logged and does not hide the
        cause; a restart of the query, or the broker's time-out, aborts them later.
        """
        if not self._options.exactly_once:
            return
        query = _query_of(messages) or query_of_checkpoint(self._options.checkpoint)
        if query is None:
            _log.warning("batch %d failed; transactions that its tasks left open end by time-out: "
                         "the checkpoint does not have the query's id", batchId)  # fmt: skip
            return
        for task in range(len(messages)):
            try:
                open_transactional(self._options, self._settings, self._name(query, task))
            except (OdradekError, ConnectionError) as error:
                _log.warning("batch %d, task %d: not aborted: %s", batchId, task, error)

    def _name(self, query: str, task: int) -> str:
        return f"{self._options.transactional_id_prefix}-{query}-{task}"


def check_same_rows(batch: int, written: str, given: str) -> None:
    """Check that a repeated task of a committed batch has the rows that it wrote before.

    Raises:
        WriteError: it has others; some rows would be written twice or never.
    """
    if written != given:
        raise WriteError(
            f"exactlyOnce: this task of batch {batch} wrote {written}, and is repeated with "
            f"{given}. Other options or another plan give the tasks of the batch other rows. Start "
            "the query with those it had (minPartitions, maxRecordsPerPartition, "
            "spark.sql.shuffle.partitions); they may change when the batch is done"
        )


def _query_of(messages: Sequence[WriterCommitMessage | None]) -> str | None:
    done = (message for message in messages if isinstance(message, TaskDone))
    return next((message.query for message in done if message.query), None)


def query_of_checkpoint(checkpoint: str | None) -> str | None:
    """The id of the query with this checkpoint; None if this process cannot read it."""
    if checkpoint is None:
        return None
    from pyarrow import fs  # noqa: PLC0415  who has failed has time

    place = f"{checkpoint.rstrip('/')}/metadata"
    try:
        if ":" in place:
            files, path = fs.FileSystem.from_uri(place)
        else:
            files, path = fs.LocalFileSystem(), place
        with files.open_input_stream(path) as stream:
            return str(json.loads(stream.read())["id"])
    except (OSError, ValueError, KeyError, NotImplementedError) as error:
        _log.warning("checkpoint %s: %s", checkpoint, error)
        return None
