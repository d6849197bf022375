"""`df.write.format("odradek")`: columns, keys, headers, refusals."""

import pyarrow as pa
import pytest

from odradek.client import arrow
from odradek.spark.writer import _pieces


@pytest.fixture
def save(spark, servers):
    def save(query, **options):
        frame = spark.sql(query) if isinstance(query, str) else query
        given = {"kafka.bootstrap.servers": servers, **options}
        frame.write.format("odradek").mode("append").options(**given).save()

    return save


def test_rows_are_written_with_every_field_of_a_record(save, servers, create):
    topic = create("written", 3)

    save(
        "SELECT 'k' AS key, 'v' AS value, 2 AS partition, "
        "array(named_struct('key', 'h', 'value', X'01')) AS headers",
        topic=topic,
    )

    (row,) = arrow.read_topic(servers, topic, columns=arrow.ALL_COLUMNS).to_pylist()
    assert (row["key"], row["value"], row["partition"]) == (b"k", b"v", 2)
    assert row["headers"] == [{"key": "h", "value": b"\x01"}]


def test_a_key_goes_to_the_partition_of_javas_client(spark, save, servers, create):
    topic = create("keyed", 5)

    save(spark.range(1000).selectExpr("string(id) AS key", "string(id) AS value"), topic=topic)

    table = arrow.read_topic(servers, topic)
    where = dict(zip(table["key"].to_pylist(), table["partition"].to_pylist(), strict=True))
    assert len(where) == 1000
    # Computed with org.apache.kafka.common.utils.Utils of 3.9.2: murmur2("21") is -973932308.
    assert where[b"21"] == (-973932308 & 0x7FFFFFFF) % 5


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_codecs(spark, save, servers, create, codec):
    topic = create(f"codec-{codec}", 1)

    save(
        spark.range(500).selectExpr("string(id) AS value"),
        topic=topic,
        **{"kafka.compression.type": codec},
    )

    values = arrow.read_topic(servers, topic)["value"].to_pylist()
    assert sorted(map(int, values)) == [*range(500)]


def test_a_column_names_the_topic_and_the_option_has_precedence(save, servers, create):
    one, two = create("one", 1), create("two", 1)

    save(f"SELECT '{one}' AS topic, 'a' AS value UNION SELECT '{two}', 'b'")
    save(f"SELECT '{one}' AS topic, 'c' AS value", topic=two)

    assert arrow.read_topic(servers, one)["value"].to_pylist() == [b"a"]
    assert arrow.read_topic(servers, two)["value"].to_pylist() == [b"b", b"c"]


def test_nothing_to_write_writes_nothing(save, servers, create):
    topic = create("empty", 1)

    save("SELECT 'a' AS value WHERE false", topic=topic)

    assert arrow.read_topic(servers, topic).num_rows == 0


@pytest.mark.parametrize(
    ("query", "options", "message"),
    [
        ("SELECT 'a' AS value", {}, "topic option required when no 'topic' attribute"),
        ("SELECT 'a' AS key", {"topic": "t"}, "Required attribute 'value' not found"),
        ("SELECT 1 AS value", {"topic": "t"}, "value attribute unsupported type int"),
        ("SELECT string(NULL) AS topic, 'a' AS value", {}, "null topic present in the data"),
        ("SELECT 'a' AS value, 9 AS partition", {"topic": "one-left"}, "partition 9; the topic"),
        ("SELECT 'a' AS value", {"topic": "t", "kafka.acks": "2"}, "value 2 for .* acks"),
        (
            "SELECT 'a' AS value",
            {"topic": "t", "kafka.compression.type": "rar"},
            "value rar for .* compression.type",
        ),
    ],
)
def test_invalid_writes_are_refused_with_the_reason(save, query, options, message):
    with pytest.raises(Exception, match=f"(?s){message}"):
        save(query, **options)


def test_read_rows_can_be_written_unchanged(spark, save, servers, create):
    arrow.write_topic(servers, create("whole", 1), pa.table({"value": [b"1"], "key": [b"k"]}))
    frame = spark.read.format("odradek").options(
        **{"kafka.bootstrap.servers": servers, "subscribe": "whole"}
    )
    frame.load().createOrReplaceTempView("whole")

    save("SELECT * FROM whole", topic=create("whole-copy", 1))

    (row,) = arrow.read_topic(servers, "whole-copy", columns=["key", "value"]).to_pylist()
    assert row == {"key": b"k", "value": b"1"}


def test_overwriting_is_refused(spark, servers):
    frame = spark.sql("SELECT 'a' AS value")

    with pytest.raises(Exception, match="Overwrite not allowed"):
        frame.write.format("odradek").mode("overwrite").options(
            **{"kafka.bootstrap.servers": servers, "topic": "t"}
        ).save()


def test_batches_of_large_rows_are_sent_in_parts():
    rows = [bytes([n]) * 1_000_000 for n in range(40)]
    batches = [pa.RecordBatch.from_pydict({"value": part}) for part in (rows[:30], [], rows[30:])]

    pieces = list(_pieces(iter(batches)))

    assert max(piece.nbytes for piece in pieces) < 17 << 20
    assert [row for piece in pieces for row in piece.column("value").to_pylist()] == rows
