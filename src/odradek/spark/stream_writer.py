"""Streaming writes: `df.writeStream.format("odradek")`. What is written how: `writer`."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from odradek.model.partition import TopicPartition
from odradek.spark.connections import CONNECTIONS
from odradek.spark.options import WriteOptions
from odradek.spark.writer import (
    TaskDone,
    WriteError,
    chain,
    check_schema,
    first_rows,
    open_transactional,
    producer_settings,
    send_in_transaction,
    topic_of_first,
    write_plainly,
)


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
        name = f"{self._options.transactional_id_prefix}-{query}-{context.partitionId()}"
        return TaskDone(self._write_once(iterator, name, int(batch)))

    def _write_once(self, iterator: Iterator[pa.RecordBatch], name: str, batch: int) -> int:
        first = first_rows(iterator)
        if first is None:
            return 0
        # An offset belongs to a partition that exists: the first of the topic written to. Repeated,
        # a batch has the same first row.
        mark = TopicPartition(topic_of_first(first, self._options), 0)
        producer = open_transactional(self._options, self._settings, name)
        done = CONNECTIONS.run(producer.committed_offset(name, mark))
        if done >= batch:
            return 0
        rows = send_in_transaction(self._options, producer, chain(first, iterator))
        CONNECTIONS.run(producer.send_offsets(name, {mark: (batch, None)}))
        CONNECTIONS.run(producer.commit())
        return rows

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Every task has written, and committed by itself."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """A task failed; what it left open is aborted by who repeats it, or by the broker."""
