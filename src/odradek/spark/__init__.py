"""Spark reads and writes topics without a jar: `spark.read.format("odradek")` and its like.

    from odradek.spark import register

    register(spark)     # not needed where PySpark finds the package pyspark_odradek by itself
    spark.read.format("odradek").options(**{
        "kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"
    }).load()

Options, schema, offsets and messages are those of Spark's own connector for Kafka, so that the
name of the format is all that changes in a job. docs/spark.md has the table of every option.

Workers import `options`, `offsets` and what they need of `odradek.client`; no broker code.
"""

from typing import Any


def register(spark: Any) -> None:
    """Make the format "odradek" known to a session, if it is not."""
    from pyspark.errors import AnalysisException  # noqa: PLC0415

    from odradek.spark.source import OdradekDataSource  # noqa: PLC0415  needs pyspark

    try:
        spark.dataSource.register(OdradekDataSource)
    except AnalysisException as error:
        # PySpark 4.0 does not take the name of a source that it has found by itself.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
