"""Spark reads and writes topics without a jar: `spark.read.format("odradek")` and its like.

    from odradek.spark import register

    register(spark)     # not needed where PySpark finds the package pyspark_odradek by itself
    spark.read.format("odradek").options(**{
        "kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"
    }).load()

Options, schema, offsets and error messages are those of Spark's own connector for Kafka, so that
a job only changes the name of the format. docs/spark.md has the table of options.

Workers import `options`, `offsets` and parts of `odradek.client`; no broker code.
"""

from typing import Any


def register(spark: Any) -> None:
    """Register the format "odradek" with a session, if it is not registered."""
    from pyspark.errors import AnalysisException  # noqa: PLC0415

    from odradek.spark.source import OdradekDataSource  # noqa: PLC0415  needs pyspark

    try:
        spark.dataSource.register(OdradekDataSource)
    except AnalysisException as error:
        # PySpark 4.0 raises this if it has found and registered the source by itself.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
