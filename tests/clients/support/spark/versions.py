"""The format with this PySpark and this Python; prints the results as JSON.

python versions.py HOST:PORT DIRECTORY PREFIX
"""

import json
import pathlib
import platform
import sys

import pyspark
from pyspark.sql import SparkSession

from odradek.spark import register
from odradek.spark.java import prepare

ROWS = 500


class Versions:
    """Each case on topics of its own."""

    def __init__(self, spark: SparkSession, servers: str, folder: pathlib.Path, prefix: str):
        self.spark = spark
        self.servers = {"kafka.bootstrap.servers": servers}
        self.folder = folder
        self.prefix = prefix

    def batch(self, topic: str, **options: str) -> int:
        """Write and read; returns the number of values read."""
        rows = self.spark.range(ROWS).selectExpr("string(id) AS key", "string(id) AS value")
        named = {**self.servers, "topic": self.prefix + topic}
        rows.write.format("odradek").mode("append").options(**named, **options).save()
        return len(self.values(topic, **{"kafka.isolation.level": "read_uncommitted"}))

    def values(self, topic: str, **options: str) -> set[int]:
        reader = self.spark.read.format("odradek").options(**self.servers, **options)
        rows = reader.options(subscribe=self.prefix + topic).load().select("value").collect()
        return {int(row.value) for row in rows}

    def stream(self, source: str, sink: str) -> int | str:
        """The number of values copied, or the error."""
        try:
            reader = self.spark.readStream.format("odradek").options(**self.servers)
            frame = reader.options(subscribe=self.prefix + source, startingOffsets="earliest")
            writer = frame.load().selectExpr("key", "value").writeStream.format("odradek")
            query = (
                writer.options(**self.servers, topic=self.prefix + sink, exactlyOnce="true")
                .option("checkpointLocation", str(self.folder / self.prefix))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
        except Exception as error:
            return str(error)
        return len(self.values(sink))


def main(servers: str, folder: str, prefix: str) -> None:
    prepare()
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    register(spark)
    play = Versions(spark, servers, pathlib.Path(folder), prefix)
    reported = {
        "pyspark": pyspark.__version__,
        "python": platform.python_version(),
        "batch": play.batch("plain"),
        "exactly once": play.batch("once", exactlyOnce="true"),
        "stream": play.stream("plain", "streamed"),
    }
    spark.stop()
    print(json.dumps(reported), flush=True)  # noqa: T201 - for the test


if __name__ == "__main__":
    main(*sys.argv[1:])
