"""A batch of a streaming query that was written in part, and is repeated in another way.

The driver may be killed anywhere, so any of its tasks' transactions may be committed. Then Spark
plans the batch again: with another number of tasks, another order, or tasks without rows.
"""

import asyncio
import uuid
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from odradek.client import arrow
from odradek.client.admin.groups import list_transactions
from odradek.client.cluster import Cluster
from odradek.spark import decisions, stream_writer
from odradek.spark.options import write_options
from odradek.spark.stream_writer import StreamTopicWriter
from odradek.spark.writer import WriteError, end_all, open_transactional

SCHEMA = StructType([StructField("value", BinaryType()), StructField("topic", StringType())])


class KilledError(Exception):
    """The driver is killed here."""


class Query:
    """A streaming query without Spark: its rows are (topic, value), its tasks lists of them."""

    def __init__(self, servers):
        self.id = uuid.uuid4().hex
        self.run = "first run"
        self.writer = StreamTopicWriter(
            write_options({"kafka.bootstrap.servers": servers, "exactlyOnce": "true"}), SCHEMA
        )
        self.names = self.writer._names(self.id)

    def write(self, tasks, batch=0):
        """The tasks' messages to the driver."""
        return [*self._messages(tasks, batch)]

    def attempt(self, tasks, batch=0):
        """Write and commit a batch; abort it if that fails, as Spark does.

        Returns the number of rows that were written.
        """
        messages = [None] * len(tasks)
        try:
            for number, message in enumerate(self._messages(tasks, batch)):
                messages[number] = message
            self.writer.commit(messages, batch)
        except WriteError:
            self.writer.abort(messages, batch)
            raise
        return sum(message.rows for message in messages)

    def _messages(self, tasks, batch):
        for number, rows in enumerate(tasks):
            columns = {
                "value": pa.array([value for _, value in rows], pa.binary()),
                "topic": pa.array([topic for topic, _ in rows], pa.string()),
            }
            given = pa.RecordBatch.from_pydict(columns)
            message = self.writer.write_once(iter([given]), self.id, number, batch)
            message.run = self.run
            yield message

    def commit_until_killed(self, done, commits, monkeypatch):
        """Commit batch 0; the driver is killed when the transactions of these tasks are."""

        def end(options, options_of_producer, transactions, *, commit):
            of_tasks = [each for each in transactions if number_of(each) in commits]
            end_all(options, options_of_producer, of_tasks, commit=commit)
            raise KilledError

        with monkeypatch.context() as patch:
            patch.setattr(stream_writer, "end_all", end)
            with pytest.raises(KilledError):
                self.writer.commit(done, 0)

    def restarted(self):
        self.run = f"another run {uuid.uuid4()}"
        return self

    def time_out(self, numbers):
        """Abort the transactions of these tasks."""
        for number in numbers:
            open_transactional(
                self.writer._options, self.writer._settings, self.names.of_task(number)
            )


def number_of(transaction):
    return int(transaction.transactional_id.rpartition("-")[2])


def committed(servers, topic):
    ends = {number: there.end for number, there in arrow.offsets_of(servers, topic).items()}
    table = arrow.read_topic(servers, topic, columns=["value"], end=ends, committed=True)
    return sorted(table["value"].to_pylist())


def open_transactions(servers, query):
    async def ask():
        async with await Cluster.bootstrap(servers) as cluster:
            return [
                each.transactional_id
                for each in await list_transactions(cluster)
                if each.state == "Ongoing" and query.id in each.transactional_id
            ]

    return asyncio.run(ask())


def split(rows, cuts):
    """Tasks: the rows between the cuts, some without rows."""
    places = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    return [rows[start:end] for start, end in pairwise(places)]


CUTS = st.lists(st.integers(0, 12), max_size=5)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    count=st.integers(1, 12),
    first=CUTS,
    again=CUTS,
    commits=st.sets(st.integers(0, 5)),
    timed_out=st.sets(st.integers(0, 5), max_size=2),
    is_decided=st.booleans(),
    data=st.data(),
)
def test_whatever_changes_between_a_half_done_batch_and_its_repetition_each_row_is_there_once(
    servers, create, monkeypatch, count, first, again, commits, timed_out, is_decided, data
):
    topics = [create(f"repeated-{uuid.uuid4().hex}", 1) for _ in range(2)]
    rows = [(topics[n % 2], b"%02d" % n) for n in range(count)]
    tasks, repeated = split(rows, first), split(data.draw(st.permutations(rows)), again)
    query = Query(servers)
    done = query.write(tasks)
    if is_decided:
        query.commit_until_killed(done, commits, monkeypatch)
    query.time_out(timed_out - commits)

    query.restarted()
    try:
        query.attempt(repeated)
    except WriteError:
        # Only rows whose transactions have ended without a commit need their former tasks.
        assert is_decided
        assert timed_out - commits
        found = committed(servers, topics[0]) + committed(servers, topics[1])
        assert len(found) == len(set(found))
        query.restarted().attempt(tasks)

    assert committed(servers, topics[0]) + committed(servers, topics[1]) == sorted(
        [value for topic, value in rows if topic == topics[0]]
    ) + sorted([value for topic, value in rows if topic == topics[1]])
    assert open_transactions(servers, query) == []
    assert query.restarted().attempt(tasks) == 0


def of(topic, *numbers):
    return [(topic, b"%d" % number) for number in numbers]


@pytest.mark.parametrize("tasks_again", [2, 6])
def test_a_decided_batch_that_is_repeated_with_other_tasks_is_completed_and_not_written_again(
    servers, create, monkeypatch, tasks_again
):
    topic = create(f"decided-{tasks_again}", 1)
    rows = of(topic, *range(12))
    query = Query(servers)
    done = query.write([rows[:3], rows[3:6], rows[6:9], rows[9:]])
    query.commit_until_killed(done, {3}, monkeypatch)

    size = 12 // tasks_again
    assert query.restarted().attempt([rows[n : n + size] for n in range(0, 12, size)]) == 0
    assert sorted(map(int, committed(servers, topic))) == [*range(12)]


def test_transactions_of_tasks_that_a_restarted_query_has_no_more_are_aborted(servers, create):
    topic = create("vanished-tasks", 1)
    rows = of(topic, *range(8))
    query = Query(servers)
    query.write([rows[:2], rows[2:4], rows[4:6], rows[6:]])
    assert len(open_transactions(servers, query)) == 4

    query.restarted().attempt([rows[:4], rows[4:]])
    assert open_transactions(servers, query) == []
    assert sorted(map(int, committed(servers, topic))) == [*range(8)]


def partly_written(servers, create, name):
    """A query with two tasks: task 1 is committed, the transaction of task 0 has timed out."""
    topic = create(name, 1)
    query = Query(servers)
    tasks = [of(topic, 0, 1), of(topic, 2)]
    done = query.write(tasks)
    query.time_out([0])
    with pytest.raises(WriteError, match="batch 0 is written in part: 1 of 2 transactions"):
        query.writer.commit(done, 0)
    assert committed(servers, topic) == [b"2"]
    return topic, query, tasks


def test_a_batch_whose_transactions_timed_out_in_part_is_completed_by_its_former_tasks(
    servers, create
):
    topic, query, tasks = partly_written(servers, create, "in-part")

    assert query.restarted().attempt(tasks) == 2
    assert committed(servers, topic) == [b"0", b"1", b"2"]
    assert query.restarted().attempt([[], *tasks]) == 0  # it is decided now


def test_a_batch_that_was_written_in_part_is_refused_with_another_number_of_tasks(servers, create):
    topic, query, _ = partly_written(servers, create, "in-part-fewer")

    with pytest.raises(WriteError, match="in part by 2 tasks, and is repeated with 1. .*minParti"):
        query.restarted().attempt([of(topic, 0, 1, 2)])
    assert committed(servers, topic) == [b"2"]
    assert open_transactions(servers, query) == []


@pytest.mark.parametrize("second", [[], [3]])
def test_a_task_that_has_committed_is_refused_with_other_rows_or_none(servers, create, second):
    topic, query, _ = partly_written(servers, create, f"in-part-other-{len(second)}")

    with pytest.raises(WriteError, match=rf"wrote 1 rows, .* repeated with {len(second)} rows"):
        query.restarted().attempt([of(topic, 0, 1), of(topic, *second)])
    assert committed(servers, topic) == [b"2"]


def test_a_decided_batch_with_other_rows_is_refused(servers, create):
    topic = create("not-deterministic", 1)
    query = Query(servers)
    query.attempt([of(topic, 0, 1), of(topic, 2)])

    with pytest.raises(WriteError, match=r"was written with 3 rows, .* repeated with 2 rows"):
        query.restarted().attempt([of(topic, 0, 5)])
    assert committed(servers, topic) == [b"0", b"1", b"2"]


def test_a_batch_before_the_last_one_is_refused(servers, create):
    topic = create("set-back", 1)
    query = Query(servers)
    query.attempt([of(topic, 0)], batch=4)

    with pytest.raises(WriteError, match="batch 4 .* has been: its checkpoint was set back"):
        query.restarted().attempt([of(topic, 0)], batch=3)


def test_a_batch_that_another_driver_decides_meanwhile_is_not_written_twice(servers, create):
    topic = create("two-drivers", 1)
    query = Query(servers)
    late = query.write([of(topic, 0), of(topic, 1)])  # fenced by the second driver
    other = query.write([of(topic, 0), of(topic, 1)])
    query.writer.commit(other, 0)

    with pytest.raises(WriteError, match="committed by another driver"):
        query.writer.commit(late, 0)
    assert committed(servers, topic) == [b"0", b"1"]


def test_a_failure_while_a_decided_batch_is_committed_aborts_nothing(servers, create, monkeypatch):
    topic = create("fails-while-committing", 1)
    query = Query(servers)
    tasks = [of(topic, 0), of(topic, 1)]
    done = query.write(tasks)
    query.commit_until_killed(done, {1}, monkeypatch)

    query.writer.abort(done, 0)  # as Spark does when a commit raises
    assert query.restarted().attempt(tasks) == 0
    assert committed(servers, topic) == [b"0", b"1"]


def test_a_decision_on_more_transactions_than_one_offset_can_describe_is_read_whole(
    servers, create, monkeypatch
):
    monkeypatch.setattr(decisions, "TRANSACTIONS_OF_A_PART", 2)
    topic = create("parts", 1)
    rows = of(topic, *range(5))
    query = Query(servers)
    done = query.write([[row] for row in rows])
    query.commit_until_killed(done, {2}, monkeypatch)

    assert query.restarted().attempt([rows]) == 0
    assert sorted(map(int, committed(servers, topic))) == [*range(5)]
