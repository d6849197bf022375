"""Save a topic to Parquet, and restore it.

    python pipelines/archive.py save --bootstrap-server HOST:PORT --topic orders --to archive/
    python pipelines/archive.py restore --bootstrap-server HOST:PORT --topic copy --from archive/

`save` may be repeated: it continues where it stopped. It keeps every column of the records, also
headers, timestamps and offsets, in one folder for each partition. `restore` writes the records with
their timestamps to their former partitions and in their order, each partition in one transaction.
It may be repeated, too: partitions that have these records are left out, and one that has others is
refused. Beside the archive it writes a table `offsets` with the new offset at which each
partition's records begin.

The folder is read and written by every machine that runs tasks: with a cluster of machines, name
one that all of them have (s3a:, hdfs:, a shared mount). --command-config names a file of client
properties, as for Kafka's tools.
"""

import argparse
import json
import pathlib
import sys
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from odradek.cli.connect import properties_of
from odradek.spark.java import prepare


class RestoreError(Exception):
    """The topic has other records than the archive."""


def kafka(servers: str, properties: Mapping[str, str]) -> dict[str, str]:
    """The options of a source or sink that connect it."""
    return {
        **{f"kafka.{name}": value for name, value in properties.items()},
        "kafka.bootstrap.servers": servers,
    }


def save(
    spark: SparkSession,
    servers: str,
    topic: str,
    to: str | pathlib.Path,
    properties: Mapping[str, str] = {},
) -> int:
    """Archive the records since the last run. Returns their number."""
    query = (
        spark.readStream.format("odradek")
        .options(**kafka(servers, properties), subscribe=topic)
        .options(startingOffsets="earliest", includeHeaders="true")
        .options(**{"kafka.isolation.level": "read_committed"})
        .load()
        .drop("topic")
        .writeStream.format("parquet")
        .partitionBy("partition")
        .option("checkpointLocation", f"{to}/checkpoint")
        .option("path", f"{to}/records")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sum(progress.numInputRows for progress in query.recentProgress)


def restore(
    spark: SparkSession,
    servers: str,
    topic: str,
    source: str | pathlib.Path,
    properties: Mapping[str, str] = {},
) -> int:
    """Write what a topic does not have of the archive. Returns the number of records written.

    Raises:
        RestoreError: a partition has other records than the archive; nothing is written.
    """
    records = spark.read.parquet(f"{source}/records")
    archived = sums(records)
    there = sums(topic_records(spark, servers, topic, properties))
    for number, found in there.items():
        if found[:2] != archived.get(number, (0, 0))[:2]:
            raise RestoreError(
                f"partition {number} of {topic} has {found[0]} records which are not those of "
                f"{source}: restore to an empty topic"
            )
    missing = sorted(set(archived) - set(there))
    if missing:
        (
            records.where(F.col("partition").isin(missing))
            .repartition("partition")
            .sortWithinPartitions("partition", "offset")
            .select("key", "value", "headers", "timestamp", "partition")
            .write.format("odradek")
            .mode("append")
            .options(**kafka(servers, properties), topic=topic, exactlyOnce="true")
            .save()
        )
    begins = sums(topic_records(spark, servers, topic, properties))
    rows = [
        (number, old_offset, begins[number][2], count)
        for number, (count, _, old_offset) in archived.items()
    ]
    spark.createDataFrame(
        rows, "partition int, old_offset bigint, new_offset bigint, records bigint"
    ).coalesce(1).write.mode("overwrite").parquet(f"{source}/offsets")
    return sum(archived[number][0] for number in missing)


def topic_records(
    spark: SparkSession, servers: str, topic: str, properties: Mapping[str, str]
) -> DataFrame:
    """The committed records of a topic."""
    return (
        spark.read.format("odradek")
        .options(**kafka(servers, properties), subscribe=topic)
        .options(**{"kafka.isolation.level": "read_committed"})
        .load()
    )


def sums(frame: DataFrame) -> dict[int, tuple[int, int, int]]:
    """The number of records, a checksum and the first offset of each partition that has records."""
    found = frame.groupBy("partition").agg(
        F.count(F.lit(1)).alias("records"),
        F.sum(F.hash("key", "value", "timestamp").cast("bigint")).alias("sum"),
        F.min("offset").alias("first"),
    )
    return {row.partition: (row.records, row["sum"], row["first"]) for row in found.collect()}


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["save", "restore"])
    parser.add_argument("--bootstrap-server", required=True)
    parser.add_argument("--command-config", help="a file of client properties")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--to", "--from", dest="folder", required=True)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args()
    prepare()
    # The master is that of spark-submit; without one Spark takes local[*].
    spark = SparkSession.builder.appName("archive").getOrCreate()
    work = save if given.what == "save" else restore
    properties = properties_of(given.command_config)
    try:
        count = work(spark, given.bootstrap_server, given.topic, given.folder, properties)
    except RestoreError as error:
        sys.exit(f"archive: {error}")
    finally:
        spark.stop()
    report = {"done": given.what, "topic": given.topic, "records": count}
    print(json.dumps(report) if given.json else f"{count:,} records")


if __name__ == "__main__":
    main()
