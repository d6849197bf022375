"""`spark.read.format("odradek")`: schema, ranges, tasks, refusals. Found without registration."""

import datetime
import json

import pyarrow as pa
import pytest

from odradek.client import arrow

ROWS = 300


@pytest.fixture(scope="module")
def load(spark, servers, create):
    """Read a topic of 300 rows in two partitions, one of which has a header."""
    rows = pa.table(
        {
            "key": [b"k%d" % (n % 5) for n in range(ROWS)],
            "value": [b"%d" % n for n in range(ROWS)],
            "timestamp": pa.array([1_000 * n for n in range(ROWS)], pa.timestamp("ms", "UTC")),
            "headers": pa.array(
                [[{"key": "h", "value": b"x"}] if n == 6 else None for n in range(ROWS)],
                pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
            ),
            "partition": pa.array([n % 2 for n in range(ROWS)], pa.int32()),
        }
    )
    arrow.write_topic(servers, create("read"), rows)

    def load(schema=None, **options):
        given = {"kafka.bootstrap.servers": servers, **options}
        if not {"assign", "subscribePattern"} & set(given):
            given.setdefault("subscribe", "read")
        reader = spark.read.format("odradek").options(**given)
        return (reader.schema(schema) if schema else reader).load()

    return load


def values(frame):
    return sorted(int(row.value) for row in frame.select("value").collect())


def test_the_schema_is_the_connectors(load):
    plain, headers = load().schema, load(includeHeaders="true").schema

    assert plain.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int>"
    )
    assert headers["headers"].dataType.simpleString() == "array<struct<key:string,value:binary>>"


def test_rows_have_all_columns(load):
    row = load(includeHeaders="true").where("partition = 0 AND offset = 3").collect()[0]

    assert row.asDict(recursive=True) == {
        "key": b"k1",
        "value": b"6",
        "topic": "read",
        "partition": 0,
        "offset": 3,
        "timestamp": datetime.datetime(1970, 1, 1, 0, 0, 6),  # noqa: DTZ001 - Spark's
        "timestampType": 0,
        "headers": [{"key": "h", "value": b"x"}],
    }
    assert values(load()) == [*range(ROWS)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"assign": '{"read":[1]}'}, range(1, ROWS, 2)),
        ({"subscribePattern": "^re.d$"}, range(ROWS)),
        (
            {
                "startingOffsets": '{"read":{"0":148,"1":-2}}',
                "endingOffsets": '{"read":{"0":-1,"1":2}}',
            },
            [1, 3, 296, 298],
        ),
        ({"startingTimestamp": "297000"}, [297, 298, 299]),
        ({"endingTimestamp": "3000"}, [0, 1, 2]),
        ({"startingOffsetsByTimestamp": '{"read":{"0":298000,"1":299000}}'}, [298, 299]),
        (
            {"startingTimestamp": "999000", "startingOffsetsByTimestampStrategy": "latest"},
            [],
        ),
    ],
)
def test_ranges(load, options, expected):
    assert values(load(**options)) == [*expected]


@pytest.mark.parametrize(
    ("options", "tasks"),
    [({}, 2), ({"minPartitions": "7"}, 8), ({"maxRecordsPerPartition": "40"}, 8)],
)
def test_tasks(load, options, tasks):
    frame = load(**options)

    assert frame.rdd.getNumPartitions() == tasks
    assert values(frame) == [*range(ROWS)]


def test_only_the_selected_columns_are_read(load):
    assert load(columns="offset,value").columns == ["offset", "value"]
    assert values(load("value binary")) == [*range(ROWS)]


def test_filters_read_less_where_that_is_allowed(spark, load):
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = load(pushDownFilters="true").where("partition = 1 AND offset >= 149")

        assert frame.rdd.getNumPartitions() == 1
        assert values(frame) == [299]
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_the_format_works_in_sql(spark, servers, load):
    load()
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW v USING odradek OPTIONS "
        f"(`kafka.bootstrap.servers` '{servers}', subscribe 'read')"
    )

    assert spark.sql("SELECT count(*) AS n FROM v").collect()[0].n == ROWS


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "nowhere"}, "topic 'nowhere' does not exist"),
        ({"assign": '{"read":[5]}'}, "read-5 does not exist: read has 2 partitions"),
        ({"startingOffsets": '{"read":{"0":1}}'}, "you must specify all TopicPartitions"),
        ({"startingOffsets": '{"read":'}, "Expected e.g. "),
        ({"startingTimestamp": "999000"}, "No offset matched .* read-0 and timestamp 999000"),
        (
            {"startingOffsets": '{"read":{"0":160,"1":0}}'},
            "read-0: reading from offset 160 to 150, which is before it",
        ),
        (
            {"endingOffsets": '{"read":{"0":155,"1":1}}'},
            "read-0: offsets up to 155 were requested, the partition ends at 150",
        ),
        ({"columns": "valu"}, "'valu' is not one of key, value"),
        ({"kafka.bootstrap.servers": "127.0.0.1:1"}, "127.0.0.1:1"),
        ({"kafka.sasl.mechanism": "PLAIN", "kafka.security.protocol": "SASL"}, "security.protocol"),
    ],
)
def test_invalid_reads_are_refused_with_the_reason(load, options, message):
    with pytest.raises(Exception, match=f"(?s){message}"):
        load(**options).collect()


def test_a_schema_of_other_types_is_refused(load):
    with pytest.raises(Exception, match="'offset' of the schema is string; it must be bigint"):
        load("offset string").collect()


def test_lost_offsets_fail_unless_that_is_allowed(load, servers, create, delete_records):
    arrow.write_topic(
        servers, create("lost", 1), pa.table({"value": [b"%d" % n for n in range(9)]})
    )
    delete_records("lost", 0, 4)
    start = {"subscribe": "lost", "startingOffsets": json.dumps({"lost": {"0": 1}})}

    with pytest.raises(Exception, match="(?s)lost-0: offset 1 .* begins at 4.*failOnDataLoss"):
        load(**start).collect()
    assert values(load(failOnDataLoss="false", **start)) == [4, 5, 6, 7, 8]


def test_an_end_beyond_the_log_is_its_end_where_that_is_allowed(load):
    ends = json.dumps({"read": {"0": 155, "1": 1}})

    assert load(endingOffsets=ends, failOnDataLoss="false").count() == 151


def test_a_pattern_matches_anywhere_in_a_name(load, servers, create):
    arrow.write_topic(servers, create("some.where-1", 1), pa.table({"value": [b"1"]}))

    assert load(subscribe=None, subscribePattern="me.where").count() == 1
    assert load(subscribe=None, subscribePattern="me[a-z.&&[^x]]where").count() == 1


def test_a_corrupt_batch_is_named(load, servers, create, broker):
    arrow.write_topic(servers, create("damaged", 1), pa.table({"value": [b"a" * 100]}))
    with (broker.data / "damaged-0" / f"{0:020}.log").open("r+b") as file:
        file.seek(-3, 2)
        file.write(b"b")

    with pytest.raises(Exception, match="damaged-0 at offset 0: checksum"):
        load(subscribe="damaged").collect()
