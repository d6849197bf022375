"""Save a topic to Parquet, and restore it.

    python pipelines/archive.py save --bootstrap-server HOST:PORT --topic orders --to archive/
    python pipelines/archive.py restore --bootstrap-server HOST:PORT --topic copy --from archive/

`save` may be repeated: it continues where it stopped. It keeps every column of the records, also
headers and offsets, in one folder for each partition. `restore` writes the records to their former
partitions and in their order, in one transaction for each task. Beside the archive it writes a
table `offsets` with the new offset at which each partition's records begin.
"""

import argparse
import pathlib

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from odradek.client import arrow
from odradek.spark.java import prepare


def save(spark: SparkSession, servers: str, topic: str, to: pathlib.Path) -> int:
    """Archive the records since the last run. Returns their number."""
    query = (
        spark.readStream.format("odradek")
        .options(**{"kafka.bootstrap.servers": servers, "subscribe": topic})
        .options(startingOffsets="earliest", includeHeaders="true")
        .options(**{"kafka.isolation.level": "read_committed"})
        .load()
        .drop("topic")
        .writeStream.format("parquet")
        .partitionBy("partition")
        .option("checkpointLocation", str(to / "checkpoint"))
        .option("path", str(to / "records"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sum(progress.numInputRows for progress in query.recentProgress)


def restore(spark: SparkSession, servers: str, topic: str, source: pathlib.Path) -> int:
    """Write the archive to a topic. Returns the number of records."""
    begins = {number: there.end for number, there in arrow.offsets_of(servers, topic).items()}
    records = spark.read.parquet(str(source / "records"))
    (
        records.repartition("partition")
        .sortWithinPartitions("partition", "offset")
        .select("key", "value", "headers", "partition")
        .write.format("odradek")
        .mode("append")
        .options(**{"kafka.bootstrap.servers": servers, "topic": topic, "exactlyOnce": "true"})
        .save()
    )
    firsts = records.groupBy("partition").agg(
        F.min("offset").alias("old_offset"), F.count(F.lit(1)).alias("records")
    )
    rows = [
        (row.partition, row.old_offset, begins[row.partition], row.records)
        for row in firsts.collect()
    ]
    spark.createDataFrame(
        rows, "partition int, old_offset bigint, new_offset bigint, records bigint"
    ).coalesce(1).write.mode("overwrite").parquet(str(source / "offsets"))
    return sum(row[3] for row in rows)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["save", "restore"])
    parser.add_argument("--bootstrap-server", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--to", "--from", dest="folder", required=True, type=pathlib.Path)
    given = parser.parse_args()
    prepare()
    spark = SparkSession.builder.master("local[*]").appName("archive").getOrCreate()
    work = save if given.what == "save" else restore
    count = work(spark, given.bootstrap_server, given.topic, given.folder)
    print(f"{count:,} records")
    spark.stop()


if __name__ == "__main__":
    main()
