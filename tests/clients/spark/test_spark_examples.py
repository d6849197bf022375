"""The programs of examples/spark, in one session on a broker of ours."""

import importlib.util
import io
import json
import os
import pathlib
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import apache
import fetch
import pyarrow as pa
import pytest
import yaml
from harness import Cluster
from pyarrow import parquet

from odradek.client import arrow
from odradek.spark.java import java_home, prepare

pytestmark = pytest.mark.jvm

FOLDER = pathlib.Path(__file__).resolve().parents[3] / "examples" / "spark"
DEADLINE_S = 300
MINUTE_MS = 60_000
START_MS = int(time.time() * 1000)  # retention deletes older records
AVRO = {"type": "record", "name": "Order", "fields": [
    {"name": "number", "type": "long"}, {"name": "item", "type": ["null", "string"]},
]}  # fmt: skip


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def packages() -> pathlib.Path:
    """What the examples need beside the extra `spark`."""
    return fetch.python_packages(
        sys.executable,
        *("deltalake", "fastavro", "grpcio", "grpcio-status", "googleapis-common-protos"),
    )


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory, packages: pathlib.Path) -> Iterator[Any]:
    from pyspark.sql import SparkSession  # noqa: PLC0415  not installed where these are skipped

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("PYTHONPATH", str(packages))
        patch.syspath_prepend(str(packages))
        prepare()
        session = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("ERROR")
        yield session
        session.stop()


def fill(cluster: Cluster, topic: str, rows: list[dict[str, Any]]) -> None:
    """Records of partition 0; what a row does not say is null."""
    columns = {
        "key": pa.array([row.get("key") for row in rows], pa.binary()),
        "value": pa.array([row.get("value") for row in rows], pa.binary()),
        "timestamp": pa.array([row.get("timestamp", START_MS) for row in rows], pa.int64()),
        "partition": pa.array([0] * len(rows), pa.int32()),
    }
    arrow.write_topic(cluster.bootstrap, topic, pa.table(columns))


def committed(cluster: Cluster, topic: str, *columns: str) -> list[dict[str, Any]]:
    """The committed records, when the markers of all transactions are there."""
    ends = {n: there.end for n, there in arrow.offsets_of(cluster.bootstrap, topic).items()}
    table = arrow.read_topic(
        cluster.bootstrap, topic, columns=list(columns), end=ends, committed=True
    )
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def run(frame: Any, cluster: Cluster, checkpoint: pathlib.Path, **options: str) -> None:
    """Write a stream to the sink as the examples do."""
    query = (
        frame.writeStream.format("odradek")
        .options(exactlyOnce="true", checkpointLocation=str(checkpoint), **options)
        .option("kafka.bootstrap.servers", cluster.bootstrap)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def test_orders_are_joined_with_payments_within_the_hour(
    spark: Any, cluster: Cluster, tmp_path: pathlib.Path
) -> None:
    join = example("join")

    def event(key: bytes, value: bytes, minute: int) -> dict[str, Any]:
        return {"key": key, "value": value, "timestamp": START_MS + minute * MINUTE_MS}

    fill(cluster, "ex-orders", [event(b"1", b"pen", 0), event(b"2", b"ink", 1),
                                event(b"3", b"pad", 2), event(b"9", b"cap", 600)])  # fmt: skip
    fill(cluster, "ex-payments", [event(b"1", b"5", 10), event(b"2", b"7", 90),
                                  event(b"9", b"1", 601)])  # fmt: skip
    streams = [join.topic(spark, cluster.bootstrap, name) for name in ("ex-orders", "ex-payments")]
    run(join.joined(*streams), cluster, tmp_path / "join", topic="ex-joined")

    found = {
        row["key"].decode(): json.loads(row["value"])
        for row in committed(cluster, "ex-joined", "key", "value")
    }
    amounts = {key: (value["item"], value["amount"]) for key, value in found.items()}
    assert amounts == {"1": ("pen", "5"), "2": ("ink", None), "3": ("pad", None), "9": ("cap", "1")}


def test_a_batch_that_the_table_has_is_not_appended_again(
    spark: Any, cluster: Cluster, tmp_path: pathlib.Path
) -> None:
    from deltalake import DeltaTable  # noqa: PLC0415  of `packages`

    lake = example("lake")
    fill(cluster, "ex-lake", [{"value": b"%d" % n} for n in range(20)])
    checkpoint, table = tmp_path / "checkpoint", str(tmp_path / "table")

    def append() -> list[bytes]:
        lake.append(spark, cluster.bootstrap, "ex-lake", table, str(checkpoint))
        files = [parquet.read_table(file) for file in DeltaTable(table).file_uris()]
        return sorted(pa.concat_tables(files)["value"].to_pylist())

    rows = sorted(b"%d" % n for n in range(20))
    assert append() == rows
    # As after a crash between the table's commit and that of the checkpoint.
    (checkpoint / "commits" / "0").unlink()
    (checkpoint / "commits" / ".0.crc").unlink(missing_ok=True)
    assert append() == rows
    fill(cluster, "ex-lake", [{"value": b"new"}])
    assert append() == [*rows, b"new"]


def framed(number: int, body: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + body


@pytest.fixture
def schemas(packages: pathlib.Path, tmp_path: pathlib.Path) -> dict[int, pathlib.Path]:
    """An Avro schema, and a Protobuf file of two messages, the second with one inside."""
    from google.protobuf import descriptor_pb2  # noqa: PLC0415  of `packages`

    file = descriptor_pb2.FileDescriptorProto(name="order.proto", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto

    def message(parent: Any, name: str) -> Any:
        made = parent.add(name=name)
        made.field.add(name="item", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
        return made

    message(file.message_type, "First")
    message(message(file.message_type, "Second").nested_type, "Inside")
    described = tmp_path / "order.desc"
    described.write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    schema = tmp_path / "order.avsc"
    schema.write_text(json.dumps(AVRO))
    return {7: schema, 300: described}


def test_values_of_several_schemas_are_decoded_and_others_have_an_error(
    spark: Any, cluster: Cluster, schemas: dict[int, pathlib.Path]
) -> None:
    import fastavro  # noqa: PLC0415  of `packages`

    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(AVRO), {"number": 12, "item": "pen"})
    text = b"\x0a\x03ink"  # field 1: "ink"
    values = [
        framed(7, body.getvalue()),
        framed(300, b"\0" + text),
        framed(300, b"\x02\x02" + text),  # [1]
        framed(300, b"\x04\x02\x00" + text),  # [1, 0]
        b'{"number": 1}',
        framed(8, b""),
        framed(7, b"\x80"),
        framed(300, b"\x02\x08" + text),  # [4]
        framed(300, b"\x80"),
        None,
    ]
    fill(cluster, "ex-framed", [{"value": value} for value in values])
    registry = example("registry")
    frame = (
        spark.read.format("odradek")
        .option("kafka.bootstrap.servers", cluster.bootstrap)
        .option("subscribe", "ex-framed")
        .load()
    )
    rows = registry.decoded(frame, schemas).orderBy("offset").collect()

    assert [json.loads(row.json) for row in rows[:4]] == [
        {"number": 12, "item": "pen"}, *([{"item": "ink"}] * 3)
    ]  # fmt: skip
    assert [row.schema_id for row in rows] == [7, 300, 300, 300, None, 8, 7, 300, 300, None]
    assert [row.json for row in rows[4:]] == [None] * 6
    errors = [row.error for row in rows[4:]]
    header = "FrameError: the value does not begin with a zero byte and a schema id"
    assert errors[:2] == [header, "FrameError: there is no schema 8"]
    assert errors[3:] == [
        "FrameError: the schema has no message [4]",
        "FrameError: the message indexes are cut off",
        header,
    ]


def test_dead_letters_say_why_and_from_where(
    spark: Any, cluster: Cluster, tmp_path: pathlib.Path
) -> None:
    values = [b'{"number": 1, "item": "pen"}', b"{", None, b'{"item": "ink"}', b'{"number": "x"}']
    fill(cluster, "ex-mixed", [{"key": b"%d" % n, "value": v} for n, v in enumerate(values)])
    reader = spark.readStream.format("odradek").options(subscribe="ex-mixed")
    reader = reader.option("kafka.bootstrap.servers", cluster.bootstrap)
    records = reader.option("startingOffsets", "earliest").load()
    letters = example("dead_letters").sorted_out(records, "ex-good", "ex-dead")
    run(letters, cluster, tmp_path / "letters")

    (good,) = committed(cluster, "ex-good", "value", "headers")
    assert (good["value"], good["headers"]) == (values[0], None)
    dead = committed(cluster, "ex-dead", "key", "value", "headers")
    found = {int(row["key"]): row for row in dead}
    assert {n: row["value"] for n, row in found.items()} == {n: values[n] for n in (1, 2, 3, 4)}
    headers = {n: {h["key"]: h["value"] for h in row["headers"]} for n, row in found.items()}
    assert {n: each["error"] for n, each in headers.items()} == {
        1: b"not JSON of the schema", 2: b"no value", 3: b"no number",
        4: b"not JSON of the schema",
    }  # fmt: skip
    assert headers[3] == {
        "error": b"no number", "source.topic": b"ex-mixed", "source.partition": b"0",
        "source.offset": b"3",
    }  # fmt: skip


def walk(value: Any, model: Any, where: str) -> None:
    """Each name of a template is a property of the class that Spark reads it into."""
    for name, inner in value.items():
        found = getattr(model, f"get{name[0].upper()}{name[1:]}", None)
        there = found()  # py4j: fails if the class has no such property
        assert there is not None, f"{where}.{name}"
        if isinstance(inner, list):
            for number, each in enumerate(inner):
                walk(each, there.get(number), f"{where}.{name}[{number}]")
        elif isinstance(inner, dict) and name not in {"labels", "matchLabels"}:
            walk(inner, there, f"{where}.{name}")


@pytest.mark.parametrize("name", ["driver", "executor"])
def test_pod_templates_have_only_fields_of_a_pod(spark: Any, name: str) -> None:
    text = (FOLDER / "kubernetes" / f"{name}.yaml").read_text()
    model = spark._jvm.io.fabric8.kubernetes.client.utils.KubernetesSerialization().unmarshal(text)
    walk(yaml.safe_load(text), model, name)
    assert [each.getName() for each in model.getSpec().getContainers()] == [name]


def wait_for(process: subprocess.Popen[bytes], output: pathlib.Path, text: str) -> str:
    """The line that has the text."""
    deadline_s = time.monotonic() + DEADLINE_S
    while True:
        printed = output.read_text()
        for line in printed.splitlines():
            if text in line:
                return line
        assert process.poll() is None, printed[-3000:]
        assert time.monotonic() < deadline_s, printed[-3000:]
        time.sleep(0.1)


def test_lag_is_a_metric(cluster: Cluster, tmp_path: pathlib.Path) -> None:
    fill(cluster, "ex-lag", [{"value": b"x"}] * 30)
    output = tmp_path / "output"
    command = [sys.executable, str(FOLDER / "lag_metrics.py"), cluster.bootstrap, "ex-lag", "0"]
    with output.open("wb") as log:
        process = subprocess.Popen(
            [*command, str(tmp_path / "checkpoint")],
            stdout=log,
            stderr=log,
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        )
    try:
        url = wait_for(process, output, "metrics at ").rpartition(" ")[2]
        line = 'odradek_spark_lag_records{partition="0",query="example",topic="ex-lag"} 0.0'
        deadline_s = time.monotonic() + DEADLINE_S
        while True:
            with urllib.request.urlopen(url) as answer:
                text = answer.read().decode()
            if line in text:
                break
            assert process.poll() is None, output.read_text()[-3000:]
            assert time.monotonic() < deadline_s, text
            time.sleep(0.1)
    finally:
        process.kill()
        process.wait()


def test_a_client_of_spark_connect_copies_a_topic(
    cluster: Cluster, packages: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    home = pathlib.Path(spec.origin).parent
    fill(cluster, "ex-connect", [{"value": b"%d" % n} for n in range(50)])
    port = apache.free_port()
    output = tmp_path / "server"
    with output.open("wb") as log:
        server = subprocess.Popen(
            [
                *(str(home / "sbin" / "start-connect-server.sh"), "--master", "local[2]"),
                *("--conf", f"spark.connect.grpc.binding.port={port}"),
                *("--conf", "spark.ui.enabled=false"),
            ],
            stdout=log,
            stderr=log,
            cwd=tmp_path,
            start_new_session=True,
            env={
                **os.environ,
                "JAVA_HOME": str(java_home()),
                "SPARK_HOME": str(home),
                "SPARK_LOCAL_IP": apache.HOST,
                "SPARK_NO_DAEMONIZE": "1",
                "PYSPARK_PYTHON": sys.executable,
            },
        )
    try:
        wait_for(server, output, "Spark Connect server started at")
        arguments = [cluster.bootstrap, "ex-connect", "ex-connected", str(tmp_path / "checkpoint")]
        done = subprocess.run(
            [sys.executable, str(FOLDER / "connect.py"), f"sc://{apache.HOST}:{port}", *arguments],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
            env={**os.environ, "PYTHONPATH": str(packages), "JAVA_HOME": "/no/java"},
        )
        assert done.returncode == 0, done.stderr[-3000:] + output.read_text()[-3000:]
        assert done.stdout.splitlines()[-1] == "50 records"
    finally:
        os.killpg(server.pid, 9)
        server.wait()
