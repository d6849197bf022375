"""Spark's connector and our data source on one cluster, each reading the other's records.

    python both.py HOST:PORT JARS DIRECTORY

Prints one JSON object: for each case, whether what was read is what was written.
"""

import json
import pathlib
import sys
import time
from collections.abc import Callable

from compared import Compared
from pyspark.sql import DataFrame, SparkSession

from odradek.spark.java import prepare

ROWS = 2_000


class Both:
    """The cases, on topics of their own."""

    def __init__(self, spark: SparkSession, servers: str, folder: pathlib.Path) -> None:
        self.spark = spark
        self.servers = {"kafka.bootstrap.servers": servers}
        self.folder = folder

    def rows(self) -> DataFrame:
        return self.spark.range(ROWS).selectExpr("string(id) AS key", "repeat(id, 3) AS value")

    def write(self, engine: str, topic: str, **options: str) -> None:
        writer = self.rows().write.format(engine).mode("append")
        writer.options(**self.servers, topic=topic, **options).save()

    def read(self, engine: str, topic: str, **options: str) -> list[tuple[object, ...]]:
        reader = self.spark.read.format(engine)
        frame = reader.options(**self.servers, subscribe=topic, **options).load()
        return sorted(map(tuple, frame.selectExpr("*").collect()), key=str)

    def same(self, topic: str, **options: str) -> bool:
        """Whether both read the same, column for column, and as many as were written."""
        theirs = self.read("kafka", topic, **options)
        return len(theirs) == ROWS and theirs == self.read("odradek", topic, **options)

    def stream(self, reading: str, writing: str, source: str, sink: str, **options: str) -> None:
        query = (
            self.spark.readStream.format(reading)
            .options(**self.servers, subscribe=source, startingOffsets="earliest")
            .option("maxOffsetsPerTrigger", str(ROWS // 2))
            .load()
            .selectExpr("key", "value")
            .writeStream.format(writing)
            .options(**self.servers, topic=sink, **options)
            .option("checkpointLocation", str(self.folder / sink))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def cases(self) -> dict[str, Callable[[], bool]]:
        committed = {"kafka.isolation.level": "read_committed"}

        def wrote(engine: str) -> bool:
            self.write(engine, f"by-{engine}")
            return self.same(f"by-{engine}")

        def codec(name: str) -> bool:
            self.write("odradek", f"codec-{name}", **{"kafka.compression.type": name})
            return self.same(f"codec-{name}")

        def once() -> bool:
            self.write("odradek", "once", exactlyOnce="true")
            self.stream("odradek", "odradek", "once", "once-streamed", exactlyOnce="true")
            # Markers are written a moment after the commit, and only then readers see it.
            deadline_s = time.monotonic() + 60
            while not self.same("once-streamed", **committed):
                if time.monotonic() > deadline_s:
                    return False
            return True

        def crossing(reading: str, writing: str) -> bool:
            sink = f"{reading}-to-{writing}"
            self.stream(reading, writing, "by-kafka", sink)
            return self.same(sink)

        return {
            "the connector writes": lambda: wrote("kafka"),
            "ours writes": lambda: wrote("odradek"),
            **{f"ours writes {name}": lambda name=name: codec(name)
               for name in ("gzip", "snappy", "lz4", "zstd")},
            "a stream by the connector": lambda: crossing("kafka", "kafka"),
            "a stream from ours to the connector": lambda: crossing("odradek", "kafka"),
            "a stream from the connector to ours": lambda: crossing("kafka", "odradek"),
            "exactly once": once,
        }  # fmt: skip


def attempt(case: Callable[[], bool]) -> bool | str:
    """What a case returns, or its error."""
    try:
        return case()
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:500]


def main(servers: str, jars: str, folder: str) -> None:
    prepare()
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    where = (spark, servers, pathlib.Path(folder))
    cases = Both(*where).cases() | Compared(*where).cases()
    outcome = {name: attempt(case) for name, case in cases.items()}
    spark.stop()
    print(json.dumps(outcome), flush=True)  # noqa: T201 - for the test


if __name__ == "__main__":
    main(*sys.argv[1:])
