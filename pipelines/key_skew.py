r"""Show how keys are spread over a topic's partitions, also with another number of them.

    python pipelines/key_skew.py --bootstrap-server HOST:PORT --topic orders \
        [--partitions 12] [--keys-out keys.txt]

The job prints a row for each partition (records, bytes, keys) and the hottest keys. With
`--partitions` it also prints how uneven that number of partitions would be; it hashes each real key
as Kafka's producers do. The bytes per second of the busiest minute are the first input for sizing.

With `--keys-out` it writes a sample of the keys to a file, one per line, and ends with the command
that plans with these figures: `odradek plan partitions --target ... --keys keys.txt`.

--command-config names a file of client properties, as for Kafka's tools; --json prints one JSON
object in the place of tables.
"""

import argparse
import json
import pathlib
import shlex
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from odradek.cli.connect import properties_of
from odradek.client.arrow.partition import murmur2
from odradek.spark.java import prepare


def records(
    spark: SparkSession, servers: str, topic: str, properties: Mapping[str, str] = {}
) -> DataFrame:
    """The columns that are needed; of a value only its length."""
    return (
        spark.read.format("odradek")
        .options(**{f"kafka.{name}": value for name, value in properties.items()})
        .options(**{"kafka.bootstrap.servers": servers, "subscribe": topic})
        .option("columns", "key,value,partition,timestamp")
        .load()
        .withColumn("bytes", F.expr("coalesce(length(key), 0) + coalesce(length(value), 0)"))
        .drop("value")
    )


def by_partition(frame: DataFrame) -> DataFrame:
    """Records, bytes and keys of each partition."""
    return (
        frame.groupBy("partition")
        .agg(
            F.count(F.lit(1)).alias("records"),
            F.sum("bytes").alias("bytes"),
            F.approx_count_distinct("key").alias("keys"),
        )
        .orderBy("partition")
    )


def hot_keys(frame: DataFrame, count: int = 10) -> DataFrame:
    """The keys with the most bytes."""
    return (
        frame.where("key IS NOT NULL")
        .groupBy("key")
        .agg(F.count(F.lit(1)).alias("records"), F.sum("bytes").alias("bytes"))
        .orderBy(F.desc("bytes"), "key")
        .limit(count)
    )


def spread_over(frame: DataFrame, partitions: int) -> DataFrame:
    """Bytes of each partition if all keys were hashed over this number of partitions."""

    def hashed(batches: Any) -> Any:
        for batch in batches:
            numbers = pa.array(
                [each & 0x7FFFFFFF for each in murmur2(batch.column("key"))], pa.int64()
            )
            target = [each.as_py() % partitions for each in numbers]
            yield pa.RecordBatch.from_arrays(
                [pa.array(target, pa.int32()), batch.column("bytes").cast(pa.int64())],
                names=["target", "bytes"],
            )

    keyed = frame.where("key IS NOT NULL").groupBy("key").agg(F.sum("bytes").alias("bytes"))
    found = keyed.mapInArrow(hashed, "target int, bytes bigint").groupBy("target")
    return found.agg(F.sum("bytes").alias("bytes")).orderBy("target")


def busiest_minute(frame: DataFrame) -> int:
    """Bytes per second of the busiest minute."""
    rate = (
        frame.groupBy(F.window("timestamp", "1 minute"))
        .agg((F.sum("bytes") / 60).alias("rate"))
        .agg(F.max("rate"))
    )
    return int(rate.collect()[0][0] or 0)


def sample_keys(frame: DataFrame, count: int) -> list[bytes]:
    """The keys of about this number of records; frequent keys are often among them.

    Keys with a line break cannot stand in a file of lines, and are left out.
    """
    keyed = frame.where("key IS NOT NULL").select("key")
    share = min(1.0, count / max(1, keyed.count()))
    rows = keyed.sample(share, seed=7) if share < 1 else keyed
    keys = (bytes(row.key) for row in rows.toLocalIterator())
    return [key for key in keys if b"\n" not in key and not key.endswith(b"\r")]


def plan_command(
    servers: str, frame: DataFrame, keys: pathlib.Path, candidates: int | None
) -> list[str]:
    """The command that plans partitions with these figures."""
    present = frame.agg(F.max("partition")).collect()[0][0]
    command = ["odradek", "plan", "partitions", "--bootstrap-server", servers]
    command += ["--target", str(max(1, busiest_minute(frame))), "--keys", str(keys)]
    command += ["--present", str(present + 1)]
    return command + (["--candidates", str(candidates)] if candidates else [])


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bootstrap-server", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int)
    parser.add_argument("--keys-out", type=pathlib.Path)
    parser.add_argument(
        "--sample", type=int, default=100_000, help="the number of records whose keys are sampled"
    )
    parser.add_argument("--command-config", help="a file of client properties")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args()
    prepare()
    # The master is that of spark-submit; without one Spark takes local[*].
    spark = SparkSession.builder.appName("key skew").getOrCreate()
    properties = properties_of(given.command_config)
    frame = records(spark, given.bootstrap_server, given.topic, properties).cache()
    found = report(frame, given.partitions)
    if given.keys_out:
        keys = sample_keys(frame, given.sample)
        given.keys_out.write_bytes(b"".join(key + b"\n" for key in keys))
        command = plan_command(given.bootstrap_server, frame, given.keys_out, given.partitions)
        if given.command_config:
            command += ["--command-config", given.command_config]
        found["command"] = shlex.join(command)
    if given.json:
        print(json.dumps(found))
    else:
        by_partition(frame).show(1000, truncate=False)
        hot_keys(frame).show(truncate=False)
        if "fullest" in found:
            print(f"over {given.partitions} partitions: the fullest has {found['fullest']:.2f} "
                  "times the mean")  # fmt: skip
        print(f"busiest minute: {found['busiest_minute_rate']:,} bytes per second")
        print(found.get("command", ""), end="\n" if "command" in found else "")
    spark.stop()


def report(frame: DataFrame, partitions: int | None) -> dict[str, Any]:
    """The figures as JSON: partitions, hot keys (text), bytes per second of the busiest minute.

    `fullest`, if there are `partitions` to foretell: the fullest of them, in times of the mean.
    """
    found: dict[str, Any] = {
        "partitions": [row.asDict() for row in by_partition(frame).collect()],
        "hot_keys": [
            row.asDict() | {"key": bytes(row.key).decode(errors="backslashreplace")}
            for row in hot_keys(frame).collect()
        ],
        "busiest_minute_rate": busiest_minute(frame),
    }
    if partitions:
        spread = [row.bytes for row in spread_over(frame, partitions).collect()]
        mean = sum(spread) / partitions
        found["fullest"] = max(spread, default=0) / mean if mean else 0.0
    return found


if __name__ == "__main__":
    main()
