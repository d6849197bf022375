"""Copy what can be parsed to one topic, and the rest to another: a dead-letter topic.

    python examples/spark/dead_letters.py HOST:PORT SOURCE GOOD DEAD CHECKPOINT

One query writes to both topics, by the column `topic`. With exactlyOnce each record of the source
is in just one of them, once. A dead letter has the key and value of its record, and headers that
say why it is there and from where: error, source topic, partition and offset.
"""

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from odradek.spark.java import prepare

SCHEMA = "number bigint, item string, amount double, _corrupt string"


def sorted_out(records: DataFrame, good: str, dead: str) -> DataFrame:
    """Rows for the sink: `records` with a topic and, if they are dead letters, with headers."""
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_corrupt"}
    parsed = records.withColumn("parsed", F.from_json(F.expr("string(value)"), SCHEMA, options))
    # The first reason that applies; without one the record is good.
    error = F.expr(
        "CASE WHEN value IS NULL THEN 'no value' "
        "WHEN parsed IS NULL OR parsed._corrupt IS NOT NULL THEN 'not JSON of the schema' "
        "WHEN parsed.number IS NULL THEN 'no number' END"
    )
    headers = F.expr(
        "array("
        "struct('error' AS key, binary(error) AS value), "
        "struct('source.topic' AS key, binary(topic) AS value), "
        "struct('source.partition' AS key, binary(string(partition)) AS value), "
        "struct('source.offset' AS key, binary(string(offset)) AS value))"
    )
    return (
        parsed.withColumn("error", error)
        .withColumn("headers", F.when(F.col("error").isNotNull(), headers))
        .withColumn("topic", F.when(F.col("error").isNull(), F.lit(good)).otherwise(F.lit(dead)))
        .select("topic", "key", "value", "headers")
    )


def main(servers: str, source: str, good: str, dead: str, checkpoint: str) -> None:
    """Sort out what the topic has now, and end. Without the trigger, the query runs on."""
    prepare()
    spark = SparkSession.builder.appName("dead letters").getOrCreate()
    reader = spark.readStream.format("odradek").option("kafka.bootstrap.servers", servers)
    records = reader.options(subscribe=source, startingOffsets="earliest").load()
    query = (
        sorted_out(records, good, dead)
        .writeStream.format("odradek")
        .options(exactlyOnce="true", checkpointLocation=checkpoint)
        .option("kafka.bootstrap.servers", servers)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
