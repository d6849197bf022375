"""From a topic to a table, a view that counts its records, and another topic."""

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
    """Every record of the topic."""
    reader = spark.readStream.format("odradek").options(**SERVERS)
    reader = reader.option("subscribe", spark.conf.get("source"))
    return reader.option("startingOffsets", "earliest").load()


@pipelines.materialized_view
def records_by_partition() -> DataFrame:
    """The number of records in each partition."""
    return spark.read.table("records").groupBy("partition").count()


@pipelines.append_flow(target="copied")
def copies() -> DataFrame:
    """Keys and values, to the other topic."""
    return spark.readStream.table("records").selectExpr("key", "value")
