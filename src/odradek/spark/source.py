"""The data source "odradek": PySpark's entry to its schema, readers and writers.

Nothing here imports Arrow or a client: PySpark loads this module in every session that looks for
data sources. What each version of PySpark supports:

    4.2 and later   everything
    4.0, 4.1        batch reads and writes; streams are refused with the reason
"""

from typing import TYPE_CHECKING, Any, Final

import pyspark
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from odradek.model.errors import OdradekError
from odradek.spark.options import OptionError, read_options, write_options

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamReader

    from odradek.spark.batch import TopicReader
    from odradek.spark.stream_writer import StreamTopicWriter
    from odradek.spark.writer import TopicWriter

FORMAT: Final = "odradek"
STREAMS_FROM: Final = (4, 2)

# The connector's columns with their types.
TYPES: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}
_ALWAYS: Final = tuple(name for name in TYPES if name != "headers")


class StreamsMissingError(OdradekError):
    """PySpark is too old for streams. Not a NotImplementedError, which PySpark would catch."""


class OdradekDataSource(DataSource):  # type: ignore[misc]  # pyspark is not typed for us
    """`spark.read.format("odradek")`, and `readStream`, `write`, `writeStream`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        """The connector's schema; with `columns` only those; with `includeHeaders` the headers.

        Raises:
            OptionError: a column that does not exist.
        """
        options = {name.lower(): value for name, value in self.options.items()}
        wanted: tuple[str, ...] = _ALWAYS
        if options.get("includeheaders", "false").strip().lower() == "true":
            wanted = tuple(TYPES)
        if "columns" in options:
            wanted = tuple(part.strip() for part in options["columns"].split(",") if part.strip())
        for column in wanted:
            if column not in TYPES:
                raise OptionError(f"columns: {column!r} is not one of {', '.join(TYPES)}")
        return ", ".join(f"`{column}` {TYPES[column]}" for column in wanted)

    def reader(self, schema: StructType) -> "TopicReader":
        options = read_options(_plain(self.options), streaming=False)
        columns = checked_columns(schema)
        if options.push_down:
            from odradek.spark.filters import FilteringTopicReader  # noqa: PLC0415

            return FilteringTopicReader(options, columns)
        from odradek.spark.batch import TopicReader  # noqa: PLC0415

        return TopicReader(options, columns)

    def streamReader(self, schema: StructType) -> "DataSourceStreamReader":  # noqa: N802  pyspark's
        """A streaming read. Invalid options are raised at its first call."""
        _need_streams("spark.readStream")
        from odradek.spark.stream import TopicStreamReader  # noqa: PLC0415

        try:
            options = read_options(_plain(self.options), streaming=True)
            return TopicStreamReader(options, checked_columns(schema))
        except OptionError as error:
            # PySpark hides an error raised here behind an UnboundLocalError of its own, so the
            # reader raises it later.
            from odradek.spark.stream import RefusedStreamReader  # noqa: PLC0415

            return RefusedStreamReader(error)

    def writer(self, schema: StructType, overwrite: bool) -> "TopicWriter":
        from odradek.spark.writer import TopicWriter  # noqa: PLC0415

        if overwrite:
            raise OptionError(
                "Save mode Overwrite not allowed for Kafka. Allowed save mode is Append: "
                '.mode("append")'
            )
        return TopicWriter(write_options(_plain(self.options)), schema)

    def streamWriter(  # noqa: N802  pyspark's
        self,
        schema: StructType,
        overwrite: bool,  # noqa: ARG002  complete mode writes all rows anew, as the connector does
    ) -> "StreamTopicWriter":
        _need_streams("writeStream")
        from odradek.spark.stream_writer import StreamTopicWriter  # noqa: PLC0415

        return StreamTopicWriter(write_options(_plain(self.options)), schema)


def checked_columns(schema: StructType) -> tuple[str, ...]:
    """The columns of the user's schema, or of `schema`.

    Raises:
        OptionError: a column that does not exist, or has another type.
    """
    for field in schema:
        if field.name not in TYPES:
            raise OptionError(f"column {field.name!r} of the schema is not in {', '.join(TYPES)}")
        given, must = field.dataType.simpleString(), TYPES[field.name]
        if given != must:
            raise OptionError(f"column {field.name!r} of the schema is {given}; it must be {must}")
    return tuple(field.name for field in schema)


def _plain(options: Any) -> dict[str, str]:
    return {str(name): str(value) for name, value in options.items()}


def _need_streams(what: str) -> None:
    version = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    if version < STREAMS_FROM:
        raise StreamsMissingError(
            f"{what}.format('odradek') with PySpark {pyspark.__version__}: streams need PySpark "
            "4.2 or newer, whose Python sources can limit what a trigger takes; spark.read and "
            "df.write work"
        )
