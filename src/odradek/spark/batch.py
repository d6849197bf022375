"""Batch reads: `spark.read.format("odradek").load()`."""

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from odradek.spark.connections import CONNECTIONS
from odradek.spark.offsets import Piece, cut
from odradek.spark.options import ReadOptions
from odradek.spark.promptness import Prompt
from odradek.spark.ranges import batch_ranges
from odradek.spark.reading import OffsetRange, read_piece


class TopicReader(Prompt, DataSourceReader):  # type: ignore[misc]  # pyspark is not typed for us
    """Plans which offsets are read by which task, and reads them."""

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)

    def partitions(self) -> list[InputPartition]:
        """One task for each partition that has something, or more if options ask for it."""
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
        """One task's records, as Arrow."""
        return read_piece(self._options, self._columns, partition)

    def _narrowed(self, pieces: list[Piece]) -> list[Piece]:
        return pieces
