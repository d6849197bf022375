"""A Spark job: departures joined with the weather, and delays by airport and hour.

    python -m odradek_demo.departures --bootstrap-server localhost:9092 --out delays/

Two streaming queries, which run until standard input ends and then process what is available:

    flights + weather  ->  topic `delays`      exactly once: a transaction for each task
    delays             ->  Parquet             read_committed

Topics `flights` and `weather` have JSON values as `odradek produce` writes them. An hour is
written when the watermark has passed it, so it needs flights that are later by `LATENESS`. For
each trigger one JSON object is printed with the query, the batch, its rows, rows a second, and
the query's lag in records.

`odradek demo` runs this job; it is also an example for jobs of your own.
"""

import argparse
import json
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's usual name
from pyspark.sql.streaming import StreamingQuery

from odradek.spark.java import prepare
from odradek.spark.lag import lag_of

_REPORT_S: Final = 0.5
LATENESS: Final = "40 days"
LATE_MINUTES: Final = 15
FLIGHT: Final = "origin string, time_hour timestamp, dep_time double, dep_delay double"
WEATHER: Final = (
    "origin string, time_hour timestamp, temp double, wind_speed double, precip double, "
    "visib double"
)
DELAY: Final = (
    "origin string, time_hour timestamp, flights bigint, departed bigint, delay_sum double, "
    "delay_max double, late bigint, temp double, wind_speed double, precip double, visib double"
)


def values(frame: DataFrame, schema: str) -> DataFrame:
    """The fields of JSON values; null where a value cannot be parsed.

    Fields are read as text and then cast, because rows of a CSV file have only text, and "" for
    null.
    """
    fields = [field.split() for field in schema.split(", ")]
    texts = ", ".join(f"{name} string" for name, _ in fields)
    parsed = frame.select(F.from_json(F.col("value").cast("string"), texts).alias("v"))
    return parsed.select(
        *(F.expr(f"try_cast(v.{name} AS {kind})").alias(name) for name, kind in fields)
    )


def delays(flights: DataFrame, weather: DataFrame) -> DataFrame:
    """For each airport and hour: flights, departures, delays, and the weather."""
    with_weather = flights.withWatermark("time_hour", LATENESS).join(
        F.broadcast(weather), ["origin", "time_hour"], "left"
    )
    return with_weather.groupBy("origin", "time_hour", "temp", "wind_speed", "precip", "visib").agg(
        F.count(F.lit(1)).alias("flights"),
        F.count("dep_time").alias("departed"),
        F.sum("dep_delay").alias("delay_sum"),
        F.max("dep_delay").alias("delay_max"),
        F.sum((F.col("dep_delay") >= LATE_MINUTES).cast("bigint")).alias("late"),
    )


class Job:
    """The two queries on one cluster."""

    def __init__(self, spark: SparkSession, servers: str, out: str, records_max: int) -> None:
        self._spark = spark
        self._servers = {"kafka.bootstrap.servers": servers}
        self._out = out
        self._records_max = records_max

    def start(self) -> list[StreamingQuery]:
        """Start the queries, the one that writes the topic `delays` first."""
        weather = values(self._read("weather"), WEATHER).cache()
        summary = delays(values(self._stream("flights"), FLIGHT), weather)
        fields = F.struct(*[part.split()[0] for part in DELAY.split(", ")])
        to_topic = (
            summary.select(
                F.col("origin").alias("key"),
                F.to_json(fields, {"ignoreNullFields": "false"}).alias("value"),
            )
            .writeStream.format("odradek")
            .options(**self._servers, topic="delays", exactlyOnce="true")
            .option("checkpointLocation", f"{self._out}/checkpoints/delays")
            .queryName("delays")
            .start()
        )
        committed = self._stream("delays", **{"kafka.isolation.level": "read_committed"})
        to_parquet = (
            values(committed, DELAY)
            .writeStream.format("parquet")
            .option("checkpointLocation", f"{self._out}/checkpoints/parquet")
            .option("path", f"{self._out}/parquet")
            .queryName("parquet")
            .start()
        )
        return [to_topic, to_parquet]

    def _read(self, topic: str) -> DataFrame:
        reader = self._spark.read.format("odradek").options(**self._servers, subscribe=topic)
        return reader.option("columns", "value").load()

    def _stream(self, topic: str, **options: str) -> DataFrame:
        return (
            self._spark.readStream.format("odradek")
            .options(**self._servers, subscribe=topic, startingOffsets="earliest", columns="value")
            .options(maxOffsetsPerTrigger=str(self._records_max), **options)
            .load()
        )


def progress(query: StreamingQuery, reported: dict[str, int]) -> None:
    """Print the triggers that were not printed yet.

    Raises:
        StreamingQueryException: the query has failed.
    """
    failure = query.exception()
    if failure is not None:
        raise failure
    for each in query.recentProgress:
        if each.batchId > reported.get(query.name, -1):
            reported[query.name] = each.batchId
            line: dict[str, Any] = {
                "query": query.name,
                "batch": each.batchId,
                "rows": each.numInputRows,
                "rows_per_s": round(each.processedRowsPerSecond or 0),
                "lag": sum(lag_of(each).values()),
                "ms": each.durationMs.get("triggerExecution", 0),
            }
            print(json.dumps(line), flush=True)


def finish(query: StreamingQuery, report: Callable[[], None]) -> None:
    """Let a query process what is available, and report meanwhile."""
    work = threading.Thread(target=query.processAllAvailable, daemon=True)
    work.start()
    while work.is_alive():
        work.join(_REPORT_S)
        report()


def main() -> None:
    """Run until standard input ends; each line of it requests a progress report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bootstrap-server", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--max-records", type=int, default=60_000, help="of a trigger")
    given = parser.parse_args()
    prepare()
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("departures")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", f"{given.out}/warehouse")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    queries = Job(spark, given.bootstrap_server, given.out, given.max_records).start()
    print(json.dumps({"started": [query.name for query in queries]}), flush=True)
    reported: dict[str, int] = {}

    def report() -> None:
        for query in queries:
            progress(query, reported)

    for _ in sys.stdin:
        report()
        print(json.dumps({"reported": True}), flush=True)
    for query in queries:
        finish(query, report)
    for query in queries:
        query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
