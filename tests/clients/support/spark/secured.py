"""Writes and reads a topic with each set of properties; prints the results as JSON.

python secured.py TOPIC '{"name": {"kafka.security.protocol": ...}, ...}'
"""

import json
import sys

from pyspark.sql import SparkSession

from odradek.spark.java import prepare

ROWS = 100


def play(spark: SparkSession, topic: str, options: dict[str, str]) -> str:
    """`ok`, or the error text."""
    rows = spark.range(ROWS).selectExpr("string(id) AS key", "string(id) AS value")
    try:
        rows.write.format("odradek").mode("append").options(**options, topic=topic).save()
        reader = spark.read.format("odradek").options(**options, subscribe=topic)
        values = {bytes(row.value) for row in reader.load().collect()}
    except Exception as error:
        return str(error)
    return "ok" if values == {b"%d" % n for n in range(ROWS)} else f"{len(values)} values"


def read(spark: SparkSession, topic: str, options: dict[str, str]) -> str:
    """The error of a streaming query that only reads."""
    reader = spark.readStream.format("odradek").options(**options, subscribe=topic)
    query = reader.load().writeStream.format("noop").trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    except Exception as error:
        return str(error)
    return "ok"


def main(topic: str, cases: dict[str, dict[str, str]]) -> None:
    """Run all cases in one session."""
    prepare()
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    reported = {
        name: {"batch": play(spark, topic, options), "stream": read(spark, topic, options)}
        for name, options in cases.items()
    }
    spark.stop()
    print(json.dumps(reported), flush=True)  # noqa: T201 - for the test


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
