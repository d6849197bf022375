"""Streaming writes: `df.writeStream.format("odradek")`; see also `writer` and `decisions`.

When a batch fails, the driver initialises the transactional ids of its tasks, which aborts their
open transactions, so that read_committed readers need not wait for `transaction.timeout.ms`.
PySpark does not pass the query's id to the driver's side; it is known from tasks that finished, or
from the checkpoint. PySpark starts a process of its own for each commit and each abort, so nothing
is remembered from one batch to the next but what the cluster has.
"""

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from odradek.client.admin.groups import committed_offsets, list_transactions
from odradek.client.cluster import Cluster
from odradek.client.group.offsets import GroupMetadata, OffsetAndMetadata
from odradek.client.producer.transactions import OpenTransaction
from odradek.model.errors import OdradekError
from odradek.model.partition import TopicPartition
from odradek.spark.connections import CONNECTIONS
from odradek.spark.decisions import (
    BatchDecision,
    CommitPhase,
    QueryNames,
    numbered,
    read_decision,
    read_whole_decision,
    write_decision,
)
from odradek.spark.fingerprint import Fingerprint, Fingerprinted, fingerprint
from odradek.spark.options import WriteOptions
from odradek.spark.writer import (
    Batches,
    TaskDone,
    WriteError,
    check_schema,
    end_all,
    open_transactional,
    producer_settings,
    send_in_transaction,
    topic_of_first,
    write_plainly,
)

_log = logging.getLogger("odradek.spark")
_FORMER_OPTIONS = (
    "the options that the batch was planned with (minPartitions, maxRecordsPerPartition, "
    "spark.sql.shuffle.partitions); they may change when the batch is done"
)


@dataclass
class StreamTaskDone(TaskDone):
    """A task's message to the driver, of a streaming query that writes exactly once.

    `run` is Spark's id of the query's run. `given` is the fingerprint of the task's rows, whether
    it wrote them or not. `key` is partition 0 of the topic of its first row.
    """

    query: str = ""
    run: str = ""
    given: Fingerprint = Fingerprint()
    key: TopicPartition | None = None


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
        done = self.write_once(iterator, query, context.partitionId(), int(batch))
        # A query runs its jobs in a group that is named after the run.
        done.run = context.getLocalProperty("spark.jobGroup.id") or ""
        return done

    def write_once(
        self, iterator: Iterator[pa.RecordBatch], query: str, task: int, batch: int
    ) -> StreamTaskDone:
        """Write a task's rows in a transaction that stays open, unless the batch is decided.

        Raises:
            WriteError: a later batch is decided, or the task has other rows than those that it had
                when it was committed.
        """
        names = self._names(query)
        last = CONNECTIONS.run(read_decision(self._cluster, names))
        if last is not None and last.batch > batch:
            raise WriteError(
                f"exactlyOnce: batch {batch} is to be written, and batch {last.batch} of query "
                f"{query} has been: its checkpoint was set back. Restore the checkpoint, or start "
                "a new query with a checkpoint of its own"
            )
        is_repeated = last is not None and last.batch == batch
        batches = Batches(iterator)
        if last is not None and is_repeated and last.phase is CommitPhase.DECIDED:
            return StreamTaskDone(0, query=query, given=fingerprint(batches))
        if batches.first is None and not is_repeated:
            return StreamTaskDone(0, query=query)
        name = names.of_task(task)
        producer = open_transactional(self._options, self._settings, name)
        if is_repeated:
            mark = self._mark_of(name)
            if mark.offset == batch:
                given = fingerprint(batches)
                check_same_rows(batch, mark.metadata, given)
                return StreamTaskDone(0, query=query, given=given)
            if batches.first is None:
                return StreamTaskDone(0, query=query)
        # The batch's number is committed as the offset of an existing partition, in the
        # transaction: whoever finds the transaction ended can tell from it how it has ended.
        key = TopicPartition(topic_of_first(batches.first, self._options), 0)
        rows = Fingerprinted(batches)
        count = send_in_transaction(self._options, producer, rows)
        offsets = {key: OffsetAndMetadata(batch, metadata=str(rows.so_far))}
        CONNECTIONS.run(producer.send_offsets(offsets, GroupMetadata(name)))
        return StreamTaskDone(
            count, producer.open_transaction, query=query, given=rows.so_far, key=key
        )

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Every task is done: decide that the batch is written, and commit its transactions.

        Raises:
            WriteError: the batch is repeated with other rows, or cannot be repeated with these
                tasks, or some of its transactions have ended without a commit.
            OdradekError, ConnectionError: a broker refuses, or cannot be reached. A repetition of
                the batch commits the rest.
        """
        done = [message for message in messages if isinstance(message, StreamTaskDone)]
        if not done:
            return  # not exactly once, or no tasks
        names = self._names(done[0].query)
        last = CONNECTIONS.run(read_decision(self._cluster, names))
        if last is not None and last.batch == batchId and last.phase is CommitPhase.DECIDED:
            self._repeat(names, done, last)
        else:
            if last is not None and last.batch == batchId and last.tasks != len(messages):
                reason = (
                    f"batch {batchId} was written in part by {last.tasks} tasks, and is repeated "
                    f"with {len(messages)}. Start the query with {_FORMER_OPTIONS}"
                )
                self._refuse(done, reason)
            decision = _decision_of(names, batchId, done, len(messages))
            if decision is not None:
                CONNECTIONS.run(write_decision(self._cluster, names, decision))
                self._carry_out(names, decision)
        if last is None or last.run != done[0].run:
            self._abort_of_former_run(names)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """The batch failed: abort the tasks' open transactions, if possible.

        Those of a decided batch stay open, because others of it may have been committed: the
        repetition of the batch commits them. Spark has failed the batch already. So an error here
        is logged and does not hide the cause; a restart of the query, or the broker's time-out,
        ends them later.
        """
        if not self._options.exactly_once:
            return
        query = _query_of(messages) or query_of_checkpoint(self._options.checkpoint)
        if query is None:
            _log.warning("batch %d failed; transactions that its tasks left open end by time-out: "
                         "the checkpoint does not have the query's id", batchId)  # fmt: skip
            return
        names = self._names(query)
        try:
            last = CONNECTIONS.run(read_decision(self._cluster, names))
        except (OdradekError, ConnectionError) as error:
            _log.warning("batch %d failed; transactions that its tasks left open end by time-out, "
                         "or when the query starts again: %s", batchId, error)  # fmt: skip
            return
        if last is not None and last.batch == batchId and last.phase is CommitPhase.DECIDED:
            _log.warning("batch %d failed while it was being committed; it is committed to its end "
                         "when the query starts again", batchId)  # fmt: skip
            return
        for task in range(len(messages)):
            self._abort_by_name(names.of_task(task))

    @property
    def _cluster(self) -> Cluster:
        return CONNECTIONS.cluster(self._options.kafka, self._options.subject)

    def _names(self, query: str) -> QueryNames:
        return QueryNames(self._options.transactional_id_prefix, query)

    def _mark_of(self, name: str) -> OffsetAndMetadata:
        """The number of the last batch that a task has committed, and the fingerprint of its rows.

        The task's transactional id has been initialised, so no offset of it is pending for long.
        """
        marks = CONNECTIONS.run(committed_offsets(self._cluster, name, stable=True))
        # Each topic that a task's first row was written to has a mark of its own.
        return max(marks.values(), default=OffsetAndMetadata(-1))

    def _repeat(
        self, names: QueryNames, done: Sequence[StreamTaskDone], last: BatchDecision
    ) -> None:
        """A batch that is decided has been given again: commit what is still open of it."""
        if any(each.transaction is not None for each in done):
            self._refuse(done, f"batch {last.batch} was committed by another driver while this one "
                         "wrote it. End one of them: two use the same checkpoint")  # fmt: skip
        given = sum((each.given for each in done), Fingerprint())
        if given != last.rows:
            raise WriteError(
                f"exactlyOnce: batch {last.batch} was written with {last.rows}, and is repeated "
                f"with {given}. The query is not deterministic, was changed, or its checkpoint was "
                "set back. Start it as it was, or with a checkpoint of its own"
            )
        whole = CONNECTIONS.run(read_whole_decision(self._cluster, names, last.batch))
        self._carry_out(names, whole)

    def _carry_out(self, names: QueryNames, decision: BatchDecision) -> None:
        """Commit the transactions of a decision.

        Raises:
            WriteError: some have ended without a commit; the decision is PARTIAL now.
        """
        transactions = [transaction for _, transaction in decision.transactions]
        ended = end_all(self._options, self._settings, transactions, commit=True)
        lost = [
            (transaction, error)
            for transaction, error in ended.items()
            if not self._has_committed(transaction, decision.batch)
        ]
        if not lost:
            return
        partial = replace(decision, phase=CommitPhase.PARTIAL)
        CONNECTIONS.run(write_decision(self._cluster, names, partial))
        transaction, error = lost[0]
        raise WriteError(
            f"exactlyOnce: batch {decision.batch} is written in part: {len(lost)} of "
            f"{len(transactions)} transactions had ended without a commit (the first is "
            f"{transaction.transactional_id}: {error.code.name}): kafka.transaction.timeout.ms had "
            "passed, or another producer has the same transactional id. Start the query again "
            f"with {_FORMER_OPTIONS}: it writes the rest"
        )

    def _has_committed(self, transaction: OpenTransaction, batch: int) -> bool:
        """Tell from the task's mark whether its transaction, which has ended, was committed."""
        name = transaction.transactional_id
        open_transactional(self._options, self._settings, name)
        return self._mark_of(name).offset == batch

    def _refuse(self, done: Sequence[StreamTaskDone], reason: str) -> None:
        """Abort what the tasks have written.

        Raises:
            WriteError: always.
        """
        transactions = [each.transaction for each in done if each.transaction is not None]
        end_all(self._options, self._settings, transactions, commit=False)
        raise WriteError(f"exactlyOnce: {reason}")

    def _abort_of_former_run(self, names: QueryNames) -> None:
        """Abort transactions that a former run of the query has left open.

        This run's tasks have fenced those of the same names, unless they had no rows; and the
        former run may have had more tasks. Brokers before 3.0 cannot list transactions: there,
        these end by time-out.
        """
        try:
            listed = CONNECTIONS.run(list_transactions(self._cluster))
        except (OdradekError, ConnectionError) as error:
            _log.warning("transactions that a former run of the query has left open are not known, "
                         "and end by time-out: %s", error)  # fmt: skip
            return
        for each in listed:
            if each.state == "Ongoing" and names.task_of(each.transactional_id) is not None:
                self._abort_by_name(each.transactional_id)

    def _abort_by_name(self, name: str) -> None:
        try:
            open_transactional(self._options, self._settings, name)
        except (OdradekError, ConnectionError) as error:
            _log.warning("%s: not aborted: %s", name, error)


def _decision_of(
    names: QueryNames, batch: int, done: Sequence[StreamTaskDone], tasks: int
) -> BatchDecision | None:
    """The decision on a batch of which all tasks are done; None if none of them has written."""
    transactions = [each.transaction for each in done if each.transaction is not None]
    keys = [each.key for each in done if each.key is not None]
    if not transactions:
        return None
    given = sum((each.given for each in done), Fingerprint())
    return BatchDecision(
        batch,
        keys[0],
        done[0].run,
        tasks,
        given,
        CommitPhase.DECIDED,
        numbered(names, transactions),
    )


def check_same_rows(batch: int, written: str, given: Fingerprint) -> None:
    """Check that a repeated task of a batch that was written in part has the rows that it wrote.

    Raises:
        WriteError: it has others; some rows would be written twice or never.
    """
    if written != str(given):
        raise WriteError(
            f"exactlyOnce: this task of batch {batch} wrote {written}, and is repeated with "
            f"{given}. Other options or another plan give the tasks of the batch other rows. Start "
            f"the query with {_FORMER_OPTIONS}"
        )


def _query_of(messages: Sequence[WriterCommitMessage | None]) -> str | None:
    return next((each.query for each in messages if isinstance(each, StreamTaskDone)), None)


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
