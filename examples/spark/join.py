"""Join two topics: each order with its payment, or without one after an hour.

    python examples/spark/join.py HOST:PORT ORDERS PAYMENTS JOINED CHECKPOINT

The key of a record is the order's number, and its timestamp is the time of the event. A payment
joins an order if it is made within an hour. The watermarks say how late a record may come: behind
them, Spark drops what it has kept for the join, and writes the orders that nobody has paid. So an
unpaid order is written when later records of both topics have moved both watermarks past its hour.
"""

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from odradek.spark.java import prepare


def topic(spark: SparkSession, servers: str, name: str) -> DataFrame:
    """The stream of a topic from its beginning."""
    reader = spark.readStream.format("odradek").option("kafka.bootstrap.servers", servers)
    return reader.options(subscribe=name, startingOffsets="earliest").load()


def joined(orders: DataFrame, payments: DataFrame) -> DataFrame:
    """Key and value (JSON with item, amount, ordered, paid) of each order."""
    left = orders.selectExpr(
        "string(key) AS number", "string(value) AS item", "timestamp AS ordered"
    ).withWatermark("ordered", "10 minutes")
    right = payments.selectExpr(
        "string(key) AS paid_number", "string(value) AS amount", "timestamp AS paid"
    ).withWatermark("paid", "20 minutes")
    is_payment = "number = paid_number AND paid BETWEEN ordered AND ordered + INTERVAL 1 HOUR"
    both = left.join(right, F.expr(is_payment), "left_outer")
    value = "to_json(struct(item, amount, ordered, paid), map('ignoreNullFields', 'false'))"
    return both.selectExpr("number AS key", f"{value} AS value")


def main(servers: str, orders: str, payments: str, sink: str, checkpoint: str) -> None:
    """Join what the topics have now, and end. Without the trigger, the query runs on."""
    prepare()
    spark = SparkSession.builder.appName("join").getOrCreate()
    found = joined(topic(spark, servers, orders), topic(spark, servers, payments))
    query = (
        found.writeStream.format("odradek")
        .options(topic=sink, exactlyOnce="true", checkpointLocation=checkpoint)
        .option("kafka.bootstrap.servers", servers)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
