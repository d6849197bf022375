"""Streaming writes: `df.writeStream.format("odradek")`. What is written how: `writer`.

A batch that fails for good is cleaned up behind: the driver takes over the transactional ids of
its tasks, which aborts what they left open, so that readers of what is committed need not wait for
`transaction.timeout.ms`. Its part of PySpark is not told the query; so that is known from tasks
that did finish, or from the checkpoint.
"""

import json
import logging
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

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
    left_open,
    open_transactional,
    producer_settings,
    send_in_transaction,
    topic_of_first,
    write_plainly,
)

_log = logging.getLogger("odradek.spark")


class StreamTopicWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]  # likewise
    """A streaming write."""

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
            raise WriteError("exactlyOnce: this PySpark does not tell a task its query and batch")
        name = self._name(query, context.partitionId())
        done = self.write_once(iterator, name, int(batch))
        done.query = query
        return done

    def write_once(self, iterator: Iterator[pa.RecordBatch], name: str, batch: int) -> TaskDone:
        """Write a task's rows in a transaction that stays open, unless they were written before.

        `name` is the task's transactional id and group. Raises WriteError, see `check_same_rows`.
        """
        batches = Batches(iterator)
        if batches.first is None:
            return TaskDone(0)
        # An offset belongs to a partition that exists: the first of a topic that is written to.
        # With another order of rows that is another one, so all offsets of the group are marks.
        mark = TopicPartition(topic_of_first(batches.first, self._options), 0)
        producer = open_transactional(self._options, self._settings, name)
        marks = CONNECTIONS.run(producer.committed_offsets(name))
        done, written = max(marks.values(), default=(-1, ""))
        if done == batch and written:
            check_same_rows(batch, written, fingerprint(batches))
        if done >= batch:
            return TaskDone(0)
        rows = Fingerprinted(batches)
        count = send_in_transaction(self._options, producer, rows)
        CONNECTIONS.run(producer.send_offsets(name, {mark: (batch, str(rows))}))
        return left_open(count, producer, name)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, ARG002
        """Every task is done: their transactions count, each with the batch's number in it."""
        commit_all(self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """The batch failed: what tasks left open is aborted, if it can be.

        Spark has given the batch up already. So what goes wrong here is logged, and hides no
        cause; who takes the query up again, or the broker in time, aborts it then.
        """
        if not self._options.exactly_once:
            return
        query = _query_of(messages) or query_of_checkpoint(self._options.checkpoint)
        if query is None:
            _log.warning("batch %d failed; transactions that its tasks left open end by time-out: "
                         "the checkpoint does not tell the query", batchId)  # fmt: skip
            return
        for task in range(len(messages)):
            try:
                open_transactional(self._options, self._settings, self._name(query, task))
            except (OdradekError, ConnectionError) as error:
                _log.warning("batch %d, task %d: not aborted: %s", batchId, task, error)

    def _name(self, query: str, task: int) -> str:
        return f"{self._options.transactional_id_prefix}-{query}-{task}"


def check_same_rows(batch: int, written: str, given: str) -> None:
    """Whether a task of a batch that was committed has the rows that it wrote then.

    Raises:
        WriteError: it has others, so that some rows would be written twice or never.
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
    """The id of the query that has this checkpoint; None if it cannot be read from here."""
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
