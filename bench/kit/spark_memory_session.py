"""One Spark session that reads or writes a lot; one JSON object on stdout.

Started by bench/spark_memory.py, once for each case: python spark_memory_session.py JSON
"""

import json
import sys
import tempfile
import time
from typing import Any

from pyspark.sql import SparkSession

from odradek.spark.java import prepare

TRIGGERS = 50
FETCH_BYTES = 64 << 10


def read(spark: SparkSession, given: dict[str, Any]) -> int:
    reader = spark.read.format("odradek").options(**given["options"], subscribe=given["topic"])
    return int(reader.load().selectExpr("sum(length(value)) > 0", "count(*)").collect()[0][1])


def stream(spark: SparkSession, given: dict[str, Any]) -> int:
    with tempfile.TemporaryDirectory() as checkpoint:
        reader = spark.readStream.format("odradek").options(
            **given["options"], subscribe=given["topic"], startingOffsets="earliest"
        )
        reader.option("maxOffsetsPerTrigger", str(given["backlog"] // TRIGGERS))
        reader.option("kafka.max.partition.fetch.bytes", str(FETCH_BYTES))
        query = (
            reader.load()
            .groupBy()
            .count()
            .writeStream.format("memory")
            .outputMode("complete")
            .queryName("counted")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    return int(spark.table("counted").collect()[0][0])


def write(spark: SparkSession, given: dict[str, Any], *, once: bool) -> int:
    pieces = "1000" if once else "1"
    rows = spark.range(given["records"]).selectExpr(
        "string(id) AS key", f"repeat(rpad(hex(rand()), 1000, '.'), {pieces}) AS value"
    )
    rows.write.format("odradek").mode("append").options(
        **given["options"], topic=given["topic"], exactlyOnce=str(once).lower()
    ).option("kafka.compression.type", "zstd").option("kafka.max.request.size", str(4 << 20)).save()
    return int(given["records"])


def main(given: dict[str, Any]) -> None:
    prepare()
    given["options"] = {"kafka.bootstrap.servers": given["servers"]}
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.memory", "1g")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    begun_s = time.monotonic()
    match given["case"]:
        case "stream":
            rows = stream(spark, given)
        case "write" | "write once":
            rows = write(spark, given, once=given["case"] == "write once")
        case _:
            rows = read(spark, given)
    taken_s = time.monotonic() - begun_s
    spark.stop()
    print(json.dumps({"rows": rows, "seconds": taken_s}), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
