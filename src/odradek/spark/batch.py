"""Batch reads: the reader behind `spark.read.format("odradek").load()`."""

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from odradek.spark.connections import CONNECTIONS
from odradek.spark.offsets import Piece, cut
from odradek.spark.options import ReadOptions
from odradek.spark.quick_ack import QuickAcknowledged
from odradek.spark.ranges import batch_ranges
from odradek.spark.reading import OffsetRange, read_piece


class TopicReader(QuickAcknowledged, DataSourceReader):  # type: ignore[misc]  # pyspark is not typed for us
    """Divides the offset ranges into tasks, and reads them."""

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)

    def partitions(self) -> list[InputPartition]:
        """One task for each partition with records, or more by minPartitions or the like."""
        cluster = CONNECTIONS.cluster(self._options.kafka, self._options.subject)
        pieces = self._narrowed(CONNECTIONS.run(batch_ranges(cluster, self._options)))
        return [
            OffsetRange(piece)
            for piece in cut(
                pieces,
                min_partitions=self._options.min_partitions,
                records_max=self._options.records_per_partition_max,
            )
        ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The records of one task as Arrow record batches."""
        return read_piece(self._options, self._columns, partition)

    def _narrowed(self, pieces: list[Piece]) -> list[Piece]:
        return pieces
