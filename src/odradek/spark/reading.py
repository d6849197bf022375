"""How a task reads its range of a partition: fetch, decode, return Arrow to Spark.

Each query is planned in a new process that reads nothing: so the modules for reading are imported
where they are used.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import InputPartition

from odradek.model.partition import TopicPartition
from odradek.spark.connections import CONNECTIONS
from odradek.spark.offsets import LostDataError, Piece
from odradek.spark.options import ReadOptions, number

if TYPE_CHECKING:
    from odradek.client.arrow.fetch import FetchSettings

_PARTITION_BYTES: Final = 4 << 20
_FETCH_BYTES: Final = 8 << 20
# The size of a batch for Spark: large enough for few batches, small enough for a worker's memory.
_BUFFER_BYTES: Final = 24 << 20
# The first batch is small, so that a `limit(5)` gets its rows at once.
_FIRST_ROWS: Final = 1_000


class OffsetRange(InputPartition):  # type: ignore[misc]  # pyspark is not typed for us
    """The range that one task reads."""

    def __init__(self, piece: Piece | None) -> None:
        super().__init__(tuple(piece) if piece is not None else None)
        self.piece = piece


def read_piece(
    options: ReadOptions, columns: Sequence[str], given: InputPartition
) -> Iterator[Any]:
    """The records of a piece as Arrow record batches of Spark's schema.

    Raises:
        LostDataError: offsets are no longer in the log, and failOnDataLoss is true.
        ApiError: a broker refuses, nothing arrives for kafkaConsumer.pollTimeoutMs, or a batch is
            corrupt; the text has topic, partition and offset.
    """
    from odradek.client.arrow import stream  # noqa: PLC0415
    from odradek.client.arrow.decode import Layout  # noqa: PLC0415
    from odradek.client.arrow.fetch import DataLossError, Range  # noqa: PLC0415

    piece = getattr(given, "piece", None)
    if piece is None:  # Spark's stand-in for an empty list of partitions
        return
    piece = Piece(TopicPartition(*piece.partition), piece.start, piece.end)
    layout = Layout(columns, timestamp_unit="us")
    settings = fetch_settings(options)
    ranges = {piece.partition: Range(piece.start, piece.end)}
    cluster = CONNECTIONS.cluster(options.kafka, f"reading {piece.partition}")
    check = options.kafka.get("check.crcs", "true").strip().lower() != "false"
    batches = stream(CONNECTIONS.thread, cluster, ranges, layout, settings, check_crc=check)
    first = True
    try:
        for batch in batches:
            if first and batch.num_rows > _FIRST_ROWS:
                yield batch.slice(0, _FIRST_ROWS)
                yield batch.slice(_FIRST_ROWS)
            else:
                yield batch
            first = False
    except DataLossError as error:
        raise LostDataError(str(error)) from None


def fetch_settings(options: ReadOptions) -> "FetchSettings":
    """The client's properties, with our defaults."""
    from odradek.client.arrow.fetch import FetchSettings  # noqa: PLC0415

    kafka = options.kafka
    return FetchSettings(
        partition_bytes_max=number(kafka, "max.partition.fetch.bytes", _PARTITION_BYTES),
        fetch_bytes_max=number(kafka, "fetch.max.bytes", _FETCH_BYTES),
        buffer_bytes_max=_BUFFER_BYTES,
        wait_ms_max=number(kafka, "fetch.max.wait.ms", 500),
        min_bytes=number(kafka, "fetch.min.bytes", 1),
        stall_timeout_ms=options.poll_timeout_ms,
        committed=options.committed,
        fail_on_data_loss=options.fail_on_data_loss,
        rack=kafka.get("client.rack", ""),
    )
