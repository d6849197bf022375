"""Check that all replicas of a partition hold the same batches, from the segment files.

    python pipelines/audit.py broker-0=/data/kafka-0 broker-1=/data/kafka-1 broker-2=/data/kafka-2

Each argument is a name and a log directory. The brokers may run. The job reads all batches below
the lowest high watermark that a directory has checkpointed for the partition. It checks lengths,
checksums, rising offsets and leader epochs, and that every replica that begins early enough has an
identical batch. Each broker cleans compacted topics at its own time, so their batches may differ:
exclude these topics with --without. The exit code is 1 if there is a problem.
"""

import argparse
import pathlib
import sys
from collections.abc import Collection, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from odradek.log.checkpoints import decode_offsets
from odradek.model.errors import ApiError
from odradek.record.batch import has_valid_crc, iter_batches
from odradek.spark.java import prepare

BATCH = (
    "replica string, name string, base_offset bigint, next_offset bigint, epoch int, crc bigint, "
    "problem string"
)
CHECKPOINT = "replication-offset-checkpoint"


def segments(
    replicas: dict[str, pathlib.Path], without: Collection[str]
) -> list[tuple[str, str, str]]:
    """Replica, partition and path of every segment."""
    return [
        (replica, file.parent.name, str(file))
        for replica, folder in replicas.items()
        for file in sorted(folder.glob("*-[0-9]*/*.log"))
        if file.parent.name.rpartition("-")[0] not in without
    ]


def high_watermarks(replicas: dict[str, pathlib.Path]) -> dict[str, int]:
    """The lowest checkpointed high watermark of each partition."""
    smallest: dict[str, int] = {}
    for folder in replicas.values():
        for partition, offset in decode_offsets((folder / CHECKPOINT).read_bytes()).items():
            name = str(partition)
            smallest[name] = min(offset, smallest.get(name, offset))
    return smallest


def read_segments(batches: Iterator[Any]) -> Iterator[Any]:
    """Each batch of the given files as a row; damage is a row with a problem."""
    for named in batches:
        rows = [row for each in named.to_pylist() for row in _read(each)]
        yield pa.RecordBatch.from_pylist(rows, schema=_SCHEMA)


_SCHEMA = pa.schema([
    ("replica", pa.string()), ("name", pa.string()), ("base_offset", pa.int64()),
    ("next_offset", pa.int64()), ("epoch", pa.int32()), ("crc", pa.int64()),
    ("problem", pa.string()),
])  # fmt: skip


def _read(segment: dict[str, str]) -> Iterator[dict[str, Any]]:
    place = {"replica": segment["replica"], "name": segment["name"]}
    view = memoryview(pathlib.Path(segment["path"]).read_bytes())
    due = int(pathlib.Path(segment["path"]).stem)
    epoch = -1
    try:
        for position, header in iter_batches(view):
            problem = None
            if not has_valid_crc(view, position, header):
                problem = "the checksum is not that of the bytes"
            elif header.base_offset < due:
                problem = f"begins below the expected offset {due}"
            elif header.leader_epoch < epoch:
                problem = f"leader epoch {header.leader_epoch} after {epoch}"
            due, epoch = header.next_offset, header.leader_epoch
            yield {
                **place,
                "base_offset": header.base_offset,
                "next_offset": header.next_offset,
                "epoch": header.leader_epoch,
                "crc": header.crc,
                "problem": problem,
            }
    except ApiError as error:
        yield {
            **place, "base_offset": due, "next_offset": due + 1, "epoch": epoch, "crc": -1,
            "problem": str(error),
        }  # fmt: skip


def audit(
    spark: SparkSession, replicas: dict[str, pathlib.Path], without: Collection[str] = ()
) -> DataFrame:
    """The problems: partition, offset and sentence."""
    found = segments(replicas, without)
    files = spark.createDataFrame(found, "replica string, name string, path string")
    read = files.repartition(max(1, min(len(found), 64))).mapInArrow(read_segments, BATCH)
    marks = [(name, mark) for name, mark in high_watermarks(replicas).items()]
    below = (
        read.join(
            F.broadcast(spark.createDataFrame(marks, "name string, high_watermark bigint")), "name"
        )
        .where("base_offset < high_watermark")
        .cache()
    )
    damaged = below.where("problem IS NOT NULL").select(
        "name", "base_offset", F.concat_ws(": ", "replica", "problem").alias("problem")
    )
    begins = below.groupBy("replica", "name").agg(F.min("base_offset").alias("begins"))
    holders = begins.groupBy("name").agg(
        F.collect_list(F.struct("begins", "replica")).alias("holders")
    )
    batches = below.groupBy("name", "base_offset").agg(
        F.collect_set("replica").alias("there"),
        F.countDistinct("crc", "next_offset", "epoch").alias("kinds"),
    )
    differing = (
        batches.join(holders, "name")
        .withColumn(
            "due",
            F.expr("transform(filter(holders, h -> h.begins <= base_offset), h -> h.replica)"),
        )
        .withColumn("missing", F.array_except("due", "there"))
        .where("kinds > 1 OR size(missing) > 0")
        .select(
            "name",
            "base_offset",
            F.when(F.col("kinds") > 1, F.lit("replicas hold different batches"))
            .otherwise(F.concat(F.lit("missing on "), F.concat_ws(", ", "missing")))
            .alias("problem"),
        )
    )
    return damaged.unionByName(differing).orderBy("name", "base_offset", "problem")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("replicas", nargs="+", metavar="NAME=DIRECTORY")
    parser.add_argument("--without", default="__consumer_offsets,__transaction_state")
    given = parser.parse_args()
    replicas = {
        name: pathlib.Path(folder)
        for name, _, folder in (each.partition("=") for each in given.replicas)
    }
    prepare()
    spark = SparkSession.builder.master("local[*]").appName("audit").getOrCreate()
    problems = audit(spark, replicas, set(given.without.split(","))).collect()
    for row in problems:
        print(f"{row.name} at offset {row.base_offset}: {row.problem}")
    print(f"{len(problems)} problems")
    spark.stop()
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
