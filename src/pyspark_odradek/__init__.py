"""Registers the format "odradek" with PySpark without any code.

PySpark 4 looks for top-level modules named `pyspark_*` and registers their `DefaultSource`.
"""

from odradek.spark.source import OdradekDataSource as DefaultSource

__all__ = ["DefaultSource"]
