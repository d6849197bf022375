"""Copies topic `chaos` to topic `copied` and to Parquet, exactly once, until it is killed.

    PYSPARK_SUBMIT_ARGS='--master ... pyspark-shell' python copying.py HOST:PORT DIRECTORY [finish]
    spark-submit --master ... copying.py HOST:PORT DIRECTORY [finish]

With `finish` it ends when it has copied all records.
"""

import sys

from pyspark.sql import SparkSession

from odradek.spark.java import prepare


def main(servers: str, folder: str, *finish: str) -> None:
    prepare()
    builder = SparkSession.builder.config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.warehouse.dir", f"{folder}/warehouse").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    common = {"kafka.bootstrap.servers": servers}
    rows = (
        spark.readStream.format("odradek")
        .options(**common, subscribe="chaos", startingOffsets="earliest")
        .option("maxOffsetsPerTrigger", "300" if not finish else "20000")
        .load()
        .selectExpr("key", "value")
    )
    trigger = {"availableNow": True} if finish else {"processingTime": "0 seconds"}
    queries = [
        rows.writeStream.format("odradek")
        .options(**common, topic="copied", exactlyOnce="true")
        .option("checkpointLocation", f"{folder}/to-topic")
        .trigger(**trigger)
        .start(),
        rows.writeStream.format("parquet")
        .option("checkpointLocation", f"{folder}/to-parquet")
        .option("path", f"{folder}/parquet")
        .trigger(**trigger)
        .start(),
    ]
    for query in queries:
        query.awaitTermination()
    found = spark.read.parquet(f"{folder}/parquet").selectExpr("cast(value AS string) AS value")
    found.coalesce(1).write.mode("overwrite").csv(f"{folder}/result")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
