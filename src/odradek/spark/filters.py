"""Batch reads with filter push-down. PySpark 4.1 and newer."""

from collections.abc import Iterable, Sequence

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from odradek.spark.batch import TopicReader
from odradek.spark.offsets import Piece
from odradek.spark.options import ReadOptions


class FilteringTopicReader(TopicReader):
    """A `TopicReader` that uses filters on topic, partition and offset to read less.

    PySpark refuses a reader with push-down unless spark.sql.python.filterPushdown.enabled is set,
    so this is a class of its own, selected by the option pushDownFilters. Spark applies every
    filter again: filters only reduce what is read here.
    """

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        super().__init__(options, columns)
        self._filters: list[Filter] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  pyspark's
        """Keep the filters that can be used; all of them are returned for Spark to apply."""
        self._filters = list(filters)
        return filters

    def _narrowed(self, pieces: list[Piece]) -> list[Piece]:
        for each in self._filters:
            pieces = [_narrow(piece, each) for piece in pieces]
        return pieces


def _narrow(piece: Piece, wanted: Filter) -> Piece:  # noqa: PLR0911 - a table
    """The part of a piece that one filter selects; a larger part is correct, too."""
    empty = piece._replace(end=piece.start)
    match wanted:
        case EqualTo(attribute=("topic",), value=value):
            return piece if piece.partition.topic == value else empty
        case In(attribute=("topic",), value=values):
            return piece if piece.partition.topic in values else empty
        case EqualTo(attribute=("partition",), value=value):
            return piece if piece.partition.partition == value else empty
        case In(attribute=("partition",), value=values):
            return piece if piece.partition.partition in values else empty
        case EqualTo(attribute=("offset",), value=value):
            return _between(piece, value, value + 1)
        case GreaterThanOrEqual(attribute=("offset",), value=value):
            return _between(piece, value, piece.end)
        case GreaterThan(attribute=("offset",), value=value):
            return _between(piece, value + 1, piece.end)
        case LessThan(attribute=("offset",), value=value):
            return _between(piece, piece.start, value)
        case LessThanOrEqual(attribute=("offset",), value=value):
            return _between(piece, piece.start, value + 1)
    return piece


def _between(piece: Piece, start: int, end: int) -> Piece:
    start = max(piece.start, start)
    return Piece(piece.partition, start, max(start, min(piece.end, end)))
