"""The lag of streaming queries as metrics for Prometheus.

    python examples/spark/lag_metrics.py HOST:PORT TOPIC PORT CHECKPOINT     # and scrape PORT

`odradek_spark_lag_records{query,topic,partition}` is the number of offsets that a query has not
read yet. The listener runs in the driver, so one address is to be scraped for a job. An alert:

    sum by (query) (odradek_spark_lag_records) > 100000
"""

import sys
import threading
from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Gauge, start_http_server
from pyspark.sql import SparkSession

from odradek.model.partition import TopicPartition
from odradek.spark.java import prepare
from odradek.spark.lag import LagListener


class LagMetrics:
    """What `LagListener` calls: keeps the last lag of each query."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._lag = Gauge(
            "odradek_spark_lag_records",
            "Offsets that a streaming query has not read yet",
            ["query", "topic", "partition"],
            registry=registry,
        )

    def __call__(self, query: str, lag: Mapping[TopicPartition, int]) -> None:
        """Note the lag of a query, by partition."""
        for partition, behind in lag.items():
            self._lag.labels(query, partition.topic, str(partition.partition)).set(behind)


def main(servers: str, topic: str, port: str, checkpoint: str) -> None:
    """Run a query named `example` that reads the topic, until it is stopped."""
    prepare()
    spark = SparkSession.builder.appName("lag").getOrCreate()
    registry = CollectorRegistry()
    spark.streams.addListener(LagListener(LagMetrics(registry)))
    server, _ = start_http_server(int(port), addr="127.0.0.1", registry=registry)
    print(f"metrics at http://127.0.0.1:{server.server_port}/metrics", flush=True)
    reader = spark.readStream.format("odradek").option("kafka.bootstrap.servers", servers)
    (
        reader.options(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="10000")
        .load()
        .writeStream.queryName("example")
        .format("noop")
        .option("checkpointLocation", checkpoint)
        .start()
    )
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
