"""Found records as files: JSON lines, CSV and Parquet. Pure, except for the library of Parquet.

Bytes that are UTF-8 are text; all others are base64, and a field says so. Values are whole: the
caller has read them without a cut. Nothing of a value is changed, so a spreadsheet may take a value
that begins with `=` for a formula.
"""

import base64
import csv
import io
import json
from collections.abc import Iterable
from typing import Any, Final

from odradek.model.errors import OdradekError
from odradek.model.extras import install
from odradek.web.messages.content import moment
from odradek.web.messages.scan import FoundRecord

TYPES: Final = {
    "jsonl": "application/x-ndjson",
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
}
_COLUMNS: Final = (
    "topic", "partition", "offset", "timestamp_ms", "time", "key", "key_encoding", "value",
    "value_encoding", "headers", "transaction", "marker",
)  # fmt: skip


class ExportError(OdradekError):
    """The format is not known, or its library is not installed."""


def exported(kind: str, topic: str, records: Iterable[FoundRecord]) -> bytes:
    """The file of this kind.

    Raises:
        ExportError: another kind, or Parquet without pyarrow.
    """
    match kind:
        case "jsonl":
            return jsonl(topic, records)
        case "csv":
            return csv_of(topic, records)
        case "parquet":
            return parquet(topic, records)
        case _:
            raise ExportError(f"export: {kind!r} is not one of {', '.join(TYPES)}")


def jsonl(topic: str, records: Iterable[FoundRecord]) -> bytes:
    """One JSON object for each record and line."""
    lines = (json.dumps(_row(topic, each), ensure_ascii=False) for each in records)
    return "".join(f"{line}\n" for line in lines).encode()


def csv_of(topic: str, records: Iterable[FoundRecord]) -> bytes:
    """CSV with a heading (RFC 4180); headers are JSON. A null key or value has encoding `null`."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(_COLUMNS)
    for record in records:
        row = _row(topic, record)
        row["headers"] = json.dumps(row["headers"], ensure_ascii=False)
        writer.writerow(["" if row[name] is None else row[name] for name in _COLUMNS])
    return text.getvalue().encode()


def parquet(topic: str, records: Iterable[FoundRecord]) -> bytes:
    """Parquet with key and value as binary, as `odradek.client.arrow` has them.

    Raises:
        ExportError: pyarrow is not installed.
    """
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra
        import pyarrow.parquet as pq  # noqa: PLC0415
    except ImportError:
        why = f"export: Parquet needs pyarrow ({install('arrow')}); JSONL and CSV do not"
        raise ExportError(why) from None
    rows = list(records)
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    table = pa.table(
        {
            "topic": pa.array([topic] * len(rows), pa.string()),
            "partition": pa.array([r.partition for r in rows], pa.int32()),
            "offset": pa.array([r.offset for r in rows], pa.int64()),
            "timestamp": pa.array([r.timestamp for r in rows], pa.timestamp("ms", tz="UTC")),
            "timestamp_type": pa.array([r.timestamp_type for r in rows], pa.int32()),
            "key": pa.array([r.key for r in rows], pa.binary()),
            "value": pa.array([r.value for r in rows], pa.binary()),
            "headers": pa.array(
                [[{"key": _name(k), "value": v} for k, v in r.headers] for r in rows],
                pa.list_(header),
            ),
            "transaction": pa.array([r.state.value for r in rows], pa.string()),
            "marker": pa.array([r.marker for r in rows], pa.string()),
        }
    )
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


def _row(topic: str, record: FoundRecord) -> dict[str, Any]:
    key, key_encoding = _encoded(record.key)
    value, value_encoding = _encoded(record.value)
    headers = []
    for name, content in record.headers:
        text, encoding = _encoded(content)
        headers.append({"name": _name(name), "value": text, "encoding": encoding})
    return {
        "topic": topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
        "time": moment(record.timestamp),
        "key": key,
        "key_encoding": key_encoding,
        "value": value,
        "value_encoding": value_encoding,
        "headers": headers,
        "transaction": record.state.value,
        "marker": record.marker,
    }


def _name(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _encoded(data: bytes | None) -> tuple[str | None, str]:
    if data is None:
        return None, "null"
    try:
        return data.decode(), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), "base64"
