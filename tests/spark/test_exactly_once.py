"""Exactly-once writes: tasks that fail half way, batches that are repeated, jobs that fail."""

import asyncio
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.types import BinaryType, StructField, StructType

from odradek.client import arrow
from odradek.client.admin.groups import committed_offsets, list_transactions
from odradek.client.arrow import _settings
from odradek.client.cluster import Cluster
from odradek.client.loop_thread import LoopThread
from odradek.spark.lag import lag_of
from odradek.spark.options import write_options
from odradek.spark.stream_writer import StreamTopicWriter
from odradek.spark.writer import TopicWriter, WriteError

ROWS = 400


def fill(servers, topic, numbers):
    rows = {
        "value": [b"%d" % n for n in numbers],
        "partition": pa.array([n % 2 for n in numbers], pa.int32()),
    }
    arrow.write_topic(servers, topic, pa.table(rows))


def committed(servers, topic):
    """The records of read_committed once the markers of all ended transactions are written.

    Markers are written a moment after the EndTxn response. So the end is that of all records: a
    reader waits there for open transactions.
    """
    ends = {number: there.end for number, there in arrow.offsets_of(servers, topic).items()}
    table = arrow.read_topic(servers, topic, columns=["value"], end=ends, committed=True)
    return sorted(map(int, table["value"].to_pylist()))


@pytest.fixture
def run(spark, servers, tmp_path):
    """A streaming query from topic to topic, exactly once, until all records are written."""

    def run(source, sink, *, change=lambda frame: frame, **options):
        frame = (
            spark.readStream.format("odradek")
            .options(
                **{
                    "kafka.bootstrap.servers": servers,
                    "subscribe": source,
                    "startingOffsets": "earliest",
                    "maxOffsetsPerTrigger": "200",
                    "commitGroupId": f"{source}-lag",
                    **options,
                }
            )
            .load()
            .selectExpr("key", "value")
        )
        query = (
            change(frame)
            .writeStream.format("odradek")
            .options(**{"kafka.bootstrap.servers": servers, "topic": sink, "exactlyOnce": "true"})
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(200)
        return query

    return run


def test_a_batch_that_is_repeated_is_written_once(servers, create, run, tmp_path):
    source, sink = create("repeated"), create("repeated-out")
    fill(servers, source, range(ROWS))
    query = run(source, sink)
    # As if the driver was killed after its tasks committed, before it wrote its commit log.
    last = max(int(file.name) for file in (tmp_path / "checkpoint" / "commits").glob("[0-9]*"))
    for file in (tmp_path / "checkpoint" / "commits").glob(f"*{last}*"):
        file.unlink()

    again = run(source, sink)

    assert [each.batchId for each in again.recentProgress][:1] == [last]
    assert committed(servers, sink) == [*range(ROWS)]
    assert set(lag_of(query.recentProgress[-1]).values()) == {0}


def test_a_task_that_fails_half_way_leaves_nothing(spark, servers, create, run, tmp_path):
    source, sink = create("half-way"), create("half-way-out")
    fill(servers, source, range(ROWS))
    mark = str(tmp_path / "died")

    def die_once(batches):
        for batch in batches:
            yield batch
            if batch.num_rows and not pathlib.Path(mark).exists():
                pathlib.Path(mark).touch()
                os._exit(1)

    def change(frame):
        return frame.mapInArrow(die_once, frame.schema)

    with pytest.raises(Exception, match="(?i)worker|task"):
        run(source, sink, change=change)  # local mode does not repeat a task: the query ends
    run(source, sink, change=change)

    assert pathlib.Path(mark).exists()
    assert committed(servers, sink) == [*range(ROWS)]


def open_transactions(servers):
    """Transactional ids that have one."""

    async def ask():
        async with await Cluster.bootstrap(servers) as cluster:
            return {
                each.transactional_id
                for each in await list_transactions(cluster)
                if each.state == "Ongoing"
            }

    return asyncio.run(ask())


def kill_the_other_workers():
    """The Python workers of this session, including the one that writes."""
    command = ["ps", "-A", "-ww", "-o", "pid=,ppid=,args="]
    reported = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in reported.splitlines()]
    (driver,) = (parent for pid, parent, _ in rows if int(pid) == os.getppid())
    daemons = {
        pid for pid, parent, output in rows
        if parent == driver and "pyspark.daemon pyspark.worker" in output
    }  # fmt: skip
    for pid, parent, _ in rows:
        if parent in daemons and int(pid) != os.getpid():
            os.kill(int(pid), signal.SIGKILL)


@pytest.mark.parametrize("victim", ["feeds", "writes"])
def test_a_batch_whose_worker_is_killed_leaves_no_record_and_no_open_transaction(
    spark, servers, create, run, victim
):
    """Kill the worker before the writer, whose rows then seem to end; or the writer itself."""
    source, sink = create(f"dies-that-{victim}", 1), create(f"died-that-{victim}", 1)
    rows = {"value": [b"%d" % n for n in range(200)]}
    arrow.write_topic(servers, source, pa.table(rows))
    seen = []
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not have this file

    def kill_the_writer(batches):
        for batch in batches:
            # More than is gathered before something is sent.
            padded = pa.array([value.as_py() + bytes(100_000) for value in batch.column("value")])
            yield pa.RecordBatch.from_arrays([batch.column("key"), padded], ["key", "value"])
        while not open_transactions(servers):
            time.sleep(0.05)
        if victim == "writes":
            kill_the_other_workers()
        os._exit(1)

    # The writer is given rows as they come, not only when there are 10,000.
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "50")
    try:
        with pytest.raises(Exception, match="(?i)worker|task"):
            run(source, sink, change=lambda frame: frame.mapInArrow(kill_the_writer, frame.schema))
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")

    deadline_s = time.monotonic() + 20  # markers follow the answer
    while seen != [set()] and time.monotonic() < deadline_s:
        seen = [open_transactions(servers)]
    assert seen == [set()]
    assert arrow.offsets_of(servers, sink)[0].end > 0
    assert committed(servers, sink) == []
    run(source, sink)
    assert committed(servers, sink) == [*range(200)]


def test_a_job_that_fails_leaves_nothing_and_one_that_does_not_leaves_all(spark, servers, create):
    topic = create("all-or-nothing")
    options = {"kafka.bootstrap.servers": servers, "topic": topic, "exactlyOnce": "true"}

    def save(query):
        frame = spark.range(0, ROWS, 1, 4).selectExpr(query)
        frame.write.format("odradek").mode("append").options(**options).save()

    with pytest.raises(Exception, match="(?s)not this one"):
        save("if(id = 399, raise_error('not this one'), string(id)) AS value")
    assert committed(servers, topic) == []
    save("string(id) AS value")
    assert committed(servers, topic) == [*range(ROWS)]


def test_a_task_that_begins_after_its_job_was_aborted_writes_nothing_and_leaves_nothing_open(
    servers, create, monkeypatch
):
    topic = create("late")
    options = {"kafka.bootstrap.servers": servers, "topic": topic, "exactlyOnce": "true"}
    writer = TopicWriter(write_options(options), StructType([StructField("value", BinaryType())]))
    monkeypatch.setattr("odradek.spark.writer.TaskContext", OfTask(1))

    writer.abort([None, None])

    with pytest.raises(WriteError, match="aborted before this task"):
        writer.write(iter([pa.record_batch({"value": [b"late"]})]))
    assert not any(writer._job in name for name in open_transactions(servers))
    assert arrow.offsets_of(servers, topic)[0].end == 0


class OfTask:
    """Spark's TaskContext of a task, for a writer that is called without Spark."""

    def __init__(self, number):
        self.number = number

    def get(self):
        return self

    def partitionId(self):  # noqa: N802  pyspark's
        return self.number


def test_lag_tools_see_the_offsets_of_a_query(servers, create, run):
    source, sink = create("lagging"), create("lagging-out")
    fill(servers, source, range(ROWS))  # two triggers
    query = run(source, sink)

    thread = LoopThread("odradek-arrow")
    try:
        cluster = thread.run(Cluster.connect(_settings(servers, None)))
        partitions = [arrow.TopicPartition(source, n) for n in range(2)]
        found = thread.run(committed_offsets(cluster, f"{source}-lag"))
        thread.run(cluster.close())
    finally:
        thread.close()

    ends = json.loads(query.recentProgress[-1].sources[0].endOffset)[source]
    # Spark commits a batch to its source when the next one begins: the last may not be there.
    assert set(found) == set(partitions)
    assert all(0 < at.offset <= ends[str(name.partition)] for name, at in found.items())


def test_a_batch_that_is_repeated_with_other_tasks_is_written_once(servers, create, run, tmp_path):
    source, sink = create("other-tasks"), create("other-tasks-out")
    fill(servers, source, range(ROWS))
    run(source, sink)
    last = max(int(file.name) for file in (tmp_path / "checkpoint" / "commits").glob("[0-9]*"))
    for file in (tmp_path / "checkpoint" / "commits").glob(f"*{last}*"):
        file.unlink()

    again = run(source, sink, minPartitions="6")
    assert [each.batchId for each in again.recentProgress][:1] == [last]
    assert committed(servers, sink) == [*range(ROWS)]
    fill(servers, source, range(ROWS, 2 * ROWS))
    run(source, sink)
    assert committed(servers, sink) == [*range(2 * ROWS)]


def test_a_restarted_query_ends_the_transactions_of_tasks_that_it_has_no_more(
    servers, create, run, tmp_path
):
    source, sink = create("killed-driver"), create("killed-driver-out")
    fill(servers, source, range(ROWS))
    run(source, sink)
    query = json.loads((tmp_path / "checkpoint" / "metadata").read_text())["id"]
    options = write_options(
        {"kafka.bootstrap.servers": servers, "topic": sink, "exactlyOnce": "true"}
    )
    # As if the driver had been killed before it committed a batch of ten tasks.
    writer = StreamTopicWriter(options, StructType([StructField("value", BinaryType())]))
    writer.write_once(iter([pa.record_batch({"value": [b"-1"]})]), query, 9, 1_000)
    assert any(query in name for name in open_transactions(servers))

    fill(servers, source, range(ROWS, 2 * ROWS))
    run(source, sink)
    assert not any(query in name for name in open_transactions(servers))
    assert committed(servers, sink) == [*range(2 * ROWS)]
