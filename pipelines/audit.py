"""Check that all replicas of a partition hold the same batches, from the segment files.

    python pipelines/audit.py broker-0=/data/kafka-0 broker-1=/data/kafka-1 broker-2=/data/kafka-2

Each argument is a name and a log directory. The brokers may run. The job reads all batches below
the lowest high watermark that a directory has checkpointed for the partition. It checks lengths,
checksums, rising offsets and leader epochs, and that every replica that begins early enough has an
identical batch. Each broker cleans compacted topics at its own time, so their batches may differ:
exclude these topics with --without. The exit code is 1 if there is a problem.

Every machine that runs tasks has to have all these directories, under the same paths: run it on one
machine, or mount the directories (read-only) on all. Files are read in slices of 8 MiB, so a task
needs some 50 MiB beside what Spark itself needs, or several times the largest batch.
"""

import argparse
import json
import pathlib
import socket
import sys
from collections.abc import Collection, Iterator
from itertools import chain, islice
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
SLICE_BYTES = 8 << 20
BATCH_BYTES_MAX = 256 << 20  # a length above it is damage
ROWS = 8_192
_LENGTH_AT, _HEAD_BYTES = 8, 12  # a batch begins with its base offset and its length


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
        rows = chain.from_iterable(map(_read, named.to_pylist()))
        while some := list(islice(rows, ROWS)):
            yield pa.RecordBatch.from_pylist(some, schema=_SCHEMA)


def slices(path: str | pathlib.Path) -> Iterator[memoryview]:
    """The bytes of a segment, cut between batches; the last slice may end within one."""
    rest = b""
    with open(path, "rb") as file:
        while read := file.read(SLICE_BYTES):
            rest += read
            whole = _whole_bytes(rest)
            if whole:
                yield memoryview(rest)[:whole]
                rest = rest[whole:]
            elif len(rest) > BATCH_BYTES_MAX:
                break
    if rest:
        yield memoryview(rest)


def _whole_bytes(data: bytes) -> int:
    """How many bytes whole batches take at the beginning; all, if a length is impossible."""
    position = 0
    while position + _HEAD_BYTES <= len(data):
        length = int.from_bytes(data[position + _LENGTH_AT : position + _HEAD_BYTES], signed=True)
        if length <= 0:
            return len(data)
        if position + _HEAD_BYTES + length > len(data):
            break
        position += _HEAD_BYTES + length
    return position


_SCHEMA = pa.schema([
    ("replica", pa.string()), ("name", pa.string()), ("base_offset", pa.int64()),
    ("next_offset", pa.int64()), ("epoch", pa.int32()), ("crc", pa.int64()),
    ("problem", pa.string()),
])  # fmt: skip


def _read(segment: dict[str, str]) -> Iterator[dict[str, Any]]:
    place = {"replica": segment["replica"], "name": segment["name"]}
    due = int(pathlib.Path(segment["path"]).stem)
    epoch = -1
    try:
        for view in slices(segment["path"]):
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
    except (ApiError, OSError) as error:
        problem = str(error)
        if isinstance(error, OSError):
            problem = (
                f"{segment['path']} cannot be read on {socket.gethostname()}: {error.strerror}"
            )
        yield {
            **place, "base_offset": due, "next_offset": due + 1, "epoch": epoch, "crc": -1,
            "problem": problem,
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


def _as_json(row: Any) -> dict[str, Any]:
    return {"partition": row.name, "offset": row.base_offset, "problem": row.problem}


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("replicas", nargs="+", metavar="NAME=DIRECTORY")
    parser.add_argument("--without", default="__consumer_offsets,__transaction_state")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args()
    replicas = {
        name: pathlib.Path(folder)
        for name, _, folder in (each.partition("=") for each in given.replicas)
    }
    for name, folder in replicas.items():
        if not (folder / CHECKPOINT).is_file():
            parser.error(f"{name}={folder} has no {CHECKPOINT}: name a broker's log directory")
    prepare()
    # The master is that of spark-submit; without one Spark takes local[*].
    spark = SparkSession.builder.appName("audit").getOrCreate()
    problems = audit(spark, replicas, set(given.without.split(","))).collect()
    spark.stop()
    if given.json:
        print(json.dumps({"problems": [_as_json(row) for row in problems]}))
    else:
        for row in problems:
            print(f"{row.name} at offset {row.base_offset}: {row.problem}")
        print(f"{len(problems)} problems")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
