"""One Spark session that measures Spark's connector and ours in turns; JSON on stdout.

Started by bench/versus_spark_kafka.py, once for each kernel: python spark_session.py JSON
"""

import json
import pathlib
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from odradek.spark.java import prepare

# The settings that were measured to be the best for the connector.
TUNED = {
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.receive.buffer.bytes": str(4 << 20),
    "kafka.check.crcs": "false",
}
TUNED_WRITES = {"kafka.batch.size": str(256 << 10), "kafka.linger.ms": "20"}
READERS: dict[str, tuple[str, dict[str, str]]] = {
    "connector": ("kafka", {}),
    "tuned": ("kafka", TUNED),
    "ours": ("odradek", {}),
}
WRITERS: dict[str, tuple[str, dict[str, str]]] = {
    "connector": ("kafka", {}),
    "tuned": ("kafka", TUNED_WRITES),
    "ours": ("odradek", {}),
}


class Cases:
    """The cases, each a method that takes an engine."""

    def __init__(
        self, spark: SparkSession, servers: str, topics: dict[str, str], work: pathlib.Path
    ):
        self.spark = spark
        self.servers = servers
        self.topics = topics
        self.work = work

    def load(self, engine: str, topic: str) -> DataFrame:
        name, options = READERS[engine]
        given = {"kafka.bootstrap.servers": self.servers, "subscribe": self.topics[topic]}
        return self.spark.read.format(name).options(**given, **options).load()

    def count(self, engine: str) -> None:
        self.load(engine, "small").count()

    def parquet(self, engine: str) -> None:
        self.load(engine, "large").write.mode("overwrite").parquet(str(self.work / "out"))

    def tiny(self, engine: str) -> None:
        self.load(engine, "tiny").count()

    def write(self, engine: str) -> None:
        name, options = WRITERS[engine]
        rows = self.spark.read.parquet(str(self.work / "rows"))
        rows.write.format(name).mode("append").options(
            **{"kafka.bootstrap.servers": self.servers, "topic": self.topics["sink"]}, **options
        ).save()

    def drain(self, engine: str, batches: int, records: int) -> None:
        name, options = READERS[engine]
        given = {
            "kafka.bootstrap.servers": self.servers,
            "subscribe": self.topics["large"],
            "startingOffsets": "earliest",
        }
        if batches > 1:
            given["maxOffsetsPerTrigger"] = str(records // batches)
        checkpoint = tempfile.mkdtemp(dir=self.work)
        query = (
            self.spark.readStream.format(name)
            .options(**given, **options)
            .load()
            .selectExpr("length(value) AS n")
            .groupBy()
            .sum("n")
            .writeStream.format("memory")
            .outputMode("complete")
            .queryName("drained")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        shutil.rmtree(checkpoint)


def measure(case: Callable[[str], None], runs: int) -> dict[str, float]:
    """The median seconds of each engine; the order of engines alternates from run to run."""
    engines = list(READERS)
    taken: dict[str, list[float]] = {engine: [] for engine in engines}
    for run in range(runs):
        for engine in engines[run % 3 :] + engines[: run % 3]:
            begun_s = time.monotonic()
            case(engine)
            taken[engine].append(time.monotonic() - begun_s)
    return {engine: round(statistics.median(times), 3) for engine, times in taken.items()}


def main(given: dict[str, Any]) -> None:
    """Measure all cases and print the medians."""
    prepare()
    work = pathlib.Path(given["work"])
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(given["jars"]))
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(work / "warehouse"))
        .config("spark.driver.memory", "2g")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    cases = Cases(spark, given["servers"], given["topics"], work)
    (
        spark.range(given["written"])
        .selectExpr("string(id) AS key", "repeat('v', 90) AS value")
        .write.mode("overwrite")
        .parquet(str(work / "rows"))
    )
    for engine in READERS:  # to start workers and load classes
        cases.tiny(engine)
    records = given["large"]
    wanted: dict[str, Callable[[str], None]] = {
        "count": cases.count,
        "parquet": cases.parquet,
        "write": cases.write,
        "drain in 1": lambda engine: cases.drain(engine, 1, records),
        "drain in 10": lambda engine: cases.drain(engine, 10, records),
        "tiny": cases.tiny,
    }
    measured = {
        name: measure(case, given["runs"]) for name, case in wanted.items() if given["case"] in name
    }
    spark.stop()
    print(json.dumps(measured), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
