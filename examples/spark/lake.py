"""Append a topic to a table of Delta Lake, each record once, without a jar.

    pip install deltalake
    python examples/spark/lake.py HOST:PORT TOPIC TABLE CHECKPOINT

`foreachBatch` may get a batch again, after a crash between the table's commit and that of the
checkpoint. So each commit of the table has the number of its batch (Delta calls it a transaction of
an application), and a batch that the table has is left out.

`deltalake` writes from the driver, so a batch has to fit into its memory: `maxOffsetsPerTrigger`
limits it. Columns `topic`, `partition` and `offset` say from where a row is.
"""

import sys

from pyspark.sql import DataFrame, SparkSession

from odradek.spark.java import prepare

MAX_RECORDS = 100_000  # in a batch


class Appender:
    """The function for `foreachBatch`."""

    def __init__(self, table: str, query: str) -> None:
        self.table = table
        self.query = query  # another one for each checkpoint: batches of both begin at 0

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Append a batch, unless the table has it."""
        from deltalake import (  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415
            CommitProperties,
            DeltaTable,
            Transaction,
            write_deltalake,
        )

        if DeltaTable.is_deltatable(self.table):
            last = DeltaTable(self.table).transaction_version(self.query)
            if last is not None and number <= last:
                return
        written = CommitProperties(app_transactions=[Transaction(self.query, number)])
        write_deltalake(self.table, batch.toArrow(), mode="append", commit_properties=written)


def append(spark: SparkSession, servers: str, topic: str, table: str, checkpoint: str) -> None:
    """Append what the topic has now, and end. Without the trigger, the query runs on."""
    query = (
        spark.readStream.format("odradek")
        .option("kafka.bootstrap.servers", servers)
        .option("kafka.isolation.level", "read_committed")
        .options(subscribe=topic, startingOffsets="earliest")
        .options(maxOffsetsPerTrigger=str(MAX_RECORDS))
        .load()
        .writeStream.foreachBatch(Appender(table, checkpoint))
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def main(servers: str, topic: str, table: str, checkpoint: str) -> None:
    """Append what the topic has now."""
    prepare()
    spark = SparkSession.builder.appName("lake").getOrCreate()
    append(spark, servers, topic, table, checkpoint)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
