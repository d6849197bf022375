"""Converts tables of pandas to the records that the demo writes.

A value is the row as JSON, the key one of its columns. `odradek produce` does the same for files,
but row by row; here whole columns are converted for the Arrow client.
"""

import json
import math
from collections.abc import Iterator
from typing import Any

from odradek.model.errors import OdradekError


class TableError(OdradekError):
    """The table lacks a column."""


def records(
    table: Any, *, key: str | None = None, time: str | None = None, rows_max: int = 20_000
) -> Iterator[Any]:
    """The rows as tables of key, value and timestamp, in parts of this size.

    Raises:
        TableError: a named column does not exist.
    """
    import pandas as pd  # noqa: PLC0415  extras
    import pyarrow as pa  # noqa: PLC0415

    for name in (key, time):
        if name is not None and name not in table.columns:
            raise TableError(f"there is no column {name!r}: {', '.join(table.columns)}")
    if time is not None:
        table = table.sort_values(time, kind="stable")
    for start in range(0, len(table), rows_max):
        part = table.iloc[start : start + rows_max]
        columns: dict[str, Any] = {"value": pa.array(to_json(part), pa.string())}
        if key is not None:
            columns["key"] = pa.array(part[key].astype(str), pa.string())
        if time is not None:
            stamps = pd.to_datetime(part[time], utc=True)
            columns["timestamp"] = pa.array(stamps, pa.timestamp("ms", "UTC"))
        yield pa.table(columns)


def to_json(table: Any) -> list[str]:
    """Each row as a JSON object; missing values are null."""
    names = list(table.columns)
    columns = [table[name].tolist() for name in names]
    return [
        json.dumps({
            name: None if isinstance(value, float) and math.isnan(value) else value
            for name, value in zip(names, row, strict=True)
        })
        for row in zip(*columns, strict=True)
    ]  # fmt: skip
