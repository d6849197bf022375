"""Read and write topics through Spark Connect: the client has no JVM.

    pip install 'pyspark[connect]'
    python examples/spark/connect.py sc://HOST:15002 HOST:PORT TOPIC COPY CHECKPOINT

The server has the driver, so the package has to be where the server is (see the README beside this
file); the client needs PySpark only. The checkpoint is a path of the server.
"""

import sys

from pyspark.sql import SparkSession


def copied(spark: SparkSession, servers: str, topic: str, sink: str, checkpoint: str) -> int:
    """Copy what the topic has now, once. Returns the number of records that the copy has."""
    connection = {"kafka.bootstrap.servers": servers}
    query = (
        spark.readStream.format("odradek")
        .options(**connection, subscribe=topic, startingOffsets="earliest")
        .load()
        .select("key", "value")
        .writeStream.format("odradek")
        .options(**connection, topic=sink, exactlyOnce="true", checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    committed = {**connection, "kafka.isolation.level": "read_committed"}
    found: int = spark.read.format("odradek").options(**committed, subscribe=sink).load().count()
    return found


def main(remote: str, servers: str, topic: str, sink: str, checkpoint: str) -> None:
    """Copy a topic and print how many records the copy has."""
    spark = SparkSession.builder.remote(remote).getOrCreate()
    print(f"{copied(spark, servers, topic, sink, checkpoint):,} records")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
