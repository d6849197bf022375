"""`spark.readStream` and `writeStream` with format "odradek": triggers, limits, restarts."""

import json

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from odradek.client import arrow
from odradek.spark.options import read_options
from odradek.spark.stream import TopicStreamReader


@pytest.fixture
def stream(spark, servers):
    def stream(topic, **options):
        given = {
            "kafka.bootstrap.servers": servers,
            "subscribe": topic,
            "startingOffsets": "earliest",
            **options,
        }
        return spark.readStream.format("odradek").options(**given).load()

    return stream


@pytest.fixture
def copy(servers, stream, tmp_path):
    """Copy what is there now from topic to topic; the progress of each trigger."""

    def copy(source, sink, *, writing=None, **options):
        query = (
            stream(source, **options)
            .selectExpr("key", "value")
            .writeStream.format("odradek")
            .options(**{"kafka.bootstrap.servers": servers, "topic": sink, **(writing or {})})
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
        return [progress for progress in query.recentProgress if progress.numInputRows]

    return copy


def fill(servers, topic, numbers):
    numbers = list(numbers)
    arrow.write_topic(
        servers,
        topic,
        pa.table(
            {
                "value": [b"%d" % n for n in numbers],
                "partition": pa.array([n % 2 for n in numbers], pa.int32()),
            }
        ),
    )


def values(servers, topic, **options):
    table = arrow.read_topic(servers, topic, columns=["value"], **options)
    return sorted(map(int, table["value"].to_pylist()))


def test_a_query_continues_where_it_stopped(servers, create, copy):
    source, sink = create("goes-on"), create("went-on", 1)
    fill(servers, source, range(100))
    first = copy(source, sink)
    fill(servers, source, range(100, 130))
    second = copy(source, sink)

    assert values(servers, sink) == [*range(130)]
    assert [progress.numInputRows for progress in first + second] == [100, 30]
    assert json.loads(second[0].sources[0].endOffset) == {source: {"0": 65, "1": 65}}


def test_a_trigger_respects_its_limit(servers, create, copy):
    source, sink = create("limited"), create("limited-out", 1)
    fill(servers, source, range(100))

    progress = copy(source, sink, maxOffsetsPerTrigger="30")

    assert [each.numInputRows for each in progress] == [30, 30, 30, 10]
    assert values(servers, sink) == [*range(100)]


def test_a_trigger_waits_for_its_minimum_of_offsets(spark, servers, create, stream):
    source = create("least")
    fill(servers, source, range(10))
    query = (
        stream(source, minOffsetsPerTrigger="50").writeStream.format("memory").queryName("least")
    ).start()
    try:
        query.processAllAvailable()
        assert spark.table("least").count() == 0
        fill(servers, source, range(10, 59))
        query.processAllAvailable()
        assert spark.table("least").count() == 59
    finally:
        query.stop()


def test_available_now_ignores_the_minimum_of_offsets(servers, create, copy):
    source, sink = create("few"), create("few-out", 1)
    fill(servers, source, range(10))

    assert [each.numInputRows for each in copy(source, sink, minOffsetsPerTrigger="50")] == [10]


def test_an_added_partition_is_read_from_its_beginning(servers, create, copy, add_partitions):
    source, sink = create("grows"), create("grown", 1)
    fill(servers, source, range(10))
    copy(source, sink)
    add_partitions(source, 3)
    arrow.write_topic(
        servers, source, pa.table({"value": [b"77"], "partition": pa.array([2], pa.int32())})
    )

    copy(source, sink)

    assert values(servers, sink) == [*range(10), 77]


def test_invalid_options_are_named(servers, create, copy):
    with pytest.raises(
        Exception, match="(?s)maxOffsetsPerTrigger=many: .* must be positive"
    ) as seen:
        copy(create("bad-options"), create("bad-options-out"), maxOffsetsPerTrigger="many")
    assert "UnboundLocalError" not in str(seen.value)


def test_another_topic_of_the_same_name_is_read_from_its_beginning(servers, create, delete, stream):
    source = create("again", 1)
    arrow.write_topic(servers, source, pa.table({"value": [b"%d" % n for n in range(5)]}))
    options = {
        "kafka.bootstrap.servers": servers, "subscribe": source, "failOnDataLoss": "false",
        "startingOffsets": "earliest",
    }  # fmt: skip
    reader = TopicStreamReader(read_options(options, streaming=True), ("value",))
    start = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert start == {source: {"0": 5}}

    delete(source)
    create(source, 1)
    arrow.write_topic(servers, source, pa.table({"value": [b"7"] * 6}))

    without = reader.latestOffset(start, ReadAllAvailable())
    assert without == {}
    end = reader.latestOffset(without, ReadAllAvailable())
    (task,) = reader.partitions(without, end)
    assert (task.piece.start, task.piece.end) == (0, 6)


def test_lost_offsets_end_a_query_unless_that_is_allowed(servers, create, copy, delete_records):
    source, sink = create("vanishes"), create("vanished", 1)
    fill(servers, source, range(10))
    copy(source, sink)
    fill(servers, source, range(10, 20))
    delete_records(source, 0, 7)

    with pytest.raises(Exception, match="(?s)vanishes-0: offsets 5 to 6 .*failOnDataLoss"):
        copy(source, sink)
    copy(source, sink, failOnDataLoss="false")

    lost = {10, 12}
    assert values(servers, sink) == [n for n in range(20) if n not in lost]
