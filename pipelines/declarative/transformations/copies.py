"""A topic into a table, a view that counts it, and what came on into another topic."""

from typing import Any

from pyspark import pipelines
from pyspark.sql import DataFrame, SparkSession

spark: Any = SparkSession.active()
SERVERS = {"kafka.bootstrap.servers": spark.conf.get("servers")}

pipelines.create_sink(
    "copied", "odradek", {**SERVERS, "topic": spark.conf.get("sink"), "exactlyOnce": "true"}
)


@pipelines.table
def records() -> DataFrame:
    """Every record of the topic, as it comes."""
    reader = spark.readStream.format("odradek").options(**SERVERS)
    reader = reader.option("subscribe", spark.conf.get("source"))
    return reader.option("startingOffsets", "earliest").load()


@pipelines.materialized_view
def records_by_partition() -> DataFrame:
    """How many there are in each partition."""
    return spark.read.table("records").groupBy("partition").count()


@pipelines.append_flow(target="copied")
def copies() -> DataFrame:
    """Keys and values, on into the other topic."""
    return spark.readStream.table("records").selectExpr("key", "value")
