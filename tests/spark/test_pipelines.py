"""The worked examples of pipelines/, on topics of an Odradek broker."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pyarrow as pa
import pytest

from odradek.cli.main import run
from odradek.client import arrow

FOLDER = pathlib.Path(__file__).parents[2] / "pipelines"
ROWS = 60
SCHEMA = pa.schema([
    ("partition", pa.int32()), ("key", pa.binary()), ("value", pa.binary()),
    ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ("timestamp", pa.timestamp("ms", "UTC")),
])  # fmt: skip


def example(name):
    spec = importlib.util.spec_from_file_location(f"pipelines_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fill(servers, topic):
    rows = {
        "key": [b"k%d" % (n % 6) for n in range(ROWS)],
        "value": [b"v%d" % n for n in range(ROWS)],
        "timestamp": [1_600_000_000_000 + 1001 * n for n in range(ROWS)],
        "headers": pa.array(
            [[{"key": "n", "value": b"%d" % n}] if n % 7 == 0 else None for n in range(ROWS)],
            pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
        ),
    }
    arrow.write_topic(servers, topic, pa.table(rows))


def fill_skewed(servers, topic):
    """One key has half of the records."""
    keys = [b"hot" if n % 2 else b"k%d" % n for n in range(200)]
    arrow.write_topic(servers, topic, pa.table({"key": keys, "value": [b"v" * 100] * 200}))
    return topic


def by_partition(servers, topic):
    columns = ["partition", "key", "value", "headers", "timestamp"]
    table = arrow.read_topic(servers, topic, columns=columns)
    return sorted(table.to_pylist(), key=lambda row: row["partition"])  # stable: offsets rise


def test_an_archive_restores_every_record(spark, servers, create, tmp_path):
    archive = example("archive")
    topic, again = create("archived", 3), create("restored", 3)
    fill(servers, topic)

    assert archive.save(spark, servers, topic, tmp_path) == ROWS
    assert archive.save(spark, servers, topic, tmp_path) == 0
    assert archive.restore(spark, servers, again, tmp_path) == ROWS

    assert by_partition(servers, again) == by_partition(servers, topic)
    offsets = spark.read.parquet(str(tmp_path / "offsets")).collect()
    assert {row.old_offset for row in offsets} == {row.new_offset for row in offsets} == {0}
    assert sum(row.records for row in offsets) == ROWS


def test_a_second_restore_writes_nothing_and_one_that_stopped_is_continued(
    spark, servers, create, tmp_path
):
    archive = example("archive")
    topic, again = create("archived-twice", 3), create("restored-twice", 3)
    fill(servers, topic)
    archive.save(spark, servers, topic, tmp_path)
    all_of_it = by_partition(servers, topic)
    first = [row for row in all_of_it if row["partition"] == 0]
    arrow.write_topic(servers, again, pa.Table.from_pylist(first, schema=SCHEMA))

    assert archive.restore(spark, servers, again, tmp_path) == ROWS - len(first)
    assert archive.restore(spark, servers, again, tmp_path) == 0
    assert by_partition(servers, again) == all_of_it


def test_a_topic_with_other_records_is_not_restored_to(spark, servers, create, tmp_path):
    archive = example("archive")
    topic, other = create("archived-other", 2), create("restored-other", 2)
    fill(servers, topic)
    archive.save(spark, servers, topic, tmp_path)
    arrow.write_topic(servers, other, pa.table({"value": [b"x"], "partition": [1]}))

    with pytest.raises(archive.RestoreError, match="partition 1 of restored-other has 1 records"):
        archive.restore(spark, servers, other, tmp_path)
    assert len(by_partition(servers, other)) == 1


def test_no_pipeline_sets_a_master_over_that_of_spark_submit():
    assert not [file.name for file in FOLDER.glob("*.py") if ".master(" in file.read_text()]


def test_results_are_json_and_properties_come_from_a_file(servers, create, tmp_path):
    fill(servers, create("as-json", 2))
    config = tmp_path / "client.properties"
    config.write_text(f"bootstrap.servers={servers}\nclient.id=skew\n")
    words = ["--bootstrap-server", servers, "--topic", "as-json", "--partitions", "4", "--json"]
    done = subprocess.run(
        [sys.executable, FOLDER / "key_skew.py", *words, "--command-config", config],
        capture_output=True, text=True, check=True, timeout=300,
        env={**os.environ, "PYSPARK_SUBMIT_ARGS": "--master local[1] pyspark-shell"},
    )  # fmt: skip
    found = json.loads(done.stdout.splitlines()[-1])

    assert sum(row["records"] for row in found["partitions"]) == ROWS
    assert {row["key"] for row in found["hot_keys"]} == {f"k{n}" for n in range(6)}
    assert 1 <= found["fullest"] <= 4


def test_skew_is_counted_and_predicted(spark, servers, create):
    skew = example("key_skew")
    one, more = create("skewed", 1), create("spread", 5)
    fill(servers, one)
    fill(servers, more)
    frame = skew.records(spark, servers, one)

    (only,) = skew.by_partition(frame).collect()
    assert (only.records, only.keys) == (ROWS, 6)
    assert len(skew.hot_keys(frame).collect()) == 6
    assert skew.busiest_minute(frame) >= 0
    foretold = {row.target: row.bytes for row in skew.spread_over(frame, 5).collect()}
    seen = skew.by_partition(skew.records(spark, servers, more)).collect()
    assert foretold == {row.partition: row.bytes for row in seen}


def test_the_figures_of_keys_are_used_by_the_plan(spark, servers, create, tmp_path, capsys):
    skew = example("key_skew")
    frame = skew.records(spark, servers, fill_skewed(servers, create("planned", 3)))
    file = tmp_path / "keys"
    file.write_bytes(b"".join(key + b"\n" for key in skew.sample_keys(frame, 1000)))
    command = skew.plan_command(servers, frame, file, 5)
    rates = ["--producer-rate", "10MB", "--consumer-rate", "20MB", "--json"]

    assert command[0] == "odradek"
    assert run([*command[1:], *rates]) == 0

    reported = json.loads(capsys.readouterr().out)
    spreads = {each["partitions"]: each for each in reported["spreads"]}
    seen = [row.records for row in skew.by_partition(frame).collect()]
    assert spreads[3]["largest_share"] == max(seen) / sum(seen)
    assert (spreads[3]["moved"], set(spreads)) == (0, {1, 3, 5})
    assert reported["target"] == skew.busiest_minute(frame)


@pytest.fixture(scope="module")
def segment(servers, create, broker):
    """A segment file of the broker: two batches."""
    topic = create("audited", 1)
    fill(servers, topic)
    fill(servers, topic)
    return (broker.data / "audited-0" / f"{0:020}.log").read_bytes()


@pytest.fixture
def replicas(segment, tmp_path):
    """Three directories as three brokers would have them."""
    made = {}
    for name in ("one", "two", "three"):
        made[name] = tmp_path / name
        (made[name] / "audited-0").mkdir(parents=True)
        (made[name] / "audited-0" / f"{0:020}.log").write_bytes(segment)
        mark = made[name] / "replication-offset-checkpoint"
        mark.write_text(f"0\n1\naudited 0 {2 * ROWS}\n")
    return made


def problems(spark, replicas):
    rows = example("audit").audit(spark, replicas).collect()
    return [(row.name, row.base_offset, row.problem) for row in rows]


def test_equal_replicas_have_no_problem(spark, replicas):
    assert problems(spark, replicas) == []


def test_damage_loss_and_difference_are_reported(spark, replicas):
    files = {name: folder / "audited-0" / f"{0:020}.log" for name, folder in replicas.items()}
    damaged = bytearray(files["two"].read_bytes())
    damaged[-1] ^= 1
    files["two"].write_bytes(damaged)
    files["three"].write_bytes(files["three"].read_bytes()[: len(damaged) // 2])

    assert problems(spark, replicas) == [
        ("audited-0", ROWS, "missing on three"),
        ("audited-0", ROWS, "two: the checksum is not that of the bytes"),
    ]


def test_segments_are_read_in_slices_between_batches(segment, replicas, monkeypatch):
    audit = example("audit")
    (file,) = (replicas["one"] / "audited-0").glob("*.log")
    file.write_bytes(segment * 20 + segment[:30])
    monkeypatch.setattr(audit, "SLICE_BYTES", len(segment) + 7)
    made = [bytes(each) for each in audit.slices(file)]

    assert b"".join(made) == segment * 20 + segment[:30]
    assert max(map(len, made)) <= 2 * len(segment) + 7
    assert len(made) > 10


def test_a_directory_that_a_machine_does_not_have_is_named(replicas):
    audit = example("audit")
    missing = {"replica": "one", "name": "audited-0", "path": "/none/00000000000000000000.log"}
    (row,) = audit._read(missing)
    assert row["problem"].startswith("/none/00000000000000000000.log cannot be read on ")


def test_uncommitted_batches_may_differ(spark, replicas):
    (replicas["one"] / "replication-offset-checkpoint").write_text(f"0\n1\naudited 0 {ROWS}\n")
    file = replicas["two"] / "audited-0" / f"{0:020}.log"
    file.write_bytes(file.read_bytes()[:-5])

    assert problems(spark, replicas) == []
